"""Stands in for QEMU, with a guest whose code under test is hostile. A helper of tests.

    python3 hostile_worker.py LINES WHAT

The program speaks the port's protocol on its standard input and output: it reports that the guest is up, waits for a
request, and answers. LINES is a file with the lines of an honest worker: its header, and a result for each case. WHAT
is the attack in the second case: a key of CHANGES or TEXTS, or the name of a function below. The functions get the
worker as argument, and return or end the process.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

HUGE = 100 << 20
DEEP = 100_000


def say(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


class Worker:
    """The guest's side of the port. `case` is the case in flight, and `good` the honest line for this case."""

    def __init__(self, lines: str) -> None:
        with open(lines, encoding="ascii") as file:
            known = json.load(file)
        self.header: dict[str, Any] = known["header"]
        self.results: dict[str, dict[str, Any]] = known["results"]
        self.console: str = known["console"]
        say(b'{"type":"guest","event":"up","uptime_s":0}\n')
        request = json.loads(sys.stdin.buffer.readline())["request"]
        say(b'{"type":"guest","event":"resumed"}\n')
        self.cases: list[str] = request["files"]["only"].split()
        self.mark: bytes = request["files"]["mark"].encode()
        self.case = ""

    def tell(self, record: dict[str, Any]) -> None:
        """Sends a line of the harness."""
        self.line(json.dumps(record).encode())

    def line(self, text: bytes) -> None:
        """Sends any text, marked as a line of the harness."""
        say(self.mark + b" " + text + b"\n")

    @property
    def good(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.results[self.case]))  # type: ignore[no-any-return]

    def result(self, **changes: Any) -> None:
        """Sends the result of the case in flight with these changes."""
        self.tell(self.good | changes)

    def with_text(self, key: str, text: str) -> None:
        """Sends the result of the case in flight with this JSON as the value of a key."""
        line = json.dumps(self.good | {key: "HERE"})
        self.line(line.replace('"HERE"', text).encode("utf-8", "surrogatepass"))

    def begin(self, case: str) -> None:
        self.case = case
        self.tell({"type": "start", "case": case})

    def run(self, what: Callable[[Worker], None]) -> None:
        self.tell(self.header)
        for number, case in enumerate(self.cases):
            self.begin(case)
            if number == 1:
                what(self)
            else:
                self.result()
        say(b'{"type":"guest","event":"exit","status":0}\n')


# The keys of a result that differ from those of an honest worker.
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "pass_what_fails": {"observed": {"rc": None, "returned": "NULL", "errno": "EINVAL"}},
    "fail_what_passes": {"verdict": "FAIL", "effective": "FAIL"},
    "pass_without_an_observation": {"observed": {}},
    "pass_what_was_not_reached": {"observed": {"unreachable": "no way"}},
    "pass_with_an_alarm": {"kernel": {"taint": 512, "taint_before": 0, "log": ["WARNING: bad"]}},
    "pass_an_observation_of_nothing": {"observed": {"seed": 1}},
    "say_other_rules_and_a_waiver": {
        "rules": ["REG-99"],
        "level": "may",
        "source": {"file": "x", "line": 1},
        "call": "x()",
        "layer": "none",
        "entry": "x",
        "effective": "WAIVED",
        "waiver": {"for": "REG-01", "owner": "me"},
    },
    "say_a_verdict_of_waivers": {"verdict": "WAIVED", "effective": "WAIVED"},
    "say_an_unknown_verdict": {"verdict": "GREAT"},
    "wrong_type_of_rules": {"rules": 7},
    "wrong_type_of_the_observation": {"observed": ["returned"]},
    "wrong_type_in_the_observation": {"observed": {"returned": "MR", "errno": "", "mr": {"addr": "0x0"}, "asked": []}},
    "wrong_type_of_the_log": {"kernel": {"log": "WARNING: in one text"}},
    "a_huge_log": {"kernel": {"taint": 0, "log": ["a line of the kernel " + "x" * 5000] * 5000}},
    "words_for_the_terminal": {
        "observed": {"rc": None, "returned": "\x1b[2J\x1b]0;owned\x07", "errno": "\u202e\ud800\n"},
        "verdict": "FAIL",
        "effective": "FAIL",
    },
}
# The JSON in place of the value of a key of the result.
TEXTS: Mapping[str, tuple[str, str]] = {
    "infinite_number": ("duration_us", "1e999"),
    "number_of_400_digits": ("duration_us", "1" + "0" * 400),
    "number_of_10000_digits": ("duration_us", "9" * 10_000),
    "not_a_number": ("duration_us", "NaN"),
    "nested_lists": ("observed", "[" * DEEP + "]" * DEEP),
    "nested_objects": ("observed", '{"a":' * DEEP + "1" + "}" * DEEP),
    "nested_observations": ("observed", '{"afterwards":[' * 500 + "{}" + "]}" * 500),
}


# Attacks of a library that has the descriptor but not the mark


def forge_every_result_and_exit(worker: Worker) -> None:
    for line in worker.results.values():
        say(json.dumps(line).encode() + b"\n")
    os._exit(0)


def forge_a_whole_session(worker: Worker) -> None:
    say(json.dumps(worker.header).encode() + b"\n")
    for case, line in worker.results.items():
        say(json.dumps({"type": "start", "case": case}).encode() + b"\n" + json.dumps(line).encode() + b"\n")
    os._exit(0)


def forge_with_a_guessed_mark(worker: Worker) -> None:
    for line in worker.results.values():
        say(b"0" * len(worker.mark) + b" " + json.dumps(line).encode() + b"\n")
    os._exit(0)


def forge_with_a_piece_of_the_mark(worker: Worker) -> None:
    for line in worker.results.values():
        say(worker.mark[:-1] + b" " + json.dumps(line).encode() + b"\n")
    os._exit(0)


