"""Observes a case of the API: the results of the checks of the installed header and bindings for one item.

Such a case makes no call on the device and has no set-up. Not for the checks themselves (header/).
"""

from collections.abc import Callable

from conformance.bench.interface import Bench
from conformance.header import FAIL, NOT_COVERED, PASS, Check
from conformance.model.case import Case
from conformance.model.observation import Observation


def observe_api(case: Case, bench: Bench, waiting: Callable[[], None]) -> Observation:
    """The observation of the checks of the enumeration, struct or prototype that `case` names.

    `waiting` is called repeatedly while the compiler runs. `unreachable` is the reason if there were no checks, because
    the header or a compiler is missing.
    """
    item = str(case.when.arguments["item"])
    all_checks = bench.api_checks(waiting)
    checks = [check for check in all_checks if _is_about(check.item, item)]
    seen = {outcome: [check for check in checks if check.outcome == outcome] for outcome in (PASS, FAIL, NOT_COVERED)}
    returned = "differs" if seen[FAIL] else "0" if seen[PASS] else "nothing"
    observation: Observation = {"rc": None, "returned": returned, "errno": "", "layer": "header"}
    observation["checks"] = {outcome: len(found) for outcome, found in seen.items()}
    if seen[FAIL]:
        observation["differences"] = [_format_check(check) for check in seen[FAIL]]
    if seen[NOT_COVERED]:
        observation["not_covered"] = [_format_check(check) for check in seen[NOT_COVERED]]
    if returned == "nothing":
        reasons = [check.reason for check in checks or all_checks if check.reason]
        observation["unreachable"] = reasons[0] if reasons else f"nothing installed could be compared with {item}"
    return observation


def _format_check(check: Check) -> str:
    return f"{check.item}: {check.reason} ({check.found})"


def _is_about(check: str, item: str) -> bool:
    """Whether a check is of the item or of a part of it."""
    return check == item or (check.startswith((f"{item}.", f"{item} ")) and not check.endswith("(experimental)"))
