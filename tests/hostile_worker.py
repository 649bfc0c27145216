"""Stands in for QEMU and a guest whose code under test is hostile. `hostile_worker.py LINES WHAT` uses the protocol of
the guest's virtio port on its standard input and output. LINES is a JSON file with the lines of an honest worker: the
header, and a result for each case. WHAT names the attack in the second case: a key of CHANGES, TEXTS or SAID."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

HUGE = 100 << 20
DEEP = 100_000


def say(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def line_of(record: Mapping[str, object], mark: bytes = b"") -> bytes:
    return mark + json.dumps(record).encode() + b"\n"


class Worker:
    """The worker in the guest. `case` is the running case, and `good` is the honest result of this case."""

    def __init__(self, lines: str) -> None:
        with open(lines, encoding="ascii") as file:
            facts = json.load(file)
        self.header: dict[str, Any] = facts["header"]
        self.results: dict[str, dict[str, Any]] = facts["results"]
        self.console: str = facts["console"]
        say(b'{"type":"guest","event":"up","uptime_s":0}\n')
        request = json.loads(sys.stdin.buffer.readline())["request"]
        say(b'{"type":"guest","event":"resumed"}\n')
        self.cases: list[str] = request["files"]["only"].split()
        self.mark: bytes = request["files"]["mark"].encode()
        self.case = ""

    def tell(self, *records: dict[str, Any]) -> None:
        say(b"".join(line_of(record, self.mark + b" ") for record in records))

    def line(self, text: bytes) -> None:
        """Sends any text after the mark of the harness's lines."""
        say(self.mark + b" " + text + b"\n")

    @property
    def good(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.results[self.case]))  # type: ignore[no-any-return]

    def result(self, **changes: Any) -> None:
        self.tell(self.good | changes)

    def with_text(self, key: str, text: str) -> None:
        """Sends the honest result, in which this JSON text replaces the value of a key."""
        line = json.dumps(self.good | {key: "HERE"})
        self.line(line.replace('"HERE"', text).encode("utf-8", "surrogatepass"))

    def begin(self, case: str) -> None:
        self.case = case
        self.tell({"type": "start", "case": case})

    def run(self, what: Callable[[Worker], object]) -> None:
        self.tell(self.header)
        for number, case in enumerate(self.cases):
            self.begin(case)
            if number == 1:
                what(self)
            else:
                self.result()
        say(b'{"type":"guest","event":"exit","status":0}\n')


# For each attack, the changed keys of the honest result.
with open(
    __file__.replace("hostile_worker.py", "hostile_changes.json"),
    encoding="ascii",
) as _changes:
    CHANGES: dict[str, dict[str, Any]] = json.load(_changes)
CHANGES["a_huge_log"] = {
    "kernel": {"taint": 0, "log": ["a line of the kernel " + "x" * 5000] * 5000},
}
# For each attack, a key of the honest result and the JSON text that replaces its value.
TEXTS: Mapping[str, tuple[str, str]] = {
    "infinite_number": ("duration_us", "1e999"),
    "number_of_400_digits": ("duration_us", "1" + "0" * 400),
    "number_of_10000_digits": ("duration_us", "9" * 10_000),
    "not_a_number": ("duration_us", "NaN"),
    "nested_lists": ("observed", "[" * DEEP + "]" * DEEP),
    "nested_objects": ("observed", '{"a":' * DEEP + "1" + "}" * DEEP),
    "nested_observations": ("observed", '{"afterwards":[' * 500 + "{}" + "]}" * 500),
}


def leave(data: bytes = b"") -> None:
    say(data)
    os._exit(0)


def stall(data: bytes = b"", times: int = 1) -> None:
    """Sends these bytes `times` times, and then sleeps."""
    for _ in range(times):
        say(data)
    time.sleep(60)


def for_ever(send: Callable[[], object], pause_s: float = 0.0) -> None:
    while True:
        send()
        time.sleep(pause_s)


def forged(worker: Worker, mark: bytes) -> bytes:
    """Returns a result for every case, each after `mark`."""
    return b"".join(line_of(line, mark) for line in worker.results.values())


def forged_session(worker: Worker) -> bytes:
    records = [[{"type": "start", "case": case}, line] for case, line in worker.results.items()]
    return b"".join(map(line_of, [worker.header, *itertools.chain.from_iterable(records)]))


def ended(status: int) -> bytes:
    return line_of({"type": "guest", "event": "exit", "status": status})


def print_on_the_console(worker: Worker) -> None:
    with open(worker.console, "ab") as console:
        for_ever(lambda: console.write(b"the driver is chatty\n" * 50_000))


REFUSED = {"verdict": "FAIL", "effective": "FAIL"}


