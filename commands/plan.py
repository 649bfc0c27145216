"""The plan of a run: what it was asked to do, written beside its results before it starts, so that it can be resumed.

The header of the results cannot replace it: it is written only when the first worker has reported its device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.regular_file import MOST_BYTES, open_regular
from conformance.results.checked_json import parse
from conformance.results.files import write_atomically

FILE_NAME = "plan.json"
SCHEMA = "rdma-cts-plan/1"


@dataclass(frozen=True)
class Plan:
    """The command's arguments, its working directory, and what these resulted in: cases, tables, stack.

    `given` are the hashes of the user's own builds under test.
    """

    argv: tuple[str, ...]
    directory: str
    planned: tuple[str, ...]
    tables_sha256: str
    stack: str
    given: dict[str, Any]

    def check(self, now: Plan) -> None:
        """Raises UserError that names the difference, unless `now` has the same cases, tables, stack and builds."""
        for what, same in (
            ("the stack is another", self.stack == now.stack),
            ("the tables have changed", self.tables_sha256 == now.tables_sha256),
            ("other cases are selected", self.planned == now.planned),
            ("the builds under test have changed", self.given == now.given),
        ):
            if not same:
                raise UserError(f"the run cannot be resumed, because {what}", hint="start a new run")


def write_plan(plan: Plan, folder: Path) -> None:
    """Writes the plan into `folder` atomically. Raises UserError."""
    data = json.dumps({"schema": SCHEMA, **asdict(plan)}, indent=1) + "\n"
    write_atomically(folder / FILE_NAME, data.encode("ascii"))


def read_plan(folder: Path) -> Plan:
    """The plan of the run recorded in `folder`. Raises UserError if it is missing, invalid or owned by another user.

    Another user's plan could name a library to execute. Results received from others can be reported, not resumed.
    """
    path = folder / FILE_NAME
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                raise UserError(
                    f"{path} belongs to another user", hint="only the user who started the run can resume it"
                )
            data = parse(file.read(MOST_BYTES))
        if data.pop("schema") != SCHEMA:
            raise ValueError
        plan = Plan(**data)
        texts: Sequence[Any] = [*plan.argv, *plan.planned, plan.directory, plan.tables_sha256, plan.stack]
        if not all(isinstance(text, str) for text in texts) or not isinstance(plan.given, dict):
            raise ValueError
    except FileNotFoundError as error:
        raise UserError(f"no run to resume in {folder}: there is no {FILE_NAME}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a valid plan of a run") from error
    return Plan(tuple(plan.argv), plan.directory, tuple(plan.planned), plan.tables_sha256, plan.stack, plan.given)
