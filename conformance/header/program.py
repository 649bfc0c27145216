"""Runs the C compiler, for the values of constant expressions and for the preprocessed header.

One program is generated, compiled and run for all expressions. The #line markers in the compiler's errors show which
expressions do not compile. These expressions are removed and the rest is compiled again. Therefore an unknown name
affects only its own expressions. All files are in a temporary directory.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.older_python import zip

# The time limit for one run of the compiler, in seconds. Under emulation on a busy host, a compiler can take minutes.
COMPILER_S = 900.0
HEADER = "infiniband/verbs.h"
PACKAGE = "libibverbs-dev"
_PREFIX = "rdma-cts-header-"  # the beginning of the names of temporary directories
COMPILERS = ("cc", "gcc", "clang")
# gnu11: verbs.h is written in GNU C, and the expressions use __typeof__.
FLAGS = ("-w", "-std=gnu11", "-fdiagnostics-color=never")

# Compilers print the file name of the last #line directive: `question-17:1:54: error: …`.
_ERROR = re.compile(r"^.*?\berror: (?P<text>.*)$")
_PLACE = re.compile(r"^(?P<kind>question|declaration)-(?P<index>\d+):\d+")
_IN_MACRO = re.compile(r": note: (in expansion of macro|expanded from macro)")


class Unreachable(Exception):
    """The header cannot be compiled; the message is one line for the user."""


@dataclass(frozen=True)
class Answers:
    """The values of expressions that compile, and the errors of those that do not."""

    values: Mapping[str, int]
    # the first error of an expression that does not compile
    refused: Mapping[str, str] = field(default_factory=dict)

    def value(self, expression: str) -> int | None:
        return self.values.get(expression)


@dataclass(frozen=True)
class Toolchain:
    """A compiler's command line, the include directories to search first, and the time limit in seconds."""

    command: tuple[str, ...]
    include_dirs: tuple[Path, ...] = ()
    timeout_s: float = COMPILER_S

    @classmethod
    def found(
        cls,
        compiler: str | None,
        include_dirs: Sequence[Path | str],
        timeout_s: float,
    ) -> Toolchain:
        """Returns the toolchain with `compiler`, $CC or a compiler on PATH. Raises Unreachable if there is none."""
        compiler_name = compiler or os.environ.get("CC", "")
        try:
            command = tuple(shlex.split(compiler_name)) or next(
                ((name,) for name in COMPILERS if shutil.which(name)),
                (),
            )
        except ValueError as error:
            raise Unreachable(
                f"the compiler's command line {compiler_name!r} is malformed: {error}",
            ) from error
        if not command:
            raise Unreachable("no C compiler found; install gcc or clang, or set CC")
        if not shutil.which(command[0]):
            raise Unreachable(
                f"the C compiler {command[0]!r} was not found; install it, or set CC to a different one",
            )
        return cls(command, tuple(Path(dir).resolve() for dir in include_dirs), timeout_s)

    def preprocessed(self) -> str:
        """Returns the preprocessed header, with the definitions of macros. Raises Unreachable if the compiler fails."""
        # The #error distinguishes a missing header from a header that cannot be compiled.
        source = f"#if !__has_include(<{HEADER}>)\n#error header-not-installed\n#endif\n#include <{HEADER}>\n"
        with TemporaryDirectory(prefix=_PREFIX) as name:
            directory = Path(name)
            (directory / "preprocess.c").write_text(source)
            status, out, err = self._run(
                directory,
                *self._compile("-E", "-P", "-dD", "preprocess.c"),
            )
        if "header-not-installed" in err:
            raise Unreachable(f"no <{HEADER}> installed; install {PACKAGE}")
        if status:
            raise Unreachable(f"<{HEADER}> cannot be read: {_first_error(err)}")
        return out

    def ask(
        self,
        expressions: Iterable[str],
        declarations: Mapping[str, str] | None = None,
        undefine: Iterable[str] = (),
    ) -> Answers:
        """Returns the values of integer expressions in a program that includes the header.

        `declarations` are C declarations, by the tags that they declare. If a declaration does not compile, the
        expressions that use its tag are refused as well. `undefine` are macros that are undefined before the
        expressions. Raises Unreachable if the program without the refused expressions does not compile or run.
        """
        questions = list(dict.fromkeys(expressions))
        pieces = dict(declarations or {})
        refused: dict[str, str] = {}
        with TemporaryDirectory(prefix=_PREFIX) as name:
            directory = Path(name)
            while True:
                source = _source(undefine, pieces, questions)
                (directory / "ask.c").write_text(source)
                status, _, err = self._run(directory, *self._compile("-o", "ask", "ask.c"))
                if not status:
                    break
                dropped = _blamed(err, list(pieces), questions)
                if not dropped:
                    raise Unreachable(f"<{HEADER}> does not compile: {_first_error(err)}")
                refused |= dropped
                pieces = {tag: text for tag, text in pieces.items() if tag not in dropped}
                questions = [question for question in questions if question not in dropped]
            status, out, err = self._run(directory, str(directory / "ask"))
        if status:
            raise Unreachable(
                f"the compiled check does not run here (status {status}) {err.strip()}".strip(),
            )
        try:
            return Answers(dict(zip(questions, map(int, out.split()), strict=True)), refused)
        except ValueError as error:
            raise Unreachable(
                f"the compiled check did not print one number per line: {out[:60]!r}",
            ) from error

    def _compile(self, *arguments: str) -> tuple[str, ...]:
        include = (f"-I{directory}" for directory in self.include_dirs)
        return (*self.command, *FLAGS, *include, *arguments)

    def _run(self, directory: Path, *command: str) -> tuple[int, str, str]:
        """Returns exit status, output and errors of a command. Raises Unreachable if it cannot start or times out."""
        environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(directory)}
        try:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"cannot run {Path(command[0]).name}: {error.strerror}") from error
        with process:
            try:
                out, err = process.communicate(timeout=self.timeout_s)
            except BaseException as error:
                # The whole process group is killed, because a compiler starts further processes.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Unreachable(
                        f"{command[0]} did not exit within {self.timeout_s:g} s",
                    ) from error
                raise
        return process.returncode, out, err


