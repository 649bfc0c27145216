"""Alterations of real calls, between the suite and libibverbs, each of which breaks one rule on the real stack. Only
rules that Soft-RoCE keeps can be broken. For a call that only the broken device allows, more is requested from the real
device. A call that only the broken device refuses is refused without calling the real device."""

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
