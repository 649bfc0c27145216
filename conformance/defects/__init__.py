"""Groups the violations of a run into defects, and determines their severity. All functions are pure.

A symptom is one violation in one result. A defect is a group of symptoms, in any rules, entries and rows, that one
change of the stack would probably fix. The source of the stack is not needed: symptoms with the same call, error and
condition count as one defect. judging/ determines the verdicts.
"""

from conformance.defects.cause import AWAITED as AWAITED
from conformance.defects.cause import Cause as Cause
from conformance.defects.cause import cause_of as cause_of
from conformance.defects.defect import Defect as Defect
from conformance.defects.defect import defects_of as defects_of
from conformance.defects.defect import families_of as families_of
from conformance.defects.owner import Answering as Answering
from conformance.defects.owner import answering_of as answering_of
from conformance.defects.owner import is_of_stack as is_of_stack
from conformance.defects.severity import Severity as Severity
from conformance.defects.severity import count_by_severity as count_by_severity
from conformance.defects.severity import severity_of as severity_of
from conformance.defects.severity import severity_of_fault as severity_of_fault
from conformance.defects.symptom import Symptom as Symptom
from conformance.defects.symptom import symptoms_of as symptoms_of
from conformance.defects.words import shorts_in as shorts_in