def _source(
    undefine: Iterable[str],
    declarations: Mapping[str, str],
    questions: Sequence[str],
) -> str:
    """Returns the program. Each expression is in a separate function; therefore each error belongs to one of them."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", f"#include <{HEADER}>"]
    lines += [f"#undef {name}" for name in undefine]
    for index, text in enumerate(declarations.values()):
        lines += [f'#line 1 "declaration-{index}"', text]
    for index, expression in enumerate(questions):
        lines += [
            f'#line 1 "question-{index}"',
            f"static long long question_{index}(void) {{ return (long long)({expression}); }}",
        ]
    lines += ['#line 1 "main"', "int main(void)", "{"]
    lines += [f'\tprintf("%lld\\n", question_{index}());' for index in range(len(questions))]
    lines += ["\treturn 0;", "}", ""]
    return "\n".join(lines)


def _blamed(err: str, tags: Sequence[str], questions: Sequence[str]) -> dict[str, str]:
    """Returns the tags and expressions to which the compiler's errors belong, each with its first error."""
    blamed: dict[str, str] = {}
    complaint = ""
    for line in err.splitlines():
        error, place = _ERROR.match(line), _PLACE.match(line)
        if error:
            complaint = error["text"]
        # An error inside a macro has the location of the macro's definition. A note after the error has the location
        # where the macro is used.
        if place and complaint and (error or _IN_MACRO.search(line)):
            if place["kind"] == "question":
                names = questions
            else:
                names = tags
            blamed.setdefault(names[int(place["index"])], complaint)
    for tag in tags:
        if tag in blamed:
            word = re.compile(rf"\b{tag}\b")
            blamed |= {
                question: blamed[tag]
                for question in questions
                if question not in blamed and word.search(question)
            }
    return blamed


def _first_error(err: str) -> str:
    """Returns the first line of the compiler's output that contains `error`; without such a line, the first line."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
