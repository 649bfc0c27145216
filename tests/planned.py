"""A recorded run whose header plans many more cases than were recorded."""

import json
from pathlib import Path

from conformance.results.records import encode

_OLD = Path(__file__).with_name("old_results") / "results.jsonl"


def planned_run(folder: Path, number: int) -> Path:
    """Makes the directory `folder` with the results of a recorded run, and with `number` more planned cases that have
    no record."""
    header, *rest = _OLD.read_bytes().splitlines(keepends=True)
    data = json.loads(header)
    data["planned"] = [f"reg_mr/made/up-{each}" for each in range(number)]
    folder.mkdir(parents=True)
    (folder / _OLD.name).write_bytes(encode(data) + b"".join(rest))
    return folder
