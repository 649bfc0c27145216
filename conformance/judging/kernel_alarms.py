"""Finds errors of the kernel in its log and taint mask: a warning, an oops, a report of KASAN, a crash; and reports of
AddressSanitizer about a library. A case with such an error fails, even if all its calls have the required results."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import KernelEvidence
from conformance.older_python import zip

# The texts by which a kernel reports its own errors.
_KERNEL_ALARMS = (
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection",
    "UBSAN:",
    "KASAN:",
    "refcount_t:",
    # The beginning of an oops on Arm, s390 and RISC-V, and of a failed assertion on all processors.
    "Unable to handle kernel",
    "Internal error:",
    "kernel BUG at",
    "Kernel panic",
)
# The line of an oops, which ends with its number: `Oops: 0004 ilc:2 [#1] SMP`, or on s390 also the name of the exception,
# such as `specification exception: 0006 ilc:3 [#1]`. This line exists on every processor, so no oops is overlooked.
_NUMBERED = re.compile(r": .*\[#\d+\]|Oops \[#\d+\]")
# Reports of the kernel's debugging tools: KASAN, UBSAN, checked reference counts, and lockdep. A report kills no task.
_REPORT = re.compile(
    r"(?:KASAN|UBSAN): [\w-]+|refcount_t: [^.]+|possible [\w ]+(?= detected)|inconsistent lock state"
    r"|suspicious RCU usage|sleeping function called from invalid context|scheduling while atomic",
)
# Functions of these tools and of locks, which occur in the call traces of reports, but are never the reported function.
_OF_TOOLS = re.compile(
    r"(?:dump_stack|print_|kasan_|__asan_|(?:__)?ubsan_|refcount_warn|check_|mark_|validate_chain|(?:__)?lock_|lockdep_"
    r"|__might_|_?_?_raw_|(?:__)?(?:mutex|down|up|rwsem)_|__schedule)",
)
_MOST_FRAMES = 4
# A report of AddressSanitizer, the frames of its stack, and those of its runtime library.
_OF_LIBRARY = re.compile(r"(?<=ERROR: )AddressSanitizer: [\w-]+")
_FRAME_OF_LIBRARY = re.compile(r"\s*#\d+ 0x[0-9a-f]+ in (?P<function>[\w.]+)")
_OF_RUNTIME = re.compile(r"libasan|asan_|sanitizer_")
# Lines of a kernel whose memory may be corrupted, and lines of a kernel that has killed the running task.
_MEMORY_IN_DOUBT = re.compile(r"KASAN:|refcount_t:|UBSAN: array-index")
_ENDED = re.compile(
    r"BUG:|Oops|general protection|Unable to handle kernel|Internal error:|kernel BUG at|Kernel panic|\[#\d+\]",
)


def kernel_alarm(kernel: KernelEvidence) -> Fault | None:
    """Returns the fault of the device under test in the kernel's log and taint mask, or else in a report about a library;
    None if there is none."""
    log = kernel.get("log", ())
    about = _about_device(kernel)
    fault = None
    if about is not None:
        fault = _trouble(kernel, [log[number] for number in about])
    return fault or _of_library(kernel.get("sanitizer", ()))


def _of_library(report: Sequence[str]) -> Fault | None:
    """Returns the fault of the first report of AddressSanitizer: what it found, the function, and its callers."""
    lines = iter(report)
    found = next((match for line in lines if (match := _OF_LIBRARY.search(line))), None)
    if found is None:
        return None
    functions: list[str] = []
    for line in lines:
        frame = _FRAME_OF_LIBRARY.match(line)
        if frame and not _OF_RUNTIME.search(line):
            functions.append(frame["function"])
        elif functions and not frame:
            break
    return Fault(
        FaultKind.LIBRARY_MEMORY,
        seen=(found[0], *functions[:_MOST_FRAMES]),
        site=(*functions[:2], *("", "")[len(functions[:2]) :], "", ""),
    )


def decisive_lines(kernel: KernelEvidence) -> set[int]:
    """Returns the numbers of the log lines that decide `kernel_alarm`: the alarm, and the line that names a suspect."""
    log = kernel.get("log", ())
    about = _about_device(kernel) or range(0)
    is_named = _naming(kernel)
    decisive: set[int] = set()
    for decides in (_is_alarm, is_named):
        matching = (number for number in about if decides(log[number]))
        decisive.update(itertools.islice(matching, 1))
    return decisive


def kernel_remark(kernel: KernelEvidence) -> Fault | None:
    """Returns a fault of the kernel that the device did not cause, and that changes no verdict; else None."""
    if _about_device(kernel) is not None:
        return None
    return _trouble(kernel, kernel.get("log", ()))


def _trouble(kernel: KernelEvidence, log: Sequence[str]) -> Fault | None:
    line = first_alarm(log)
    before, after = kernel.get("taint_before"), kernel.get("taint", 0)
    if not line:
        changed = before is not None and before != after
        if changed:
            return Fault(FaultKind.KERNEL_TAINTED, expected=(str(before),), seen=(str(after),))
        return None
    report = _REPORT.search(line)
    if report:
        text = line
    else:
        text = "\n".join([line, *kernel.get("log", ())])
    if not report and _ENDED.search(text):
        kind = FaultKind.KERNEL_OOPSED
    else:
        kind = FaultKind.KERNEL_WARNED
    if _MEMORY_IN_DOUBT.search(text):
        kind = FaultKind.KERNEL_MEMORY
    if report and (frames := _reported_frames(log)):
        return Fault(
            kind,
            seen=(report[0], *(_OFFSET.sub("", frame) for frame in frames)),
            site=_site(frames),
        )
    return Fault(kind, seen=(line,), site=site_in(kernel.get("log", ())))


def _about_device(kernel: KernelEvidence) -> range | None:
    """Returns the numbers of the lines from an alarm to the next alarm: of the first alarm whose lines name a suspect
    (KernelEvidence.suspects). None if no lines name a suspect; without `suspects`, all lines."""
    log = kernel.get("log", ())
    if "suspects" not in kernel:
        return range(len(log))
    is_named = _naming(kernel)
    starts = [number for number, line in enumerate(log) if _is_alarm(line)] or [0]
    for start, end in zip(starts, [*starts[1:], len(log)], strict=True):
        if any(map(is_named, log[start:end])):
            return range(start, end)
    return None


def _naming(kernel: KernelEvidence) -> Callable[[str], bool]:
    """Returns a function that returns whether a line names a suspect, as a word or as the prefix of a function's name.
    The list of modules after a warning is ignored, because this list names every driver."""
    named = re.compile(rf"\b(?:{'|'.join(map(re.escape, kernel.get('suspects', ())))})(?=_|\b)")
    return lambda line: _MODULES not in line and bool(named.search(line))


def _is_alarm(line: str) -> bool:
    return any(alarm in line for alarm in _KERNEL_ALARMS) or bool(_NUMBERED.search(line))


def first_alarm(log: Sequence[str]) -> str:
    """Returns the first line in which a kernel reports one of its own errors; empty if there is none. On a console, the
    kernel's text may follow a program's output on the same line; the kernel's text begins at the time stamp."""
    line = next(filter(_is_alarm, log), "")
    return line[max(0, line.rfind("[ ")) :]


