"""Which requests the session that waits before its first case can serve, and what its parent learns of its end."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from fixtures.guest.ready import ReadySession
from fixtures.guest.request import Request, recorded_to

PORT = "/dev/port"
OPTIONS = ("--rdma-alone", "--rdma-device", "rxe0")
SERVED = Request((*recorded_to(PORT), *OPTIONS), files={"only": "reg_mr/a\nreg_mr/b#x=1\n"})


def session(line: bytes) -> ReadySession:
    output, tell = os.pipe()
    os.write(tell, line)
    os.close(tell)
    return ReadySession(1, output, 0)


READY = json.dumps(["reg_mr/a", "reg_mr/b", "reg_mr/c"]).encode() + b"\n"


def test_rows_sweeps_and_points_that_it_has_collected_are_served() -> None:
    assert session(READY).serves(SERVED, PORT, OPTIONS)


@pytest.mark.parametrize(
    "request_",
    [
        replace(SERVED, files={"only": "reg_mr/a\nreg_mr/d\n"}),
        replace(SERVED, files={"only": "reg_mr/b\nreg_mr/b#x=1\n"}),
        replace(SERVED, files={"only": "reg_mr/b#x=2\nreg_mr/b#x=1\n"}),
        replace(SERVED, arguments=(*SERVED.arguments, "--rdma-seed", "7")),
        replace(SERVED, arguments=(*recorded_to("/dev/other"), *OPTIONS)),
    ],
    ids=["a case that it lacks", "a sweep and its point", "two points of a sweep", "another option", "another port"],
)
def test_all_others_are_not(request_: Request) -> None:
    assert not session(READY).serves(request_, PORT, OPTIONS)


@pytest.mark.parametrize("line", [b"", READY[:-1]])
def test_a_session_that_has_ended_serves_nothing(line: bytes) -> None:
    assert not session(line).serves(SERVED, PORT, OPTIONS)


def test_it_is_handed_the_line_of_the_request() -> None:
    hear, ask = os.pipe()
    output, tell = os.pipe()
    os.close(tell)
    ReadySession(1, output, ask).go_on(b"line\n")
    assert os.read(hear, 100) == b"line\n"
