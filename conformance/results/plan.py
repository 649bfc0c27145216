"""Reads and writes the plan of a run or lab: the arguments, and the cases that they select. The plan is written next to
the results before the run starts, so that the run can be resumed. The header of the results is written later, when a
worker has described its device."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from conformance.cache import refuse_of_others
from conformance.errors import UserError, command
from conformance.model.printable import one_line
from conformance.model.typed import check_of
from conformance.regular_file import content_of, open_regular, write_whole
from conformance.results.checked_json import parse
from conformance.results.files import writing
from conformance.results.folder import latest
from conformance.results.records import LAB_FILE, PLAN_FILE

FILE_NAME = PLAN_FILE
# A plan has at most MOST_CASES names of cases, for each of which this is 280 bytes, and a command line, for which Linux
# permits 6 MiB. Reading a plan of this size takes 120 MiB of memory.
MOST_PLAN_BYTES = 32 << 20
_FORMAT = re.compile(r"rdma-cts-[a-z]{1,20}/[0-9]{1,9}")
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The arguments and the working directory of a command, and the resulting cases, tables and stack. `given` has the
    hashes of the user's builds under test."""

    argv: tuple[str, ...]
    directory: str
    planned: tuple[str, ...]
    tables_sha256: str
    stack: str
    given: dict[str, Any]

    def check(self, now: Plan) -> None:
        """Raises UserError with the difference if `now` has different cases or builds, or a different stack."""
        both = {*self.planned} & {*now.planned}
        others = (case for case in (*self.planned, *now.planned) if case not in both)
        for what, same in (
            ("the stack differs", self.stack == now.stack),
            (
                f"other cases are selected, such as {next(others, 'these in another order')}",
                self.planned == now.planned,
            ),
            ("the builds under test have changed", self.given == now.given),
        ):
            if not same:
                raise UserError(
                    f"the run cannot be resumed, because {what}",
                    hint="start a new run",
                )


@dataclass(frozen=True)
class LabPlan:
    """The arguments and the working directory of a command, and the absolute path of the file of the lab."""

    argv: tuple[str, ...]
    directory: str
    file: str


# For each kind of plan: the name of its file, its schema, and the word for a run or lab.
_FORMS: Mapping[type, tuple[str, str, str]] = {
    Plan: (FILE_NAME, "rdma-cts-plan/1", "run"),
    LabPlan: (LAB_FILE, "rdma-cts-lab/1", "lab"),
}


def write_plan(plan: Plan | LabPlan, folder: Path) -> None:
    """Writes the plan into `folder` atomically. Only this user can read it: the arguments may have secret values, which
    no other file of the run has. Raises UserError, also if the plan is too large to be read again."""
    name, schema, _ = _FORMS[type(plan)]
    data = json.dumps({"schema": schema, **vars(plan)}) + "\n"
    if len(data) > MOST_PLAN_BYTES:
        raise UserError(
            f"the names of the cases and the options have more than {MOST_PLAN_BYTES:,} bytes",
            hint="select fewer cases, or give them shorter names",
        )
    with writing(folder / name):
        write_whole(folder / name, data.encode("ascii"), durable=True, mode=0o600)


def read_plan(folder: Path) -> Plan:
    """Returns the plan of the run in `folder`. Raises UserError if the plan is missing or invalid, or if another user
    (except root) owns or can write it: the arguments in another user's plan could execute code. So another user's run
    can be reported, but not resumed."""
    return _read(Plan, folder)


def read_lab_plan(folder: Path) -> LabPlan:
    """Returns the plan of the lab in `folder`. Raises UserError as `read_plan` does."""
    return _read(LabPlan, folder)


def _instead(folder: Path) -> str:
    """Returns what to resume instead of a directory that has no plan."""
    if (folder.parent / LAB_FILE).exists():
        lab = command("run", "--resume", folder.parent)
        return f"{lab} resumes the lab, and starts the run of each host of its file that has none"
    if (folder / FILE_NAME).exists():
        return f"{command('run', '--resume', folder)}, without --lab, resumes the run in it"
    if run := latest(folder):
        return f"{command('run', '--resume', run)} resumes the latest run in it"
    return "give the directory that `run` has written"


def _read(kind: type[T], folder: Path) -> T:
    name, schema, what = _FORMS[kind]
    path = folder / name
    if folder.is_file():
        raise UserError(
            f"{folder} is a file, and a {what} is resumed in its directory",
            hint="give the directory that `run` has written",
        )
    try:
        with open_regular(path) as file:
            hint = "only the user who started the run can resume it"
            status = os.fstat(file.fileno())
            refuse_of_others(path, status, hint)
            refuse_of_others(folder, os.stat(folder), hint)
            data: dict[str, Any] = parse(content_of(file, path, MOST_PLAN_BYTES))
        written = data.pop("schema")
        if isinstance(written, str) and written != schema and _FORMAT.fullmatch(written):
            raise UserError(
                f"{path} has the schema {written}, and this version reads {schema}",
                hint="use the version of rdma-cts that wrote this file",
            )
        if written != schema:
            raise ValueError(f"its schema is not {schema}")
        if wrong := check_of(cast(Any, kind))(data):
            raise ValueError(wrong)
        texts = "".join(
            text for value in data.values() if not isinstance(value, dict) for text in value
        )
        # The texts are arguments and paths, which cannot have this byte.
        if b"\0" in os.fsencode(texts):
            raise ValueError("a text in it has a NUL byte")
        return kind(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in data.items()
            },
        )
    except FileNotFoundError as error:
        message = f"no {what} to resume in {folder}: there is no {name}"
        raise UserError(message, hint=_instead(folder)) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = one_line(str(error)) if type(error) is ValueError else "it is no plan"
        raise UserError(f"{path} is not a valid plan of a {what}: {reason}") from error
