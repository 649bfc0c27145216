"""The command with which git finds the commit of a violation (docs/patches.md)."""

from conformance.defects import Defect, Symptom
from conformance.defects.owner import LIBIBVERBS, PROVIDER
from conformance.errors import PROGRAM

# the options with a repository
_TREES = {"--linux", "--rdma-core"}


def is_of_tree(symptom: Symptom) -> bool:
    """Whether the run is of a source tree."""
    return not _TREES.isdisjoint(symptom.repro.split())


def command_at(symptom: Symptom) -> str:
    """Returns the command of git that tries the case or the point of a symptom at each commit of the run's tree."""
    return f"git bisect run {PROGRAM} bisect-step --yes {symptom.repro.partition(' run ')[2]}"


def command_of(defect: Defect) -> str:
    """Returns the command of git that tries the first symptom of a defect of a guest; `TREE` stands for the source tree of
    the layer that has answered, if the run is of no tree. Empty for another target, which has its own build."""
    first = defect.first
    if is_of_tree(first):
        return command_at(first)
    if "--guest" not in first.repro.split():
        return ""
    option = "--rdma-core" if defect.answering.layer in (PROVIDER, LIBIBVERBS) else "--linux"
    target, _, only = command_at(first).partition(" --only ")
    return f"{target} {option} TREE --only {only}"
