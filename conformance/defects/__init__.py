"""Severity and defects: the meaning of a run's violations. Pure functions of the run's results.

A symptom is one violation in one result. A defect holds the symptoms that one change of the stack would probably mend,
across rules, entry points and rows. The source of the stack is not needed: symptoms with the same call, answer and
condition count as one defect. judging/ has the verdicts.
"""

from conformance.defects.defect import Answering, Defect, answering_of, defects_of, is_of_stack
from conformance.defects.severity import Severity, count_by_severity, severity_of, severity_of_fault
from conformance.defects.symptom import Cause, Symptom, cause_of, symptoms_of
from conformance.defects.words import shorts_in

__all__ = [
    "Answering",
    "Cause",
    "Defect",
    "Severity",
    "Symptom",
    "answering_of",
    "cause_of",
    "count_by_severity",
    "defects_of",
    "is_of_stack",
    "severity_of",
    "severity_of_fault",
    "shorts_in",
    "symptoms_of",
]
