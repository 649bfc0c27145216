"""Runs in a guest that stands for a host with a device; prints one line of JSON for test_host_device.py. Without an
argument it tests refused devices, a process that dies, and a process that hangs; an audit hook in each Python process
logs the files that are written and the addresses that are bound. With a number N it does the named PARTS: it tests
--isolate, a closed terminal, a clock that jumps, two devices that share the cases, and N kills of each process at random
moments."""

from __future__ import annotations

import importlib
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forked import Forked, run_forked
from patience import PATIENCE_S, await_true, command_lines, is_running

DEADLINE_S = "30"  # longer than any case takes, even on a slow machine
AUDIT = Path("/run/audit")
FREEZER = Path("/run/freezer")
HOOK = """
import fcntl, os, sys
_log = os.open("/run/audit/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def _hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and arguments[2] & _WRITES:
        caller, start = sys._getframe(1), os.getcwd()
        if caller.f_code.co_name == "opened_in":  # the event does not have the descriptor of the directory
            start = os.readlink(f"/proc/self/fd/{caller.f_locals['folder']}")
        told = os.path.normpath(os.path.join(start, os.fsdecode(arguments[0])))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link"):
        if isinstance(arguments[0], int):
            return
        folder = arguments[-1] if isinstance(arguments[-1], int) and arguments[-1] >= 0 else None
        start = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        told = os.path.normpath(os.path.join(start, os.fsdecode(arguments[0])))
    elif event.startswith("socket.") and event != "socket.__new__":
        told = f"{arguments[0].family!r} {arguments[1:]!r}" if hasattr(arguments[0], "family") else repr(arguments)
    elif event == "socket.__new__":
        told = f"{arguments[1]!r}"
    else:
        return
    os.write(_log, f"{event} {told}\\n".encode())
sys.addaudithook(_hook)
"""
# A sitecustomize for the process under test. It tries, without harm, how a library could attack the supervisor.
PROBE = """
import json, os, sys
from pathlib import Path
if "--rdma-stream" in sys.orig_argv:
    def can(do):
        try:
            do()
        except OSError as error:
            return error.strerror
        return "can"
    judge = os.getppid()
    told = {"results": [can(lambda: path.open("a").close()) for path in Path().glob("*/results.jsonl")],
            "reports": [can(lambda: (path / "planted").touch()) for path in Path().glob("user-*")],
            "suite": can(lambda: open("commands/run.py", "a").close()),
            "memory": can(lambda: open(f"/proc/{judge}/mem", "r+b").close()),
            "end": can(lambda: os.kill(judge, 0))}
    print("PROBE", json.dumps(told), flush=True)
"""
HOLDER = """
import signal, sys
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPCap, QPInitAttr
context = Context(name="rxe0")
pd, cq = PD(context), CQ(context, 4)
qp = QP(pd, QPInitAttr(qp_type=2, scq=cq, rcq=cq, cap=QPCap(max_recv_wr=1)))
print("ready", flush=True)
signal.pause()
"""
SAME = ("complete", "verdicts", "rules", "rule_totals", "points")


CHOSEN = ("--verb", "dealloc_mw", "-q")


def command(*arguments: str) -> list[str]:
    return ["./rdma-cts", "run", *arguments]


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return {"status": done.returncode, "said": (done.stdout + done.stderr)[-600:]}


def lines(out: str) -> list[dict[str, Any]]:
    path = Path(out) / "results.jsonl"
    if path.exists():
        lines_read = path.read_bytes().split(b"\n")[:-1]
    else:
        lines_read = []
    return [json.loads(line) for line in lines_read]


def footer(out: str) -> dict[str, Any]:
    footers = [line for line in lines(out) if line["type"] == "footer"]
    if footers:
        return {key: footers[-1][key] for key in SAME}
    return {}


def verdicts(out: str) -> dict[str, str]:
    lines_by_row = {
        line["case"].rpartition("/")[2]: line for line in lines(out) if line["type"] == "result"
    }
    return {case: f"{line['verdict']} {line['reason']}" for case, line in lines_by_row.items()}


def processes(word: str) -> list[int]:
    return [pid for pid, words in command_lines().items() if word in words]


def await_rarely(condition: Any) -> None:
    """Like await_true, but with fewer checks, because each check reads all of /proc."""
    await_true(condition, poll_s=0.1)


