"""Alterations of real calls between the suite and libibverbs. Each alteration breaks one rule that Soft-RoCE follows.
If only the altered device allows a call, the alteration requests more from the real device. If only the altered device
refuses a call, the alteration does not call the real device."""

import contextlib
import dataclasses
import sys

from conformance import verbs
from conformance.bench import calls, work_requests
from reference import advice, objects, reregistration
from trial.altering import Alteration
from trial.mutant_table import Violation, mutants_of
from trial.mutants.calls import bases

_VOCABULARY = (contextlib, dataclasses, verbs, advice, objects, reregistration, calls, work_requests, bases)
ALTERATIONS: tuple[Violation, ...] = tuple(mutants_of(sys.modules[__name__], Alteration, _VOCABULARY))