# The time stamp of a kernel's line on a console, after which the text is that of the kernel's log.
_STAMP = re.compile(r"\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ")


def alarms_on_console(lines: Iterable[str]) -> Iterator[str]:
    """Yields the texts, without time stamps, with which a kernel reports its own errors on a console. Lines without a
    time stamp are output of programs."""
    for line in lines:
        *_, text = _STAMP.split(line)
        if text != line and _is_alarm(text):
            yield text.rstrip()


def alarms_in(kernel: KernelEvidence) -> set[str]:
    """Returns the lines of the kernel's log in which it reports its own errors."""
    return {line.rstrip() for line in kernel.get("log", ()) if _is_alarm(line)}


_MODULES = "Modules linked in:"
# A function in a log, such as `rxe_odp_mr_copy.isra.0+0x1a/0x2b [rdma_rxe]`.
_FUNCTION = r"(?P<function>\w[\w.]*\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?)"
_OFFSET = re.compile(r"\+\w+/\w+")
# The location of the processor: the instruction pointer of x86 and POWER, the program counter of Arm and RISC-V, the
# program status word of s390.
_AT = re.compile(
    r"(?:\bRIP: [0-9a-f]{4}:|\bNIP \[[0-9a-f]+\] |\be?pc : |\bKrnl PSW : [0-9a-f]+ [0-9a-f]+ \()"
    + _FUNCTION,
)
# Where the function returns, in the next lines: the register of Arm, POWER and RISC-V. It is in the function itself or in
# its caller, which the call trace lacks if the function has no frame.
_RETURN = re.compile(r"(?:\blr : |\bLR \[[0-9a-f]+\] | ra : )" + _FUNCTION)
_REGISTERS = 3
# A frame after the time stamp. s390 and RISC-V print the address of the code before it, POWER also that of the stack.
_ADDRESS = re.compile(r"^(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])?)?\s*\[<[0-9a-f]+>\] ")
_FRAME = re.compile(
    rf"^(?!.*\(unreliable\))(?:\[[^\]]*\])?\s*(?:\[<[0-9a-f]+>\] |\[[0-9a-f]{{16}}\] \[[0-9a-f]{{16}}\] )?{_FUNCTION}",
)
# s390 prints a frame in parentheses that is uncertain. It is the caller of a function without a frame if the register 14,
# the address to which the function returns, is in the frame's function.
_UNCERTAIN = re.compile(
    r"^(?:\[[^\]]*\])?\s*\(\[<(?P<address>[0-9a-f]+)>\] "
    r"(?P<function>\w[\w.]*\+0x(?P<offset>[0-9a-f]+)/0x(?P<size>[0-9a-f]+)(?: \[\w+\])?)\)",
)
_GENERAL_REGISTERS, _RETURN_NUMBER = "Krnl GPRS:", 14
_REGISTER = re.compile(r"\b[0-9a-f]{16}\b")


