"""Tests that a command refuses each file with a mistake, with an exact message.

A file of tests/refusals is about one kind of file. A block `=== base` has a command (`$ COMMAND`) and files without
mistakes, each below `--- NAME`. Each further block is a mistake in these files; it may have its own command. `new: `
replaces the words of the preceding `old: ` or, without `old: `, the whole content of the last file; \\n is the end of a
line, and \\xNN a byte. `add: NAME CONTENT` adds a file, and `add: NAME -> TARGET` a link. Each `says: ` is a line of
the message, in which HERE is the working directory, TABLES the beginning of the tables' SHA-256, and VERSION that of the
suite. In a command, RECORDED is a folder of recorded runs.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from conformance.older_python import zip
from conformance.results.plan import MOST_PLAN_BYTES
from conformance.tables.suite import VERSION, load_suite

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Refusal:
    """A command, the files in its directory, and the lines of its message."""

    command: str
    files: dict[str, str]
    says: tuple[str, ...] = ()

    def with_mistake(self, block: str) -> "Refusal":
        """Returns the refusal that a block describes; this object is its base."""
        files, command, says, old = dict(self.files), self.command, list[str](), ""
        for line in filter(None, block.splitlines()):
            key, text = line[:5].strip(), line[5:]
            if line.startswith("$ "):
                command = line[2:]
            elif key == "old:":
                old = text
            elif key == "new:":
                (name,) = [name for name, content in files.items() if old in content][-1:]
                text = text.replace(r"\n", "\n")
                files[name] = files[name].replace(old, text, 1) if old else text
                old = ""
            elif key == "add:":
                name, _, files[name] = text.partition(" ")
            else:
                assert key == "says:", line
                says.append(text.strip())
        return replace(self, command=command, files=files, says=tuple(says))


def refusals(path: Path) -> Iterator[tuple[str, Refusal]]:
    """Yields the mistakes of a file by their names."""
    base = Refusal("", {})
    for part in path.read_text(encoding="utf-8").split("\n=== ")[1:]:
        name, _, block = part.partition("\n")
        if name == "base":
            command, *files = re.split(r"^--- (.+)\n", block, flags=re.MULTILINE)
            content = [f"{text.rstrip()}\n" for text in files[1::2]]
            base = Refusal(
                command.strip().removeprefix("$ "),
                dict(zip(files[::2], content, strict=True)),
            )
        else:
            yield f"{path.stem}: {name}", base.with_mistake(block)


KNOWN = dict(
    refusal for path in sorted((TESTS / "refusals").glob("*.txt")) for refusal in refusals(path)
)


@pytest.mark.parametrize("refusal", KNOWN.values(), ids=KNOWN)
def test_a_file_with_a_mistake_is_refused_with_this_message(refusal, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    for name, content in refusal.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            Path(name).symlink_to(content[3:])
            continue
        text = re.sub(r"\\x([0-9a-f]{2})", lambda message: chr(int(message[1], 16)), content)
        Path(name).write_text(text, encoding="latin-1" if text != content else "utf-8")
    before = sorted(tmp_path.rglob("*"))
    words = shlex.split(refusal.command.replace("RECORDED", str(TESTS / "recorded_violations")))
    said = "".join(f"rdma-cts: {line}\n" for line in refusal.says).replace("HERE", str(tmp_path))
    said = said.replace("TABLES", load_suite().tables_sha256[:12]).replace("VERSION", VERSION)
    # Damage of a history is no mistake of the command.
    status = 3 if "no night can be read" in said else 2
    assert cli(status, *words) == ("", said)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name, command",
    [("results.jsonl", "report ."), ("plan.json", "run --resume .")],
)
def test_a_file_nested_too_deeply_is_refused(name, command, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    lines = (
        f"{text}\n" for text in ('{"type": "header", "schema": "rdma-cts/1"}', "[" * 100_000, "")
    )
    Path(name).write_text("".join(lines) if name == "results.jsonl" else "[" * 100_000)
    assert cli(2, *command.split()).err.count("\n") == 1


@pytest.mark.parametrize("name", ["plan.json", "lab.json"])
def test_a_plan_that_no_run_writes_is_refused_before_it_is_read(name, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    with Path(name).open("wb") as file:
        file.truncate(MOST_PLAN_BYTES + 1)
    said = f"rdma-cts: {name} cannot be read: larger than {MOST_PLAN_BYTES:,} bytes\n"
    assert cli(2, "run", "--resume", ".") == ("", said)
