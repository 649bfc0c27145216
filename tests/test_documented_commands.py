"""Tests that every command in the pages can be parsed, and that it runs as it is written; NOT_RUN has the commands that
are not run here, with reasons. In the commands, RUN, OLD and NEW are runs, and DIR is a history."""

import functools
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main, parser_of
from commands.cli.arguments import Parser
from conformance.errors import UserError
from conformance.older_python import pairwise
from conformance.tables.suite import ROOT, load_suite
from kinds import rows
from samples import laid, numbered, recorded, result, written

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").glob("*.md"),
    ],
)
# A command is after a prompt, in a script, a crontab or a unit of systemd. In a sentence, it must have arguments.
_PLACE = r"(?:[$#] |[A-Z_]+=\S+ |git bisect run |(?:[\d*]+ ){5}.*&& |Exec\w+=\S*/)?(?:\./)?"
_COMMAND = re.compile(
    rf"^    {_PLACE}rdma-cts (?P<line>(?:.*\\\n)*.*)|`\./rdma-cts (?P<said>[a-z-]+\s[^`]+)`",
    re.MULTILINE,
)
# The placeholders of the pages and their values; for commands that are not run, their beginnings and the reasons.
_ROWS = rows("documented_commands")
FOR_READERS = dict(_ROWS)
NOT_RUN = {
    begin.removeprefix("not run: "): why for begin, why in _ROWS if begin.startswith("not run: ")
}


def documented() -> Iterator[tuple[str, str]]:
    """Yields the page and the arguments of each command, without comments, optional parts and shell syntax."""
    for page in PAGES:
        text = re.sub(
            r"^    (?:[\d*]+ ){5}.*",
            lambda line: line[0].replace("; ", "\n    "),
            page.read_text(),
            flags=re.M,
        )
        for match in _COMMAND.finditer(text):
            line = re.sub(r"\\\n", " ", match["line"] or match["said"])
            line = re.sub(r"(^|\s)#\s.*| &&.*|;.*| [>|].*|…$", "", line)
            while (shorter := re.sub(r"\[[^][]*\](\.\.\.)?", "", line)) != line:
                line = shorter
            yield page.name, " ".join(line.split())


COMMANDS = sorted(set(documented()))


def why_not(line: str) -> str:
    """Returns the reason why a command is not run; empty if it is run."""
    if "--list" in line.split():
        return ""
    return next(
        (reason for begin, reason in NOT_RUN.items() if f"{line} ".startswith(f"{begin} ")),
        "",
    )


def words_of(line: str) -> list[str]:
    """Returns the arguments of a command, with values in place of the placeholders."""
    words = shlex.split(line)
    return [FOR_READERS.get(word, word) for word in words]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all files that the pages name."""
    folder = tmp_path_factory.mktemp("shelf")
    part = (ROOT / "tests" / "recorded_violations" / "forky.jsonl").read_bytes()
    names = ("RUN/results.jsonl", "out/latest/results.jsonl")
    laid(folder, {**dict.fromkeys(names, part), "waivers.yaml": "waivers: []\n"})
    for name in ("OLD", "NEW"):  # runs that planned one case and have its result
        written(recorded([result(numbered(1).cases[0])]), folder / name)
    shutil.copytree(folder / "RUN", folder / "DIR" / "20261122T031700Z" / "forky")
    return folder


@pytest.fixture
def desk(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the same files, for commands that write."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@functools.cache
def parser(*words: str) -> Parser:
    return parser_of(words)


@pytest.mark.parametrize("page, line", COMMANDS)
def test_every_command_of_a_page_is_parsed(page, line, shelf, monkeypatch):
    monkeypatch.chdir(shelf)
    words = words_of(line)
    try:
        parser(*words[:2]).parse_args(words)
    except UserError as error:
        pytest.fail(f"{page}: {line}: {error}")
    for option, name in pairwise(words):  # this is also checked for a command that is not run here
        assert option != "--only" or "/" not in name or load_suite().find(name), f"{page}: {line}"


def runs() -> Iterator[Any]:
    """Yields the commands that are run. Commands with the same words (after placeholders are replaced) run once."""
    for words, (page, line) in {
        tuple(words_of(line)): (page, line) for page, line in COMMANDS
    }.items():
        if not why_not(line):
            yield pytest.param(page, words, id=line)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("page, words", runs())
def test_commands_that_need_no_device_run_as_written(page, words, capsys):
    status = main(words)
    output = capsys.readouterr()
    errors = [line for line in output.err.splitlines() if not line.startswith("note: ")]
    assert (status in (0, 1), errors) == (True, []), f"{page}: {words}"
