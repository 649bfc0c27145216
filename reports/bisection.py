"""The commands with which git finds the commit of a violation (docs/patches.md). Like the other commands of a report they
are for the directory of the suite, on any machine: git runs the program in the tree, so the shell gives it the path."""

import re
import shlex
from collections.abc import Mapping, Sequence

from conformance.defects import Defect, Symptom
from conformance.defects.owner import CORE, LIBIBVERBS, PROVIDER
from conformance.errors import PROGRAM
from conformance.older_python import zip
from conformance.option import given_path
from conformance.run_options import OPTIONS
from reports.environment import UNCOMMITTED
from reports.races import is_race

# the options with a repository, and the keys of the repository's commit among the facts of a run
_TREES = {"--linux": "given.linux.commit", "--rdma-core": "given.rdma_core_tree.commit"}
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_BAD, _GOOD, _TREE = "BAD", "GOOD", "TREE"
_HERE = '"$PWD"/'
# what a user puts in place of a word that the runs do not tell
_MEANINGS = {
    _BAD: "a commit with the defect",
    _GOOD: "a commit without it",
    _TREE: "a source tree",
}


def line_of(commands: str) -> str:
    """Returns a line that says what to put into the commands, which end the line."""
    words = commands.split()
    unknown = [f"{word} is {what}" for word, what in _MEANINGS.items() if word in words]
    return f"bisect ({', '.join(['docs/patches.md#bisection', *unknown])}): {commands}"


def is_of_tree(symptom: Symptom) -> bool:
    """Whether the run is of a source tree."""
    return not _TREES.keys().isdisjoint(symptom.repro.split())


def may_decide(symptom: Symptom) -> bool:
    """Whether one run of the symptom's command tells a good commit from a bad one. Chance decides about a race."""
    return not is_race(symptom.record)


def commands_at(symptom: Symptom, new: Mapping[str, str], old: Mapping[str, str]) -> str:
    """Returns the commands that try the case or the point of a symptom at each commit of the run's tree. `new` and `old`
    are the facts about what was under test in a run with the symptom, and in one without it. Empty if both runs are of
    one commit, or if the run with the symptom has uncommitted files: then no commit is known to have the defect."""
    words = _in_shell(symptom)
    flag = next(word for word in words if word in _TREES)
    bad, good = (facts.get(_TREES[flag], "") for facts in (new, old))
    if bad and (bad == good or UNCOMMITTED in bad):
        return ""
    bad, good = (
        commit if _COMMIT.fullmatch(commit) else word
        for commit, word in ((bad, _BAD), (good, _GOOD))
    )
    return _commands(words[words.index(flag) + 1], bad, good, words)


def commands_of(defect: Defect, facts: Mapping[str, str]) -> str:
    """Returns the commands that try the first symptom of a defect of a guest that is no race; `TREE` stands for the source
    tree of the layer that has answered, if the run is of no tree. Empty for a race, for what the kernel's core has
    answered, because --linux compiles the driver alone, and for another target, which has its own build."""
    first = next(filter(may_decide, defect.symptoms), None)
    if first is None or defect.answering.layer == CORE:
        return ""
    if is_of_tree(first):
        return commands_at(first, facts, {})
    words = _in_shell(first)
    if "--guest" not in words:
        return ""
    option = "--rdma-core" if defect.answering.layer in (PROVIDER, LIBIBVERBS) else "--linux"
    words[-2:-2] = [option, _TREE]  # before the case
    return _commands(_TREE, _BAD, _GOOD, words)


def _commands(tree: str, bad: str, good: str, words: Sequence[str]) -> str:
    program = f"{_HERE}{PROGRAM[2:]}" if PROGRAM.startswith("./") else shlex.quote(PROGRAM)
    step = " ".join([program, "bisect-step", "--yes", *words[2:]])  # in place of `rdma-cts run`
    git = f"git -C {tree} bisect"
    return f"{git} start {bad} {good} && {git} run {step}"


def _in_shell(symptom: Symptom) -> list[str]:
    """Returns the words of a command as the shell reads them, with relative paths below the working directory; empty if
    it is no command, as of a run that somebody has changed."""
    try:
        words = shlex.split(symptom.repro)
    except ValueError:
        return []
    paths = {option.flag for option in OPTIONS.values() if option.parse is given_path}
    return [
        f"{_HERE if flag in paths and not word.startswith('/') else ''}{shlex.quote(word)}"
        for flag, word in zip(["", *words], words, strict=False)
    ]