SAID: Mapping[str, Callable[[Worker], object]] = {
    # Attacks of a library that has the port's descriptor but not the mark
    "forge_a_whole_session": lambda it: leave(forged_session(it)),
    "forge_every_result_and_exit": lambda it: leave(forged(it, b"")),
    "forge_with_a_guessed_mark": lambda it: leave(forged(it, b"0" * len(it.mark) + b" ")),
    "forge_with_a_piece_of_the_mark": lambda it: leave(forged(it, it.mark[:-1] + b" ")),
    "forge_the_footer": lambda it: leave(
        b'{"type":"footer","complete":true,"verdicts":{"PASS":4},"rules":{"REG-01":"PASS"}}\n',
    ),
    "forge_the_end_of_the_session": lambda it: stall(ended(0)),
    "forge_an_external_kill": lambda it: stall(ended(137)),
    "forge_a_refusal": lambda it: leave(
        line_of({"type": "guest", "event": "broken", "reason": "forged"}),
    ),
    "write_into_a_line_of_the_harness": lambda it: say(
        it.mark
        + b' {"type":"result","case":'
        + b"x" * 100
        + b"\n"
        + line_of(it.good, it.mark + b" "),
    ),
    # Attacks of a library that also knows the mark
    "pass_with_objects_left_behind": lambda it: it.result(
        observed={**it.good["observed"], "left_behind": ["1 MR"]},
    ),
    "continue_without_a_result": lambda it: None,
    "results_of_all_other_cases": lambda it: leave(
        b"".join(
            line_of(line, it.mark + b" ") for case, line in it.results.items() if case != it.case
        ),
    ),
    "two_results_of_the_case": lambda it: it.tell(it.good, it.good | REFUSED),
    "a_second_result_of_an_earlier_case": lambda it: it.tell(
        {"type": "start", "case": it.cases[0]},
        it.results[it.cases[0]] | REFUSED,
        it.good,
    ),
    "begin_a_case_that_is_not_planned": lambda it: it.tell(
        {"type": "start", "case": "reg_mr/no/such"},
        it.good | {"case": "reg_mr/no/such"},
        it.good,
    ),
    "send_another_header": lambda it: it.tell(
        {**it.header, "device": {"name": "other"}, "schema": "rdma-cts/9"},
        it.good,
    ),
    "withdraw_what_is_offered": lambda it: it.tell(
        {"type": "offered", "offered": {"libibverbs": {"reg_mr": False}}, "absent": {}},
        it.good,
    ),
    # Lines that are not records, or records of another shape
    "wrong_type_of_the_case": lambda it: it.result(case=[it.case]),
    "a_record_without_keys": lambda it: it.line(b"{}"),
    "half_a_line": lambda it: it.line(json.dumps(it.good).encode()[:-40]),
    "bytes_that_are_not_utf8": lambda it: it.line(b'{"type":"result","case":"\xff\xfe"}'),
    "zeros": lambda it: it.line(b"\0" * 1000),
    "a_huge_observation": lambda it: it.result(
        observed={**it.good["observed"], "errno": "E" * (1 << 20)},
    ),
    "a_line_that_is_too_long": lambda it: it.line(
        b'{"type":"result","reason":"' + b"x" * HUGE + b'"}',
    ),
    # Workers that send without end
    "a_hundred_megabytes_without_a_newline": lambda it: stall(b"x" * (1 << 20), HUGE >> 20),
    "print_on_the_console_for_ever": print_on_the_console,
    "print_one_letter_for_ever": lambda it: for_ever(lambda: say(b"x" * 4096)),
    "print_lines_for_ever": lambda it: for_ever(lambda: say(b"x\n" * 2048)),
    "print_marked_lines_for_ever": lambda it: for_ever(lambda: it.tell({"type": "busy"})),
    "one_letter_at_a_time": lambda it: for_ever(lambda: say(b"x"), 0.01),
    "the_same_progress_for_ever": lambda it: for_ever(
        lambda: it.tell({"type": "progress", "case": it.case, "point": "x", "done": 1}),
    ),
    "progress_of_another_case": lambda it: for_ever(
        lambda: it.tell(
            {"type": "progress", "case": it.cases[0], "point": "x", "done": time.monotonic_ns()},
        ),
    ),
    "send_nothing": lambda it: stall(),
    # Workers that exit or are killed
    "exit_at_once": lambda it: leave(),
    "exit_between_cases": lambda it: leave(line_of(it.good, it.mark + b" ")),
    "exit_after_half_a_line": lambda it: leave(it.mark + b" " + json.dumps(it.good).encode()),
    "abort": lambda it: stall(ended(134)),
    "be_killed": lambda it: os.kill(os.getpid(), signal.SIGKILL),
    "honest": lambda it: it.result(),
}


def main(lines: str, what: str) -> None:
    worker = Worker(lines)
    if what in CHANGES:
        worker.run(lambda worker: worker.result(**CHANGES[what]))
    elif what in TEXTS:
        worker.run(lambda worker: worker.with_text(*TEXTS[what]))
    else:
        worker.run(SAID[what])


if __name__ == "__main__":
    main(*sys.argv[1:])
