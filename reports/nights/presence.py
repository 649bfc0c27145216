"""Says since when a run that is a cell of a history has its defects."""

from collections.abc import Mapping
from functools import partial

from conformance.errors import UserError, format_count
from reports.digest import Digest
from reports.nights.names import is_night


def since_when(run: Digest) -> Mapping[str, str]:
    """Returns, by fingerprint, the first night of the unbroken series of nights with a defect up to that of the run, and
    in how many nights it was seen; empty if the run is not in a history."""
    cell = run.directory.absolute()
    night = cell.parent.name
    if not is_night(night):
        return {}
    # Imported late: most runs are not of a history.
    from reports.nights.facts import Facts
    from reports.nights.history import format_night, known_nights, read_history, since

    try:
        cells = [
            entry
            for entry in read_history(cell.parent.parent).of(cell.name)
            if entry.night <= night
        ]
    except UserError:
        return {}
    texts = {}
    for defect in run.violations.defects:
        has = known_nights(cells, partial(Facts.has, fingerprints=set(defect.fingerprints)))
        if first := since(has, night):
            nights = format_count(len(has), "night")
            texts[defect.fingerprint] = (
                f"since {format_night(first)}, seen in {sum(has.values())} of {nights}"
            )
    return texts
