"""Says before the first case what a run on a device does to its surroundings: the requests that are refused on purpose,
and what the driver writes about them."""

from collections.abc import Collection, Iterator

from commands.cli import nics_page
from conformance.errors import format_count
from conformance.kernel.netlink import RdmaNetlink, driver_name
from conformance.model.case import Case
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.tables.refused_requests import refused_requests

_PAGE = "docs/node-health.md"


def errors_on_purpose(cases: Collection[Case], devices: Collection[str]) -> Iterator[str]:
    """Yields the lines for a run on these devices of this host; without devices, for a device whose driver is unknown
    here."""
    refusals = refused_requests(cases)
    if not refusals.number:
        return
    requests = format_count(refusals.number, "request")
    yield f"up to {requests} are refused on purpose: to node-health daemons, see {_PAGE}"
    waits = f"{COMPLETION_DEADLINE_S:g} s for each completion that never comes"
    if refusals.longest_s:
        causes = f"{refusals.unacknowledged:,} over UC or UD, {refusals.faults:,} page faults"
        waits = f"{refusals.longest_s:,.0f} s ({causes}), and {waits}"
    yield f"  waits after refusals, at worst: {waits}"
    text = nics_page.text_of_page()
    ids = (RdmaNetlink(device).driver_id() or 0 for device in devices)
    for driver in sorted({driver_name(number) for number in ids}):
        for name, cells in nics_page.rows_about(driver, nics_page.ERRORS, text):
            yield f"  {name}: {cells[0]} ({cells[1]})"
