"""Prints a run on a terminal or in a log: the progress, with a bar on a terminal, and the summary at the end.
The summary is made only from records, so that an old results file can be summarised again. No library draws the bar,
because every command would then depend on this library."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from conformance.defects import Defect, Severity, families_of
from conformance.errors import PROGRAM, command, format_count
from conformance.judging import LEFT_EITHER, LEFT_ELSEWHERE, LEFT_OPEN, UNDECLARED
from conformance.model.preflight import format_findings
from conformance.model.printable import one_line
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import (
    EXCUSED,
    INCOMPLETE,
    NOT_TESTABLE,
    VERDICTS,
    VIOLATIONS,
    Verdict,
)
from conformance.results.records import PLAN_FILE
from reports import bisection
from reports.text import MOST_LINE, columns_of, doubtful_row, fitted, format_rules, wrapped

if TYPE_CHECKING:
    from reports.digest import Digest
    from reports.novelty import Novelty

_COLOURS: dict[str, str] = {
    Verdict.PASS: "32",
    **dict.fromkeys(VIOLATIONS, "31"),
    **dict.fromkeys(INCOMPLETE, "35"),
    **dict.fromkeys((*NOT_TESTABLE, *EXCUSED), "33"),
}
REPORT = "report.html"
_SEVERITY, _WAIVED = "31", "33"
_LABEL = max(len(severity.label) for severity in Severity)
_MOST_RULES = 3
_MOST_DOUBTS = 3  # the most rows of a user's own tables that are named below a defect
QUIET, NORMAL, VERBOSE = 0, 1, 2


def summary(
    run: Digest,
    out: Path,
    stream: TextIO | None = None,
    level: int = NORMAL,
    reported: bool = True,
    news: Novelty | None = None,
    status: int | None = None,
) -> str:
    """Returns the last lines of a run: a line for each defect, the figures, the path of the report, and the next
    command. With `level` VERBOSE the lines also have the reason and the command of each defect's first case. With QUIET
    the only line has the headline and the conclusion. The path of the report is shown only if the report was written
    (`reported`). With `news`, what is new against an earlier run comes first, by call. `status` is the exit status of
    the command, by default that of the run."""
    stream = stream or sys.stdout
    of_run = news or run.summary
    conclusion = f"{of_run.conclusion} (exit status {of_run.status if status is None else status})"
    if level == QUIET:
        parts = (news.sentence if news else "", run.summary.headline, conclusion)
        return "; ".join(filter(None, parts))
    lines = ["", *_defects(run, stream, level, news), *_undecided(run, stream), ""]
    lines.append(figures(run, lambda verdict: coloured(verdict, stream)))
    lines += filter(None, [run.summary.headline])
    if layers := run.violations.by_layer:
        numbers = ", ".join(f"{number:,} {layer}" for layer, number in layers.items())
        lines.append(f"defects by the layer that answered: {numbers}")
    lines.append(run.summary.short_sentence)
    if remarks := format_remarks(run.results):
        lines.append(remarks)
    if works := format_undeclared(run.results):
        lines.append(works)
    lines += run.violations.repetitions.summary()
    lines += [f"waiver: {problem}" for problem in run.summary.waiver_lines]
    if reported:
        where = f"report: {out / REPORT} (results: {out})"
    else:
        where = f"results: {out}"
    first = _first(run, news)
    last = (where, *_program(run, out, first, news), *_next(run, out, first, news))
    lines += [device_line(run.header), *map(one_line, last)]
    return "\n".join(
        [*(line if "\x1b" in line else fitted(line, stream) for line in lines), conclusion],
    )


def figures(run: Digest, shown: Callable[[str], str] = str) -> str:
    """Returns the numbers of cases, of judged calls and of verdicts, and the duration, in one line."""
    if run.footer and "duration_s" in run.footer:
        duration = f" in {run.footer['duration_s']:.1f} s"
    else:
        duration = ""
    if run.summary.points != len(run.results):
        points = f", {format_count(run.summary.points, 'call')} judged"
    else:
        points = ""
    verdicts = [verdict for verdict in reversed(VERDICTS) if run.summary.counts.get(verdict)]
    counts = ", ".join(
        f"{run.summary.counts[verdict]} {shown(verdict)}{_empty(run, verdict)}"
        for verdict in verdicts
    )
    return f"{format_count(len(run.results), 'case')}{duration}{points}: {counts}"


def _empty(run: Digest, verdict: str) -> str:
    if verdict == Verdict.PASS and run.summary.empty:
        return f" ({run.summary.empty} assert nothing)"
    return ""


def format_remarks(results: Iterable[ResultRecord]) -> str:
    """Returns the numbers of results by their remark: open outcomes, outcomes that other rows judge, and so on."""
    count = Counter(_remark_in(record["notes"]) for record in results if record["notes"])
    parts = [f"{count[kind]:,} {kind}" for kind in _REMARKS.values() if count[kind]]
    if parts:
        return f"{format_count(sum(count.values()), 'result')} with remarks: {', '.join(parts)}"
    return ""


def format_undeclared(results: Iterable[ResultRecord]) -> str:
    """Returns the capabilities that the device does not declare or offer, but with which a case passes; empty if there
    are none."""
    names = Counter(
        name
        for record in results
        if record["verdict"] == Verdict.PASS and _remark_in(record["notes"]) == _WORKS
        for name in record["observed"].get("lacking", ())
    )
    works = ", ".join(f"{name} ({format_count(count, 'case')})" for name, count in names.items())
    if works:
        return f"works here, not declared: {works}"
    return ""


def _remark_in(notes: Iterable[str]) -> str:
    for note in notes:
        for beginning, kind in _REMARKS.items():
            if beginning and note.startswith(beginning):
                return kind
    return _REMARKS[""]


_WORKS = "work although not declared"
# For the beginning of a remark, its kind; the last kind is that of all other remarks.
_REMARKS: Mapping[str, str] = {
    LEFT_OPEN: "left open by the documents",
    LEFT_EITHER: "with both outcomes permitted",
    LEFT_ELSEWHERE: "judged by other rows",
    UNDECLARED: _WORKS,
    "": "with another remark",
}


_DEFECTS = "most severe first: severity, number, what is wrong (rules), in how many cases"


def _defects(run: Digest, stream: TextIO, level: int, news: Novelty | None) -> Iterator[str]:
    defects: Sequence[Defect] = run.violations.defects
    if news:
        yield from _news(run, stream, level, news)
        defects = news.earlier
        if defects:
            yield f"not new against {news.name}:"
    elif defects and level == NORMAL:
        yield f"defects, {_DEFECTS}"
    first_of_stack = next((defect for defect in defects if defect.of_stack), None)
    for heading, members in families_of(defects, lambda defect: defect):
        if first_of_stack in members:
            yield "of the stack, on every device: answered by the kernel's core or libibverbs"
        yield from filter(None, [heading])
        for defect in members:
            yield from _defect(run, defect, defect.title, stream, level)


def _news(run: Digest, stream: TextIO, level: int, news: Novelty) -> Iterator[str]:
    yield news.sentence
    if level == NORMAL and run.violations.defects:
        yield f"defects, {_DEFECTS}"
    for kind, items in news.by_kind.items():
        yield f"{kind}:"
        for heading, members in families_of(items, lambda item: item.defect, news.beside(kind)):
            yield from filter(None, [heading])
            for item in members:
                yield from _defect(run, item.defect, item.title, stream, level)
    yield from news.hints()
    yield ""


def _defect(
    run: Digest,
    defect: Defect,
    title: str,
    stream: TextIO,
    level: int,
) -> Iterator[str]:
    if defect.waived:
        label = Verdict.WAIVED.value
    elif defect.unconfirmed:
        label = "unconfirmed"
    else:
        label = defect.severity.label
    if defect in run.violations.open_defects:
        colour = _SEVERITY
    else:
        colour = _WAIVED
    ends = f"({format_rules(defect.rules, _MOST_RULES)}) x{len(defect.cases)}"
    if defect.share:
        ends += f": {defect.share}"
    yield from _hanging(
        f"{label:<{_LABEL}} {defect.fingerprint} ", f"{title} {ends}", colour, stream
    )
    doubtful = {*map(doubtful_row, (symptom.record for symptom in defect.symptoms))} - {""}
    yield from (f"{'':<{_LABEL}} {doubt}" for doubt in sorted(doubtful)[:_MOST_DOUBTS])
    if level == VERBOSE:
        yield f"{'':<{_LABEL}} {defect.first.line}"
        yield f"{'':<{_LABEL}} {defect.first.repro}"


def _undecided(run: Digest, stream: TextIO) -> Iterator[str]:
    for rule, (verdict, text) in sorted(run.verdicts.undecided.items()):
        yield from _hanging(f"{verdict:<{_LABEL}} {rule} ", text, _COLOURS[verdict], stream)


def _hanging(head: str, text: str, colour: str, stream: TextIO) -> Iterator[str]:
    """Yields the coloured head with the text and, on a terminal, the rest of the text below it: the decisive words are
    often the last ones."""
    first, *further = [text[:MOST_LINE]]
    if stream.isatty():
        first, *further = wrapped(text[:MOST_LINE], columns_of(stream) - len(head))
    yield painted(head, colour, stream) + first
    yield from (f"{'':{len(head)}}{line}" for line in further)


def _first(run: Digest, news: Novelty | None) -> Defect | None:
    """Returns the defect that the last lines name: the first new one or, without one, the first open one."""
    first = news.first if news else None
    return first or next(iter(run.violations.open_defects), None)


def _program(run: Digest, out: Path, first: Defect | None, news: Novelty | None) -> Iterator[str]:
    """Yields the commands that report the first defect and repeat the failed cases."""
    if first:
        options = ("--others", news.name) if news else ()
        report = command("reproducer", _name(first, news), "--run", out, "--mail", *options)
        yield f"report it: {report} writes a text, with a C program if one can show the first defect"
        # `target` selects the stack of this run
        _, _, recorded = first.first.repro.partition(" ")
        target, only, _ = recorded.partition(" --only ")
        yield f"again: {PROGRAM} {target if only else 'run'} --failed {shlex.quote(str(out))} runs the failed cases"
        if news and (commands := news.comparison.defects.bisection(first)):
            yield bisection.line_of(commands)


def _name(defect: Defect, news: Novelty | None) -> str:
    """Returns the fingerprint or, if the earlier run has other cases of the defect, a case that passed there."""
    return news.comparison.defects.name_of(defect) if news else defect.fingerprint


def _next(run: Digest, out: Path, first: Defect | None, news: Novelty | None) -> Iterator[str]:
    """Yields the next command; none if a comparison is all that is left, and was made."""
    step = _step(run, out, first, news)
    if step or not news:
        compared = f"{command('compare', 'OLD', out)} shows what has changed since another run"
        yield f"next: {step or compared}"


def _step(run: Digest, out: Path, first: Defect | None, news: Novelty | None) -> str:
    """Returns what the run itself asks for; empty if it asks for nothing."""
    if run.footer is None or run.summary.counts.get(Verdict.MISSED):
        if run.header.get("shards"):
            return "run the missing shards, resume the interrupted shards, and merge all shards into another --out"
        if (out / PLAN_FILE).exists():
            return f"{command('run', '--resume', out)} runs the missing cases"
    if first:
        against = ("--against", news.name) if news else ()
        explain = command("explain", first.fingerprint, "--run", out, *against)
        return f"{explain} explains the first defect"
    if run.summary.status == 1:
        return "correct the waivers named above (see docs/waivers.md)"
    if run.summary.status == 3:
        return f"{PROGRAM} doctor shows what is missing on this host"
    return ""


def device_line(header: HeaderRecord) -> str:
    device, env = header["device"], header["env"]
    return one_line(
        f"{device.get('name', '?')} ({device.get('driver', '?')}), kernel {env.get('kernel', '?')}"
        f", rdma-core {env.get('rdma_core', '?')}, stack {header['stack']}",
    )


def can_redraw(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal on which a line can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(verdict: str, stream: TextIO) -> str:
    """Returns the verdict in its colour, if the stream is a terminal and NO_COLOR is not set."""
    return painted(verdict, _COLOURS.get(verdict, "0"), stream)


def painted(text: str, colour: str, stream: TextIO) -> str:
    """Returns the text in a colour (the number of ECMA-48), if the stream is a terminal and NO_COLOR is not set."""
    if not can_redraw(stream) or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


_EVERY = 50  # without a bar, a line is printed after this number of cases
_BAR, _LEAST_BAR = 24, 4  # the greatest and the least width of the bar
_RECENT = 64  # the speed is computed from this number of latest cases


class Progress:
    """Prints the progress of a run to `stream`. With `level` QUIET it prints nothing, with VERBOSE a line for each
    case. `is_known` tells whether an earlier run has the violation, too. Several threads may use an instance."""

    def __init__(
        self,
        stream: TextIO | None = None,
        level: int = NORMAL,
        clock: Callable[[], float] = time.monotonic,
        is_known: Callable[[ResultRecord], bool] = lambda record: False,
    ) -> None:
        self.stream = stream or sys.stdout
        self.level = level
        self.is_known = is_known
        self.clock = clock
        self.redraws = can_redraw(self.stream) and level > QUIET
        self._ticks: list[float] = [clock()]
        self._began = self._ticks[0]
        self._expected: Mapping[str, float] = {}
        self._done_s = self._left_s = 0.0  # expected durations of finished and of remaining cases
        self._lock = threading.RLock()
        self._unreachable: set[str] = set()  # reasons that were already shown

    def say(self, text: str) -> None:
        """Prints one line, unless the level is QUIET."""
        if self.level > QUIET:
            with self._lock:
                self.clear()
                print(fitted(one_line(text), self.stream), file=self.stream, flush=True)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Sets the expected duration of each remaining case in seconds. Only the proportions matter."""
        self._expected = seconds
        self._left_s = sum(seconds.values())
        self._began = self.clock()

    def run_started(self, header: HeaderRecord, total: int) -> None:
        """Prints the number of planned cases and the device when the header has been recorded."""
        self.say(f"{format_count(total, 'case')} on {device_line(header)}")
        for line in format_findings(header["device"].get("preflight", {})):
            self.say(f"  {line}")
        self._began = self.clock()
        self._ticks = [self._began]

    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        """Shows a recorded result if it is news (see _is_news) or the level is VERBOSE, and redraws the bar."""
        with self._lock:
            self._ticks = [*self._ticks[-_RECENT:], self.clock()]
            expected_s = self._expected.get(record["case"], 0.0)
            self._done_s += expected_s
            self._left_s -= expected_s
            if self.level == VERBOSE or self._is_news(record):
                self._show(record)
            if self.redraws:
                self.clear()
                print(self._bar(record, done, total), end="", file=self.stream, flush=True)
                if done == total:
                    self.clear()
            elif self.level == NORMAL and done % _EVERY == 0 and done < total:
                self.say(f"  {done} of {total}, {', '.join(self._pace(total - done))}")

    def _is_news(self, record: ResultRecord) -> bool:
        """Whether a result is neither PASS nor UNSUPPORTED nor MISSED. All cases are missed for one reason at the end, which
        the summary has. UNREACHABLE is news only if its reason is new."""
        if record["effective"] != Verdict.UNREACHABLE:
            return record["effective"] not in (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.MISSED)
        reason = record["reason"].partition(";")[0]
        is_repeated = reason in self._unreachable
        self._unreachable.add(reason)
        return not is_repeated

    def worker_restarted(self, reason: str) -> None:
        self.say(f"  starting a new worker: {reason}")

    def _show(self, record: ResultRecord) -> None:
        if self.level > QUIET:
            self.clear()
            verdict = record["effective"]
            shown = f"{verdict} (not new)" if self.is_known(record) else verdict
            line = fitted(
                f"  {shown} {one_line(record['case'])}: {one_line(record['reason'])}",
                self.stream,
            )
            print(
                line.replace(verdict, coloured(verdict, self.stream), 1),
                file=self.stream,
                flush=True,
            )

    def _bar(self, record: ResultRecord, done: int, total: int) -> str:
        """Returns the figures and the time left and, if they fit into a line, the bar, the speed and the case."""
        columns = columns_of(self.stream) - 1
        seconds_left, *pace = self._pace(total - done)
        figures = f"{done} of {total}, {seconds_left}"
        room = min(_BAR, columns - len(figures) - 3)
        full = room * done // max(total, 1)
        if room >= _LEAST_BAR:
            bar = f"{'#' * full}{'.' * (room - full)} "
        else:
            bar = ""
        line = f"  {bar}{figures}"
        more = f"{line}, {', '.join(pace)}"
        return (f"{more}  {one_line(record['case'])}" if len(more) <= columns else line)[:columns]

    def _pace(self, remaining: int) -> list[str]:
        """Returns the time left, by the expected durations if they are known, and the recent cases per second."""
        now, spent = self._ticks[-1], self._ticks[-1] - self._ticks[0]
        if spent <= 0:
            return ["just started"]
        rate = (len(self._ticks) - 1) / spent
        if self._done_s:
            seconds_left = self._left_s * (now - self._began) / self._done_s
        else:
            seconds_left = remaining / rate
        return [f"{_span(max(seconds_left, 0.0))} left", f"{rate:.3g} per second"]

    def clear(self) -> None:
        """Removes the bar, so that other output can be written on its line."""
        if self.redraws:
            print("\r\x1b[K", end="", file=self.stream)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    if minutes:
        return f"{minutes} min {rest:02} s"
    return f"{rest} s"
