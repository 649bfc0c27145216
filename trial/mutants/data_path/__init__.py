"""Has the violations and permitted variants of the data path. Their authors had not seen the cases (docs/trial.md)."""

import sys

from trial.data_path import memory, objects, replaced, structures
from trial.data_path.alteration import DataPath
from trial.mutant_table import Violation, mutants_of
from trial.mutants.data_path import bases
from trial.reference import objects as rights

_ALL = tuple(
    mutants_of(
        sys.modules[__name__],
        DataPath,
        (rights, replaced, memory, objects, structures, bases),
    ),
)
DATA_PATH_ALTERATIONS: tuple[Violation, ...] = tuple(
    alteration for alteration in _ALL if not alteration.permitted
)
DATA_PATH_PERMITTED: tuple[Violation, ...] = tuple(
    alteration for alteration in _ALL if alteration.permitted
)