@contextmanager
def held() -> Iterator[None]:
    """Runs another process that has a queue pair on the device."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.kill()


def in_use() -> dict[str, Any]:
    """Starts a run on a device that another process uses, and a run on a device that does not exist."""
    with held():
        refused = run_forked("--cases", "bad", "-k", "bad/", "--out", "refused")
    facts = {"refused": refused, "left": Path("refused/results.jsonl").exists()}
    return {**facts, "missing": run_forked("--cases", "bad", "--device", "rxe9")}


def unbroken() -> float:
    """Makes an undisturbed run; returns its duration in seconds."""
    began = time.monotonic()
    done = run(*CHOSEN, "--out", "unbroken")
    if not footer("unbroken"):
        raise RuntimeError(done["said"])
    return time.monotonic() - began


def stuck() -> dict[str, Any]:
    """Freezes the control group of a process whose case hangs, so that nothing can kill the process. Then thaws the
    group and resumes the run, in which the case `dies` ends its process."""
    AUDIT.mkdir()
    (AUDIT / "sitecustomize.py").write_text(HOOK)
    FREEZER.mkdir()
    subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "freezer", FREEZER], check=True)
    (FREEZER / "ice").mkdir()
    # On a host, runs share no derived files. Here runs share them, so that the tables are read only once.
    environment = {
        "PYTHONPATH": str(AUDIT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RDMA_CTS_DERIVED": str(AUDIT / "derived"),
    }

    def audited() -> None:
        os.environ.update(environment)
        sys.dont_write_bytecode = True
        importlib.import_module("sitecustomize")

    sys.path.insert(0, str(AUDIT))
    sys.modules.pop("sitecustomize", None)
    begun = Forked(
        "--cases",
        "bad",
        "-k",
        "bad/",
        "--deadline",
        DEADLINE_S,
        "--out",
        "stuck",
        "-q",
        before=audited,
    )
    await_rarely(
        lambda: any(
            line["type"] == "start" and line["case"].endswith("/hangs") for line in lines("stuck")
        ),
    )
    (pid,) = processes("--rdma-stream") or [0]
    (FREEZER / "ice/cgroup.procs").write_text(str(pid))
    (FREEZER / "ice/freezer.state").write_text("FROZEN")
    facts = {**begun.wait(), "verdicts": verdicts("stuck"), "footer": footer("stuck")}
    (FREEZER / "ice/freezer.state").write_text("THAWED")
    await_rarely(lambda: not is_running(pid))
    last = Forked("--resume", "stuck", "-q", before=audited).wait()
    audit = sorted(set((AUDIT / "log").read_text(errors="replace").splitlines()))
    facts["at last"] = {**last, "verdicts": verdicts("stuck"), "footer": footer("stuck")}
    return {**facts, "audit": audit, "out": str(Path("stuck").absolute())}


def isolated() -> dict[str, Any]:
    """Runs the same cases as this user and as another user, with PROBE in each process under test."""
    AUDIT.mkdir()
    (AUDIT / "sitecustomize.py").write_text(PROBE)
    os.environ["PYTHONPATH"] = f"{AUDIT}:{os.environ['PYTHONPATH']}"
    facts: dict[str, Any] = {}
    for name, options in (("own", ()), ("other", ("--isolate", "nobody"))):
        out = f"user-{name}"
        facts[name] = run(*CHOSEN, *options, "--out", out)
        console = Path(out, "console.log").read_text(errors="replace")
        probes = [
            json.loads(line.removeprefix("PROBE "))
            for line in console.splitlines()
            if line.startswith("PROBE ")
        ]
        results = [line for line in lines(out) if line["type"] == "result"]
        facts[name] |= {
            "footer": footer(out),
            "could": probes,
            "user": next(iter(lines(out)), {}).get("isolated"),
        }
        facts[name]["log"] = bool(results) and all("log" in line["kernel"] for line in results)
    (AUDIT / "sitecustomize.py").unlink()
    return facts


def closed() -> dict[str, Any]:
    """Closes the terminal of a run. Before that, the process under test is stopped, so that the run cannot finish."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv("./rdma-cts", command(*CHOSEN, "--out", "closed"))
    await_rarely(lambda: any(line["type"] == "result" for line in lines("closed")))
    (worker,) = processes("--rdma-stream")
    os.kill(worker, signal.SIGSTOP)
    os.close(terminal)  # the kernel sends SIGHUP, and a shell would send it a second time
    os.kill(pid, signal.SIGHUP)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    files_left = sorted(path.name for path in Path("closed").iterdir())
    facts = {
        "status": status,
        "left": files_left,
        "processes": processes("--rdma-stream"),
        "cut": footer("closed"),
    }
    run("--resume", "closed", "-q")
    return {**facts, "footer": footer("closed")}


def jumped(hours: int) -> dict[str, Any]:
    """Makes a run after whose first result the clock of the host jumps by so many hours."""
    out = f"jump{hours}"
    with subprocess.Popen(command(*CHOSEN, "--out", out), stdout=subprocess.DEVNULL) as begun:
        await_rarely(lambda: any(line["type"] == "result" for line in lines(out)))
        running = begun.poll() is None
        time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600 * hours)
        begun.wait(PATIENCE_S)
    (duration,) = (line["duration_s"] for line in lines(out) if line["type"] == "footer")
    return {"running": running, "footer": footer(out), "duration": duration}


