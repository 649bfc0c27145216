"""The plan of a run or lab: the arguments and the cases that they select. The plan is written next to the results
before the run starts, so that the run can be resumed.

The header of the results cannot replace the plan, because it is written only when the first worker has reported its
device.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.regular_file import MOST_BYTES, open_regular
from conformance.results.checked_json import parse
from conformance.results.files import write_atomically
from conformance.results.records import PLAN_FILE

FILE_NAME = PLAN_FILE
SCHEMA = "rdma-cts-plan/1"
LAB_FILE_NAME = "lab.json"
LAB_SCHEMA = "rdma-cts-lab/1"


@dataclass(frozen=True)
class Plan:
    """The arguments and the working directory of a command, and the resulting cases, tables and stack.

    `given` are the hashes of the user's own builds under test.
    """

    argv: tuple[str, ...]
    directory: str
    planned: tuple[str, ...]
    tables_sha256: str
    stack: str
    given: dict[str, Any]

    def check(self, now: "Plan") -> None:
        """Raises UserError with the difference, unless `now` has the same cases, tables, stack and builds."""
        for what, same in (
            ("the stack differs", self.stack == now.stack),
            ("the tables have changed", self.tables_sha256 == now.tables_sha256),
            ("other cases are selected", self.planned == now.planned),
            ("the builds under test have changed", self.given == now.given),
        ):
            if not same:
                raise UserError(f"the run cannot be resumed, because {what}", hint="start a new run")


@dataclass(frozen=True)
class LabPlan:
    """The arguments and the working directory of a command, and the absolute path of the file of the lab."""

    argv: tuple[str, ...]
    directory: str
    file: str


def write_plan(plan: Plan, folder: Path) -> None:
    """Writes the plan into `folder` atomically. Raises UserError."""
    _write(folder / FILE_NAME, SCHEMA, plan)


def write_lab_plan(plan: LabPlan, folder: Path) -> None:
    _write(folder / LAB_FILE_NAME, LAB_SCHEMA, plan)


def _write(path: Path, schema: str, plan: Plan | LabPlan) -> None:
    data = json.dumps({"schema": schema, **vars(plan)}) + "\n"
    write_atomically(path, data.encode("ascii"))


def read_plan(folder: Path) -> Plan:
    """Returns the plan of the run in `folder`. Raises UserError if the plan is missing, invalid or owned by another
    user.

    Another user's plan could name a library to execute. So another user's results can be reported, but not resumed.
    """
    with _valid(folder, FILE_NAME, "run"):
        plan = Plan(**_read(folder / FILE_NAME, SCHEMA))
        _check_texts(plan.argv, plan.planned, [plan.directory, plan.tables_sha256, plan.stack])
        if not isinstance(plan.given, dict):
            raise ValueError
    return Plan(tuple(plan.argv), plan.directory, tuple(plan.planned), plan.tables_sha256, plan.stack, plan.given)


def read_lab_plan(folder: Path) -> LabPlan:
    """Returns the plan of the lab in `folder`. Raises UserError as `read_plan` does."""
    with _valid(folder, LAB_FILE_NAME, "lab"):
        plan = LabPlan(**_read(folder / LAB_FILE_NAME, LAB_SCHEMA))
        _check_texts(plan.argv, [plan.directory, plan.file])
    return LabPlan(tuple(plan.argv), plan.directory, plan.file)


def _check_texts(*lists: Any) -> None:
    """Raises ValueError unless each value is a list of texts that can be arguments or paths."""
    for texts in lists:
        if not isinstance(texts, list) or not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise ValueError
        os.fsencode("".join(texts))


@contextmanager
def _valid(folder: Path, name: str, what: str) -> Iterator[None]:
    """Turns errors of the block, which reads the plan of `what` from the file `name`, into UserErrors."""
    path = folder / name
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"no {what} to resume in {folder}: there is no {name}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a valid plan of a {what}") from error


def _read(path: Path, schema: str) -> dict[str, Any]:
    """Returns the fields of a plan that this user or root has written. Raises the exceptions that `_valid` expects."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
            raise UserError(f"{path} belongs to another user", hint="only the user who started the run can resume it")
        data: dict[str, Any] = parse(file.read(MOST_BYTES))
    if data.pop("schema") != schema:
        raise ValueError
    return data
