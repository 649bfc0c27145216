"""A point that is a call, and then a use of what the call has made, changed or advised. The use is a point of the model
of an access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.combinations.access import WORDS, Access
from conformance.combinations.objects import Objects, Registered, only
from conformance.model.combinations import is_of_call
from conformance.model.observation import AccessSeen

# The values of parameters that the models of calls do not have.
_USUAL = {
    "region": "reg_mr",
    "memory": "anonymous",
    "bounds": "aligned",
    "rights": "all",
    "queue_rights": "all",
    "key": "region",
    "window_rights": "all",
    "transport": "RC",
    "posting": "post_send",
    "polling": "poll_cq",
    "path_mtu": "usual",
    "side": "remote",
    "elements": "only",
    "split": "half",
    "capacity": "exact",
    "flags": "signaled",
    "before": "nothing",
}
_OF_USES = ("operation", "side", "size", "place")


class Call(Access):
    """One point: the values of the call, and as `values` those of the use. `unusual` are values of the use that are not
    the usual ones."""

    def __init__(
        self,
        objects: Objects,
        call: Mapping[str, str],
        faults: Sequence[str],
        **unusual: str,
    ) -> None:
        use = {name: call[name] for name in _OF_USES if name in call}
        if call["operation"] in WORDS:
            use["size"] = "word"
        super().__init__(objects, {**_USUAL, **use, **unusual}, faults)
        self.call = call

    @property
    def must_fail(self) -> bool:
        """Whether the call must be refused, and not the use."""
        return is_of_call(self.faults)

    def lkey(self, owner: str, region: Registered, kind: int = 1) -> int:
        """Returns the key with which a call names the region: its own, or one of another owner. `kind` is the type of
        windows."""
        objects, extent = self.objects, region.extent
        if owner == "other_domain":
            return objects.region(*self._how(), pd="other").extent.lkey
        if owner == "other_process":
            return objects.elsewhere(self.values["region"]).lkey
        if owner == "ended":
            return objects.ended(*self._how()).lkey
        if owner == "invented":
            return objects.invented(extent).lkey
        if owner == "other_tag":
            return extent.lkey ^ 1
        if owner == "of_window":
            other = objects.allocated(kind)
            self._windows.append(other)
            return other.rkey
        only(owner, "own")
        return extent.lkey


def not_used(posted: str, completions: list[list[str]]) -> AccessSeen:
    """Returns what a call without a use shows."""
    return {
        "posted": posted,
        "requester": completions,
        "receiver": [],
        "tested": "nothing",
        "other": "nothing",
    }