def crash_location(log: Sequence[str]) -> str:
    """Returns the function in which a kernel died and its caller, as far as the log shows them; else an empty text."""
    frames = _died_in(tuple(log))
    if frames:
        return f"in {', called by '.join(frames)}"
    return ""


def site_in(log: Sequence[str]) -> tuple[str, ...]:
    """Returns the location at which a kernel died: function, caller, and the module of each; empty if the log does not
    show it. The names are the same in every build: without offsets and without the suffixes of a compiler. An unknown
    name is an empty text."""
    return _site(_died_in(tuple(log)))


@functools.lru_cache  # many results of a large run have the same log
def _died_in(log: tuple[str, ...]) -> Sequence[str]:
    """Returns the function in which a kernel died and its caller, without frames that are uncertain (`?`)."""
    death = next(
        (
            (number, match["function"])
            for number, line in enumerate(log)
            if (match := _AT.search(line))
        ),
        None,
    )
    if death is None:
        return []
    start, function = death
    returns = (_RETURN.search(line) for line in log[start : start + _REGISTERS])
    frames = [*(match["function"] for match in returns if match), *_frames(log, start)]
    callers = [frame for frame in frames if _source_name(frame) != _source_name(function)]
    return [function, *callers[:1]]


def _site(frames: Sequence[str]) -> tuple[str, ...]:
    if not frames:
        return ()
    parts = [(_source_name(frame), frame.partition("[")[2].rstrip("]")) for frame in frames]
    (function, module), (caller, callers) = [*parts, ("", "")][:2]
    return function, caller, module, callers


def _frames(log: Sequence[str], start: int) -> list[str]:
    """Returns the functions of the first call trace after a line of a log, the innermost function first."""
    trace = next(
        (
            number
            for number, line in enumerate(log)
            if number > start and "all trace:" in line.lower()
        ),
        None,
    )
    returns_to = _return_address(log[start:])
    if trace is None:  # RISC-V has no such heading
        frames = (_FRAME.match(line) for line in log[start + 1 :] if _ADDRESS.match(line))
        return [match["function"] for match in frames if match]
    return [frame for line in log[trace + 1 :] if (frame := _frame_in(line, returns_to))]


def _frame_in(line: str, returns_to: int) -> str:
    """Returns the function of a line of a call trace, or an empty text."""
    match = _FRAME.match(line)
    if uncertain := _UNCERTAIN.match(line):
        address, offset, size = (int(uncertain[part], 16) for part in ("address", "offset", "size"))
        if 0 <= returns_to - (address - offset) < size:
            match = uncertain
    if match:
        return match["function"]
    return ""


def _return_address(log: Sequence[str]) -> int:
    """Returns the address to which the function in an oops of s390 returns; 0 if the log does not show it."""
    lines = itertools.dropwhile(lambda line: _GENERAL_REGISTERS not in line, log)
    registers = _REGISTER.findall(" ".join(itertools.islice(lines, 4)))
    return int((registers[_RETURN_NUMBER:] or ["0"])[0], 16)


def _reported_frames(log: Sequence[str]) -> list[str]:
    """Returns the function that a report of a debugging tool is about, and its callers; empty without a call trace."""
    start = next(number for number, line in enumerate(log) if _is_alarm(line))
    frames = _frames(log, start)
    named = re.search(r" in (\w+)[\w.]*\+", log[start])
    begin = next(
        (number for number, frame in enumerate(frames) if named and _name(frame) == named[1]),
        0,
    )
    return [frame for frame in frames[begin:] if not _OF_TOOLS.match(frame)][:_MOST_FRAMES]


def _name(frame: str) -> str:
    return frame.partition("+")[0]


def _source_name(frame: str) -> str:
    """Returns the name of a function in its source, without the suffixes of a compiler."""
    return _name(frame).partition(".")[0]
