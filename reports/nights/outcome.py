"""The outcome of a cell in a night: its words, and its file cell.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from conformance.model.printable import one_line
from conformance.results.folder import OUTCOME_FILE
from reports.nights.known_defect import checked_texts
from reports.nights.names import is_night

SCHEMA = "rdma-cts-cell/1"
ENDED = "a signal or a kill ended the night, for example for lack of memory, or the disk was full"
NO_OUTCOME = f"its {OUTCOME_FILE} is missing: {ENDED}"
_MOST_SHOWN = 40  # the most characters of a damaged value
BASELINE, GOOD, REGRESSED, NEWLY_WRONG, UNDECIDED, NOT_RUN, RUNNING = (
    "baseline",
    "good",
    "regressed",
    "newly wrong",
    "undecided",
    "not run",
    "running",
)
OUTCOMES: Mapping[str, str] = {
    BASELINE: "nothing to compare with yet",
    GOOD: "nothing has regressed since the last good night",
    REGRESSED: "something has regressed since the last good night",
    NEWLY_WRONG: "what the last good night did not support or judge is wrong, and nothing has regressed",
    UNDECIDED: "the run is incomplete, some verdicts of the last good night are no longer decided, or a race was hit that "
    "may not be new",
    NOT_RUN: "there are no results",
    RUNNING: "there are no results yet, because the night has not finished",
}
COMPARABLE = (BASELINE, GOOD)
FAILED = (REGRESSED, NEWLY_WRONG)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell in a night, as in cell.json. `against` is the last good night, with which the cell was
    compared. `selection` has the options that select the cases of the cell. `reason` is the reason why the cell has no
    results. `kinds` has for each defect that only this run has, by fingerprint, the kind of its change, as `compare` names
    it. `undecided` has in the same way the word for each defect of an earlier night that this run has not decided.
    `untried` has the cases of the last good night that this complete run has not tried. A text that does not apply is
    empty."""

    outcome: str
    against: str = ""
    reason: str = ""
    selection: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    untried: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        return (json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n").encode("ascii")

    @staticmethod
    def of(data: Any) -> Outcome:
        """Returns the outcome in the content of a file. Raises ValueError if `data` is not an outcome, with the key that is
        wrong."""
        if not isinstance(data, dict):
            raise ValueError("not an object")
        permitted = {"schema": (SCHEMA,), "outcome": (*OUTCOMES,)}
        for key, values in permitted.items():
            if data.get(key) not in values:  # `in` for a tuple accepts unhashable values
                raise ValueError(f"its {key} is {_shown(data.get(key))}")
        texts = {key: data.get(key, "") for key in ("against", "reason")}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise ValueError(f"its {key} is {_shown(text)}, not a text")
        lists = {key: data.get(key, []) for key in ("selection", "untried")}
        for key, words in lists.items():
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError(f"its {key} is {_shown(words)}, not a list of texts")
        of_defects = []
        for key in ("kinds", "undecided"):
            try:
                of_defects.append(checked_texts(data.get(key, {})))
            except (AttributeError, TypeError) as error:
                raise ValueError(f"its {key} is {_shown(data[key])}, not texts") from error
        against, reason = map(one_line, texts.values())
        if against and not is_night(against):
            raise ValueError(f"its against is {_shown(against)}, not a night")
        kinds, undecided = of_defects
        selection, untried = tuple(lists["selection"]), tuple(map(one_line, lists["untried"]))
        return Outcome(data["outcome"], against, reason, selection, kinds, undecided, untried)

    def kind_of(self, fingerprints: Iterable[str]) -> str:
        """Returns the kind of the change of the defect with one of these fingerprints; empty if it is not recorded."""
        return next((self.kinds[name] for name in fingerprints if name in self.kinds), "")


def _shown(value: Any) -> str:
    text = one_line(json.dumps(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
