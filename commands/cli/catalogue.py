"""The commands by what a person wants, in the order of the help text, and their former spellings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.errors import UserError

# Packages have the trial, which only people who work on the suite need, in a package of its own.
_TRIAL = (
    {"trial": "Test the suite itself: does a case fail for every rule that a driver violates?"}
    if (Path(__file__).parent.parent / "trial.py").exists()
    else {}
)
GROUPS: Mapping[str, Mapping[str, str]] = {
    "run the cases": {
        "run": "Run the cases on a device of this host or in the Soft-RoCE guest.",
        "nightly": "Run the cases on several stacks and compare each stack with its last good night; exit status 1 "
        "after a regression.",
        "doctor": "Show what is missing on this host for each way of running, and the remedies.",
        "prepare": "Build the guest's image and template, without running a case.",
    },
    "look at cases and results": {
        "list": "List the cases of all tiers; with --rules, list the rules. Also: list verbs, coverage, capabilities, "
        "schema, variables, completion.",
        "explain": "Explain a rule, a case, a point of a sweep, a defect or a verb: its source, its set-up, its last "
        "verdict, and the meaning of a failure.",
        "report": "Write a report of recorded runs; several runs become columns of one page. With --history, write the "
        "page or the site of all nights.",
    },
    "compare and publish": {
        "compare": "Compare two runs case by case and point by point, or with --nodes the runs of many nodes; exit "
        "status 1 after a regression or if a node differs.",
        "merge": "Merge the shards of a run into one run (see run --shard); the exit status is that of the run.",
        "judge": "Judge recorded observations again by the current rules and tables, without a device; for a bundle, "
        "print the conclusion that it supports.",
        "bundle": "Pack a run with everything that is needed to judge it again elsewhere (see judge).",
    },
    "report a defect": {
        "reproducer": "Write a C program for libibverbs that shows a violation, or a text that reports the violation.",
        "findings": "Write a page about the defects in runs on several stacks, and C programs that show the defects.",
        "patches": "Write patches for git am that fix the defects of Soft-RoCE in given source trees.",
        "waivers": "Write waivers of the defects in recorded runs, each with an owner, an issue and an expiry date.",
        "bisect-step": "Run a case, and exit with the status for git bisect run: 0 good, 1 bad, 125 cannot be tested, "
        "128 stops the bisection.",
    },
    "work on the suite": {
        "test": "Run the project's own tests; arguments after `--` go to pytest.",
        **_TRIAL,
    },
}
COMMANDS: Mapping[str, str] = {
    name: text for commands in GROUPS.values() for name, text in commands.items()
}
# A second word of a command, with arguments of its own.
FORMS: Mapping[str, str] = {
    "list verbs": "List the verbs that documents describe; `explain VERB` shows the description.",
    "list coverage": "Show how many cases of each rule expect success or a refusal; with --run, also show the verdicts.",
    "list capabilities": "List the capabilities that a profile of a device, or a table, can name, with their meaning.",
    "list schema": "Print the JSON Schema of tables or of another file format; docs/ has a copy of each schema.",
    "list variables": "Print the environment variables and the purpose of each variable.",
    "list completion": "Print a script with which bash, zsh or fish complete commands and options.",
}
_MODULES = {"list": "listing", "bisect-step": "bisect_step"}

# The spellings of version 1.0, and those that replace them. They work until version 2 (docs/stability.md).
_FORMER: Mapping[str, Sequence[str]] = {
    "completion": ("list", "completion"),
    "coverage": ("list", "coverage"),
    "describe": ("explain",),
    "fleet": ("compare", "--nodes"),
    "schema": ("list", "schema"),
    "site": ("report",),
    "variables": ("list", "variables"),
    "verify": ("judge",),
}
_FORMER_OPTIONS = {"site": {"--out": "--site"}}


def module_of(name: str) -> str:
    """Returns the name of the module of a command or form, in commands/."""
    return _MODULES.get(name, name.split(" ")[-1])


def check_installed(words: Sequence[str]) -> None:
    """Raises UserError (status 2) if the command is in a package that is not installed."""
    if words[:1] == ["trial"] and not _TRIAL:
        raise UserError(
            "the trial of the suite is not installed", hint="install the package rdma-cts-trial"
        )


def spelled(former: str, today: Sequence[str]) -> str:
    """Returns today's spelling of a former command, with the options that it needs, without its arguments."""
    if " ".join(today[:2]) in FORMS:
        return " ".join(today[:2])
    options = "".join(f" {option}" for option in _FORMER_OPTIONS.get(former, {}).values())
    return f"{' '.join(_FORMER[former])}{options}"


def of_today(words: Sequence[str]) -> list[str]:
    """Returns a command line in which a former spelling is replaced by today's."""
    former = " ".join(words[:1])
    if former not in _FORMER:
        return [*words]
    if former == "describe" and not any(word[:1] != "-" for word in words[1:]):
        return ["list", "verbs", *words[1:]]
    options = _FORMER_OPTIONS.get(former, {})
    return [*_FORMER[former], *(options.get(word, word) for word in words[1:])]
