"""Has the alterations of real calls between the suite and libibverbs. Each alteration violates one rule that Soft-RoCE
follows. An alteration changes the arguments or the result of a call, or returns a result without the call."""

import contextlib
import dataclasses
import sys

from conformance import verbs
from conformance.bench import calls, work_requests
from trial.altering import Alteration
from trial.mutant_table import Violation, mutants_of
from trial.mutants.calls import bases
from trial.reference import advice, objects, reregistration

_VOCABULARY = (
    contextlib,
    dataclasses,
    verbs,
    advice,
    objects,
    reregistration,
    calls,
    work_requests,
    bases,
)
ALTERATIONS: tuple[Violation, ...] = tuple(
    mutants_of(sys.modules[__name__], Alteration, _VOCABULARY),
)
