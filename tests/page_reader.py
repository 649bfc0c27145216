"""Reads the data of report.html for tests, as the page's script does (reports/page_data.py has the format)."""

import base64
import json
import re
import zlib
from typing import Any


def data_of(page: str) -> dict[str, Any]:
    """Returns the data of a page."""
    (packed,) = re.findall(r'<script type="application/octet-stream" id="data">([^<]*)</script>', page)
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
    return data


def cases_of(page: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the values that the page shows for each case, by column, for each run with the case."""
    data = data_of(page)
    return {
        case: [
            {name: data["texts"][column[at]] for name, column in run.items()} if run["effective"][at] else {}
            for run in data["runs"]
        ]
        for at, case in enumerate(data["cases"])
    }