def shared() -> dict[str, Any]:
    """Makes a run in which two devices of one kind share the cases, while another process uses the first device."""
    for words in (
        "ip link add h1 type veth peer name p1",
        "ip address add 192.0.2.9/24 dev h1",
        "ip link set h1 up",
        "ip link set p1 up",
        "rdma link add rxe1 type rxe netdev h1",
    ):
        subprocess.run(words.split(), check=True)
    await_rarely(lambda: "ACTIVE" in Path("/sys/class/infiniband/rxe1/ports/1/state").read_text())
    # A worker runs the second case in isolation, so that each device gets a batch.
    chosen = (
        "--only",
        "dealloc_mw/deallocation/bound-type-1",
        "--only",
        "bind_mw/type_1/queue-pair-ud",
    )
    options = (*chosen, "-q", "--no-confirm", "--shared", "--profile", "ci/rxe/profile.yaml")
    done = run_forked(*options, "--device", "rxe0,rxe1", "--out", "shared-by-two")
    unknown = run_forked(*options, "--device", "rxe0,rxe7", "--out", "unknown")
    results = [line for line in lines("shared-by-two") if line["type"] == "result"]
    facts: dict[str, Any] = {"done": done, "unknown": unknown, "footer": footer("shared-by-two")}
    facts["devices"] = sorted({line["device"] for line in results})
    facts["repro"] = all(f"--device {line['device']} " in line["repro"] for line in results)
    facts["other cases"] = len({line["case"] for line in results}) == len(results) > 0
    subprocess.run(["rdma", "link", "delete", "rxe1"], check=True)
    return facts


def killed(who: str, moments: int, took: float) -> list[dict[str, Any]]:
    """Makes runs, and kills each at a random moment: the "supervisor", or the process under test, "pytest"."""
    facts = []
    dice = random.Random(7)
    for number in range(moments):
        moment = dice.uniform(0.0, took)
        while not (outcome := killed_after(moment, who, f"killed-{who}-{number}")):
            moment /= 2  # the run had ended: it was faster than the first
        facts.append(outcome)
        print("MOMENT", round(moment, 2), json.dumps(outcome), flush=True)
    return facts


def killed_after(moment: float, who: str, out: str) -> dict[str, Any]:
    """Makes a run, kills it at this moment, and resumes it; returns nothing if the run had ended before."""
    shutil.rmtree(out, ignore_errors=True)
    with subprocess.Popen(command(*CHOSEN, "--out", out), stdout=subprocess.DEVNULL) as begun:
        time.sleep(moment)
        victims = [begun.pid]
        if who == "pytest":
            await_rarely(lambda: processes("--rdma-stream") or begun.poll() is not None)
            victims = processes("--rdma-stream")
        if begun.poll() is not None:
            return {}
        for pid in victims:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        status = begun.wait(PATIENCE_S)
    # a process under test exits shortly after the supervisor
    await_rarely(lambda: not processes("--rdma-stream"))
    sessions = 0
    while not footer(out).get("complete") and sessions < 3:
        sessions += 1
        if Path(out, "plan.json").exists():
            run("--resume", out, "-q")
        else:
            run(*CHOSEN, "--out", out)
    same = footer(out) == footer("unbroken")
    return {"victims": len(victims), "status": status, "sessions": sessions, "same": same}


def shared_while_in_use() -> dict[str, Any]:
    with held():
        return shared()


# What the script does, by its name; `moments` is the number of kills, and `took` the seconds of an undisturbed run.
PARTS: dict[str, Callable[[int, float], Any]] = {
    "isolated": lambda moments, took: isolated(),
    "closed": lambda moments, took: closed(),
    "jumps": lambda moments, took: [jumped(hours) for hours in (-1, 1)],
    "shared": lambda moments, took: shared_while_in_use(),
    "supervisor": lambda moments, took: killed("supervisor", moments, took),
    "pytest": lambda moments, took: killed("pytest", moments, took),
}


def tell() -> None:
    """Does what the command line names, and prints the results."""
    facts: dict[str, Any]
    if sys.argv[1:]:
        moments, took = int(sys.argv[1]), unbroken()
        facts = {"footer": footer("unbroken")}
        for part in sys.argv[2:]:
            facts[part] = PARTS[part](moments, took)
    else:
        facts = {"in use": in_use(), "stuck": stuck()}
    print("RESULT", json.dumps(facts), flush=True)


if __name__ == "__main__":
    tell()
