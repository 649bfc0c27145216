"""The behaviours of personas by name: the rows of behaviours.yaml, and permitted variants of the mutants."""

import itertools
from collections.abc import Mapping
from pathlib import Path

from reference.device import Device
from trial.catalogue import PERMITTED_VARIANTS, VOCABULARY
from trial.mutant_table import behaviours_in

BEHAVIOURS: Mapping[str, type[Device]] = {
    **{each.name: each.kind for each in PERMITTED_VARIANTS},
    **dict(behaviours_in(Path(__file__).with_suffix(".yaml"), Device, (itertools, *VOCABULARY))),
}
