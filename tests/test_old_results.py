"""Tests with a results file of an earlier version, undamaged and with damage of every kind.

`old_results` is a part of a real run in the Soft-RoCE guest, made by an earlier version of the suite. Only the
directory in `argv` was replaced, and header and footer were reduced to that part. Each command accepts the file.
RDMA_CTS_FUZZED is the number of damaged files; a fixed seed determines the damage. Each command accepts a damaged file
or refuses it in one line, without a traceback.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors import Audience, StagedRun
from commands import coverage
from commands.__main__ import main
from commands.report import FORMATS, renderer
from conformance.errors import UserError
from conformance.model.verdict import Verdict
from conformance.older_python import zip
from conformance.results.points import read_points
from conformance.results.records import decode, encode, read_written
from conformance.results.rejudge import rejudge
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.supervision.recording import Recording
from conformance.supervision.supervisor import Supervisor
from conformance.supervision.worker import Worker
from conformance.tables.suite import load_suite
from kinds import words
from patience import calls_of
from reports import explanations, terminal
from reports.compared.comparison import compare
from reports.digest import read
from samples import footer_of, lines_of, written_records

SUITE = load_suite()
OLD = Path(__file__).with_name("old_results")
VERDICTS = words("FAIL PASS FAIL UNREACHABLE PASS PASS FAIL UNSUPPORTED PASS UNSUPPORTED CRASH")
SWEEP = "advise_mr/advice_space/advice-and-flags@libibverbs"


def test_each_record_is_written_byte_for_byte_as_it_was_read():
    lines = (OLD / "results.jsonl").read_bytes().splitlines(keepends=True)
    assert [encode(decode(line)) for line in lines] == lines


def test_an_old_file_is_read_as_recorded():
    recorded = read_written(OLD)
    assert [record["verdict"] for record in recorded.results] == VERDICTS
    assert all(isinstance(record["effective"], Verdict) for record in recorded.results)
    assert recorded.header["device"]["driver"] == "rxe"
    assert footer_of(recorded)["verdicts"]["CRASH"] == 1
    assert not recorded.torn
    assert [record["type"] for record in recorded.others] == ["worker"]


@pytest.mark.parametrize("format_", FORMATS)
def test_an_old_run_has_a_report_in_each_format(format_, capsysbinary):
    assert main(["report", str(OLD), "--format", format_, "--out", "-"]) == 0
    assert SWEEP.partition("@")[0].encode() in capsysbinary.readouterr().out.replace(b"\\", b"")


def test_an_old_run_has_severities_and_defects():
    """The records have no faults, so severities and defects are derived only from verdicts."""
    assert (
        read(OLD).summary.headline == "6 defects in 4 cases: 1 kernel crash (1), 5 wrong report (3)"
    )


def test_an_old_run_can_be_rejudged(cli, tmp_path):
    assert "of 11 results judged again" in cli(1, "judge", OLD, "--out", tmp_path / "judged").out
    headline = (
        "5 defects in 4 cases: 1 kernel crash (1), 1 memory safety (1), 1 not refused (1), 1 valid refused (2), "
        "1 wrong report (1)"
    )
    assert read(tmp_path / "judged").summary.headline == headline
    old, judged = (read_written(run).results for run in (OLD, tmp_path / "judged"))
    assert [record["observed"] for record in judged] == [record["observed"] for record in old]


@pytest.mark.parametrize(
    "id_, expected",
    [("ADV-01", "Last verdict: FAIL"), (SWEEP, "32 of 96 points: those with !LOCAL_WRITE")],
)
def test_a_rule_and_a_case_of_it_are_explained(id_, expected, cli):
    assert expected in cli(0, "explain", id_, "--run", OLD).out


def test_an_old_run_can_be_resumed(tmp_path):
    copy = shutil.copytree(OLD, tmp_path / "old")
    path = copy / "results.jsonl"
    before = path.read_bytes()
    footer = before.splitlines(keepends=True)[-1]
    ids = [record["case"] for record in read_written(copy).results]

    def no_worker(cases: Sequence[str]) -> Worker:
        raise AssertionError(f"every case has a result, yet {cases} are started")

    with closing(ResultsFile(path, carry_on=True)) as results:
        prior = results.cut_back(results.recorded())
        assert prior is not None
        assert prior.seconds == json.loads(footer)["duration_s"]
        cases = [case for case in SUITE.cases if case.id in ids]
        recording = Recording(
            StagedRun(RunOptions(), SUITE, cases, facts={}),
            results,
            Audience(),
            prior,
        )
        Supervisor(recording, copy / "console.log").run(no_worker)
    assert path.read_bytes().startswith(before.removesuffix(footer))
    recorded = read_written(copy)
    assert footer_of(recorded)["complete"] is True
    assert footer_of(recorded)["verdicts"] == {
        "FAIL": 3,
        "PASS": 4,
        "UNREACHABLE": 1,
        "UNSUPPORTED": 2,
        "CRASH": 1,
    }


# Damage


FILES = int(os.environ.get("RDMA_CTS_FUZZED", "60"))
SEED = 19
# Replacements for a value.
STRANGE = [
    *json.loads(
        """[null, true, 0, -1, 7, 9223372036854775808, 1.5, -1.0, "", "x", "PASS", "WAIVED", "GREAT", "0x0", "\\n", [],
        [1], ["x"], [[]], [null], {}, {"a": 1}, {"": {}}, {"subsets": ["A"]}, "../../etc/passwd", "2026-01-01"]""",
    ),
    *("\x1b[2J\u202e", "\ud800", "a" * 3000),
]
# Replacements for a value's text; no reader can handle the first three.
RAW = [
    *(b"1e999", b"1" + b"0" * 400, b"[" * 100_000),
    *(b'{"a":' * 5000, b"9" * 5000, b"[" * 60 + b"]" * 60, b"\xff", b"\x00", b""),
    *rb'-1e999 NaN Infinity 18446744073709551616 -0 1E400 "\ud800" " tru'.split(),
]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the container and the key of each value in the data."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))
    for key, item in inner:
        yield data, key
        yield from places(item)


def change(data: Any, last: Any, dice: random.Random) -> None:
    """Replaces or removes one value, or copies it to another key."""
    match dice.randrange(6):
        case 0:
            del data[last]
        case 1 if isinstance(data, dict):
            data[dice.choice(("type", "case", "x", "\x1b", "observed"))] = data[last]
        case 2 if isinstance(data[last], (int, float)):
            data[last] = dice.choice((-data[last], data[last] + 1, data[last] * 1000, 1 << 40))
        case _:
            data[last] = dice.choice(STRANGE)


def damaged(lines: list[bytes], dice: random.Random) -> bytes:
    for _ in range(dice.choice((1, 1, 2, 5))):
        lines = [line for line in lines if line] or [b" "]
        number = dice.randrange(len(lines))
        lines[number : number + 1] = in_place_of(lines[number], lines, dice)
    return b"".join(lines)


def in_place_of(line: bytes, lines: list[bytes], dice: random.Random) -> list[bytes]:
    """Returns the lines that replace a line: no line, the line and another one, or the line with damage."""
    match dice.randrange(10):
        case 0:
            return []
        case 1:
            return [dice.choice(lines), line]
        case 2:
            data = bytearray(line)
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            return [bytes(data)]
        case 3:
            return [line[: dice.randrange(len(line))] + dice.choice((b"", b"\n"))]
        case 4 if values := list(re.finditer(rb":([^,}]*)", line)):
            start, end = dice.choice(values).span(1)
            return [line[:start] + dice.choice(RAW) + line[end:]]
    try:
        value = json.loads(line)
        change(*dice.choice(list(places(value))), dice)
        return [json.dumps(value).encode() + b"\n"]
    except (ValueError, IndexError, TypeError, RecursionError):
        return [line]


def read_in_every_way(folder: Path) -> None:
    """Reads a run as the commands do."""
    run = read(folder)
    for render in (renderer(name).render for name in FORMATS):
        report = render([run])
        assert b"\x1b" not in (
            report if isinstance(report, bytes) else report.encode(errors="replace")
        )
    assert all(line.isprintable() for line in terminal.summary(run, folder).split("\n"))
    compare(run, read(OLD))
    list(explanations.of_rule(SUITE, SUITE.registry["ADV-01"], run))
    coverage.cover_with_results(SUITE, folder)
    list(rejudge(SUITE, read_written(folder), folder))
    for record in read_written(folder).results:
        if record.get("points_file"):
            read_points(folder, record)


def read_to_resume(folder: Path) -> None:
    """Reads a run as `run --resume` does before a worker starts."""
    with closing(ResultsFile(folder / "results.jsonl", carry_on=True)) as file:
        file.cut_back(file.recorded())


def test_each_damaged_file_is_read_or_refused_in_one_line(tmp_path):
    dice = random.Random(SEED)
    folder = Path(shutil.copytree(OLD, tmp_path / "run"))
    lines = (OLD / "results.jsonl").read_bytes().splitlines(keepends=True)
    points = sorted((folder / "points").iterdir())
    good = [path.read_bytes() for path in points]
    refused: list[str] = []
    for number in range(FILES):
        # Every second file is cut short, so that it has no footer whose figures contradict the damage.
        data = damaged(lines[:-1] if number % 2 else lines, dice)
        (folder / "results.jsonl").write_bytes(data)
        for path, content in zip(points, good, strict=True):
            path.write_bytes(damaged([content], dice) if number % 3 == 0 else content)
        for reader in (read_in_every_way, read_to_resume):
            try:
                reader(folder)
            except UserError as error:
                refused.append(str(error))
            except Exception as error:
                (tmp_path / "culprit").write_bytes(data)
                raise AssertionError(
                    f"file {number} of seed {SEED}, kept as {tmp_path / 'culprit'}: {error!r}",
                ) from error
    assert [text for text in refused if len(text.splitlines()) != 1] == []
    assert 0 < len(refused) < 2 * FILES


COMMANDS = (
    "report",
    "compare OLD",
    "judge",
    "explain ADV-01 --run",
    "list coverage --run",
    "run --resume",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("raw", RAW[:3], ids=range(3))
def test_each_command_refuses_a_file_with_text_that_no_reader_can_handle(
    command, raw, tmp_path, cli
):
    folder = Path(shutil.copytree(OLD, tmp_path / "run"))
    path = folder / "results.jsonl"
    path.write_bytes(
        path.read_bytes().replace(b'"duration_us":', b'"duration_us":' + raw + b',"x":', 1),
    )
    (line,) = cli(2, *command.replace("OLD", str(OLD)).split(), folder).err.splitlines()
    assert line.startswith(f"rdma-cts: {path}:3: not a line of") or command == "run --resume"


READERS = (*(f"report --out - --format {name}" for name in FORMATS), *COMMANDS[1:-1])
# The maximum number of function calls, including calls of builtins, for each case that was only planned. For 300,000
# cases, this many calls take less than 10 s.
MOST_CALLS = 100


def planned_run(folder: Path, number: int) -> str:
    """Makes a run of the old results, and of `number` more planned cases that have no record."""
    header, *rest, footer = lines_of(OLD)
    planned = {"planned": [f"reg_mr/made/up-{index}" for index in range(number)]}
    return str(written_records([header | planned, *rest, footer | {"complete": False}], folder))


@pytest.mark.parametrize("command", READERS)
def test_no_command_is_slow_because_of_cases_that_were_only_planned(command, tmp_path):
    few, large = (planned_run(tmp_path / str(number), number) for number in (1000, 3000))
    words = command.replace("OLD", str(OLD)).split()
    assert main([*words, few]) != 2  # this call fills the cache for the next call
    calls = calls_of(lambda: main([*words, large])) - calls_of(lambda: main([*words, few]))
    assert calls / 2000 < MOST_CALLS
