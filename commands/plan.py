"""What a run was asked to do, kept beside its results from its first moment, so that it can be carried on.

The header of the results cannot tell it: there is none before a worker says what it is on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.results.files import write_atomically

FILE_NAME = "plan.json"
SCHEMA = "rdma-cts-plan/1"


@dataclass(frozen=True)
class Plan:
    """The command's arguments and the directory it was given in; what these came to: cases, tables, stack.

    `given` are the hashes of what the person put under test.
    """

    argv: tuple[str, ...]
    directory: str
    planned: tuple[str, ...]
    tables_sha256: str
    stack: str
    given: dict[str, Any]

    def check(self, now: Plan) -> None:
        """Raises UserError, naming what differs, unless `now` means the same cases, tables and stack."""
        for what, same in (
            ("the stack is another", self.stack == now.stack),
            ("the tables have changed", self.tables_sha256 == now.tables_sha256),
            ("other cases are selected", self.planned == now.planned),
            ("what was put under test has changed", self.given == now.given),
        ):
            if not same:
                raise UserError(f"the run cannot be carried on, because {what}", hint="start a new one")


def write_plan(plan: Plan, folder: Path) -> None:
    """Keeps the plan in `folder`, whole or not at all. Raises UserError."""
    data = json.dumps({"schema": SCHEMA, **asdict(plan)}, indent=1) + "\n"
    write_atomically(folder / FILE_NAME, data.encode("ascii"))


def read_plan(folder: Path) -> Plan:
    """The plan of the run recorded in `folder`. Raises UserError if there is none, or it is somebody else's.

    Somebody else's could name a library to run: a directory that was sent is read by reports alone.
    """
    path = folder / FILE_NAME
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                raise UserError(f"{path} belongs to another user", hint="only the run's own user can carry it on")
            data = json.load(file)
        if data.pop("schema") != SCHEMA:
            raise ValueError
        plan = Plan(**data)
        texts: Sequence[Any] = [*plan.argv, *plan.planned, plan.directory, plan.tables_sha256, plan.stack]
        if not all(isinstance(text, str) for text in texts) or not isinstance(plan.given, dict):
            raise ValueError
    except FileNotFoundError as error:
        raise UserError(f"no run to carry on in {folder}: there is no {FILE_NAME}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is no plan of a run that was cut short") from error
    return Plan(tuple(plan.argv), plan.directory, tuple(plan.planned), plan.tables_sha256, plan.stack, plan.given)