def forge_the_footer(worker: Worker) -> None:
    say(b'{"type":"footer","complete":true,"verdicts":{"PASS":4},"rules":{"REG-01":"PASS"}}\n')
    os._exit(0)


def forge_the_end_of_the_session(worker: Worker) -> None:
    say(b'{"type":"guest","event":"exit","status":0}\n')
    time.sleep(60)


def forge_a_kill_from_outside(worker: Worker) -> None:
    say(b'{"type":"guest","event":"exit","status":137}\n')
    time.sleep(60)


def forge_a_refusal(worker: Worker) -> None:
    say(b'{"type":"guest","event":"broken","reason":"forged"}\n')
    os._exit(0)


def write_into_a_line_of_the_harness(worker: Worker) -> None:
    say(worker.mark + b' {"type":"result","case":')
    say(b"x" * 100 + b"\n")
    worker.result()


# Attacks of a library that has also found the mark


def answer_every_case_at_once(worker: Worker) -> None:
    for case, line in worker.results.items():
        if case != worker.case:
            worker.tell(line)
    os._exit(0)


def pass_what_left_something_behind(worker: Worker) -> None:
    worker.result(observed={**worker.good["observed"], "left_behind": ["1 MR"]})


def answer_twice(worker: Worker) -> None:
    worker.result()
    worker.result(verdict="FAIL", effective="FAIL")


def answer_a_case_that_is_done(worker: Worker) -> None:
    worker.tell({"type": "start", "case": worker.cases[0]})
    worker.tell({**worker.results[worker.cases[0]], "verdict": "FAIL", "effective": "FAIL"})
    worker.result()


def begin_a_case_that_is_not_planned(worker: Worker) -> None:
    worker.tell({"type": "start", "case": "reg_mr/no/such"})
    worker.result(case="reg_mr/no/such")
    worker.result()


def go_on_without_a_result(worker: Worker) -> None:
    return


def send_another_header(worker: Worker) -> None:
    worker.tell({**worker.header, "device": {"name": "other"}, "schema": "rdma-cts/9"})
    worker.result()


def withdraw_what_is_offered(worker: Worker) -> None:
    worker.tell({"type": "offered", "offered": {"libibverbs": {"reg_mr": False}}, "absent": {}})
    worker.result()


# Lines that are not records, or records of another shape


def wrong_type_of_the_case(worker: Worker) -> None:
    worker.result(case=[worker.case])


def nothing_at_all(worker: Worker) -> None:
    worker.line(b"{}")


def half_a_line(worker: Worker) -> None:
    worker.line(json.dumps(worker.good).encode()[:-40])


def bytes_that_are_no_text(worker: Worker) -> None:
    worker.line(b'{"type":"result","case":"\xff\xfe"}')


def zeros(worker: Worker) -> None:
    worker.line(b"\0" * 1000)


def a_huge_observation(worker: Worker) -> None:
    worker.result(observed={**worker.good["observed"], "errno": "E" * (1 << 20)})


def a_line_that_is_too_long(worker: Worker) -> None:
    say(worker.mark + b' {"type":"result","reason":"')
    for _ in range(HUGE >> 20):
        say(b"x" * (1 << 20))
    say(b'"}\n')


# Workers that send without end


def print_one_letter_for_ever(worker: Worker) -> None:
    while True:
        say(b"x" * 4096)


def print_lines_for_ever(worker: Worker) -> None:
    while True:
        say(b"x\n" * 2048)


def print_marked_lines_for_ever(worker: Worker) -> None:
    while True:
        worker.tell({"type": "busy"})


def a_hundred_megabytes_without_a_newline(worker: Worker) -> None:
    for _ in range(HUGE >> 20):
        say(b"x" * (1 << 20))
    time.sleep(60)


def one_letter_at_a_time(worker: Worker) -> None:
    while True:
        say(b"x")
        time.sleep(0.01)


def the_same_progress_for_ever(worker: Worker) -> None:
    while True:
        worker.tell({"type": "progress", "case": worker.case, "point": "x", "done": 1})


def progress_of_another_case(worker: Worker) -> None:
    for number in itertools.count():
        worker.tell({"type": "progress", "case": worker.cases[0], "point": "x", "done": number})


def say_nothing(worker: Worker) -> None:
    time.sleep(60)


def print_on_the_console_for_ever(worker: Worker) -> None:
    with open(worker.console, "ab") as console:
        while True:
            console.write(b"the driver is chatty\n" * 50_000)


# Ways of ending


def exit_at_once(worker: Worker) -> None:
    os._exit(0)


def exit_after_half_a_line(worker: Worker) -> None:
    say(worker.mark + b" " + json.dumps(worker.good).encode())
    os._exit(0)


def exit_between_cases(worker: Worker) -> None:
    worker.result()
    os._exit(0)


def abort(worker: Worker) -> None:
    say(b'{"type":"guest","event":"exit","status":134}\n')
    time.sleep(60)


def be_killed(worker: Worker) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def well(worker: Worker) -> None:
    worker.result()


def names() -> Iterator[str]:
    """The names of all attacks."""
    own = list(globals().items())
    first = next(number for number, (name, _) in enumerate(own) if name == "forge_every_result_and_exit")
    yield from (*CHANGES, *TEXTS)
    yield from (name for name, _ in own[first:] if name not in ("well", "names", "main"))


def main(lines: str, what: str) -> None:
    worker = Worker(lines)
    if what in CHANGES:
        worker.run(lambda worker: worker.result(**CHANGES[what]))
    elif what in TEXTS:
        worker.run(lambda worker: worker.with_text(*TEXTS[what]))
    else:
        worker.run(globals()[what])


if __name__ == "__main__":
    main(*sys.argv[1:])
