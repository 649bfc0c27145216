"""Carries out one point of the model of a bind: binds a window, and then uses its key. The use is a point of the model
of an access whose key is that of the window."""

from collections.abc import Mapping, Sequence

from conformance.bench.calls import Window, errno_name
from conformance.bench.work_requests import SIGNALED, BindInfo, Completion, SendRequest, next_rkey
from conformance.combinations.extent import Extent
from conformance.combinations.objects import BINDABLE, INSET, Link, Objects, Registered, only
from conformance.combinations.use import Call, not_used
from conformance.errors import SetupRefused
from conformance.execution.connection import post_receives
from conformance.model.observation import AccessSeen
from conformance.verbs import ENUMS

_FENCE = ENUMS["ibv_send_flags"].value_of("FENCE")
_ZERO_BASED = ENUMS["ibv_access_flags"].value_of("ZERO_BASED")
_FLAGS = {"signaled": SIGNALED, "unsignaled": 0, "fence": SIGNALED | _FENCE}
_FAR_TAG = {"next": 0, "far": 0x80}  # how far the tag of a new key is from the next one


class Bind(Call):
    """One point: the bind, and the use of the key."""

    def __init__(self, objects: Objects, values: Mapping[str, str], faults: Sequence[str]) -> None:
        built = only(values["posting"], "wr_post", "post_send", "bind_mw") == "wr_post"
        super().__init__(
            objects,
            values,
            faults,
            region=values["region"],
            rights={"all": BINDABLE}.get(values["region_rights"], values["region_rights"]),
            transport=values["queue"],
            posting="wr_post" if built else "post_send",
        )
        self.kind = int(values["window"][-1])

    def _observed(self, link: Link) -> AccessSeen:
        try:
            window = self.objects.allocated(self.kind, self._domain_of("window"))
            self._windows.append(window)
            return self._bound_and_used(link, window, self._domain_of("region"))
        finally:
            self._end_point(link)

    def _domain_of(self, object: str) -> str:
        """Returns the domain of the window or of the region."""
        if self.call["domain"] in (object, "both"):
            return "other"
        only(self.call["domain"], "same", "window", "region")
        return "pd"

    def _bound_and_used(self, link: Link, window: Window, pd: str) -> AccessSeen:
        region = self.objects.region(*self._how(), pd=pd)
        self._prepare(link, window, region)
        earlier = window.rkey
        refused, completions = self._posted(link, window, region)
        shown = [self._words_of(done) for done in completions]
        failed = refused or any(words[0] != "SUCCESS" for words in shown)
        if failed:
            link.connection.stale = True
        if failed and self.faults and not self.must_fail:
            raise SetupRefused("the bind", refused or shown[0][0])
        if failed or self.must_fail:
            return not_used(refused or "0", shown or [["SUCCESS", "bind"]] * (not refused))
        extent = self._range(region, window.rkey)
        use, over = self.call["key"], link
        if use == "earlier":
            extent = self._range(region, earlier)
        elif use == "ended":
            self._end(link, window, region)
        elif use == "deallocated":
            self._windows.remove(window)
            self.objects.deallocate(window)
        elif use == "other_queue":
            over = self._second()
        else:
            only(use, "new")
        seen = self._exchange(over, extent)
        return {**seen, "requester": [*shown, *seen["requester"]]}

    def _second(self) -> Link:
        second = self.objects.link(self._link_spec()._replace(second=True))
        self.objects.renew_if_stale(second)
        return second

    def _prepare(self, link: Link, window: Window, region: Registered) -> None:
        """Brings the window into the state before the bind. Raises SetupRefused."""
        objects, state = self.objects, self.call["state"]
        if state in ("bound", "ended"):
            objects.bound(link, window, region, self.kind, "all", False)
        elif state == "moved":
            objects.bound_elsewhere(link, window, self.kind)
        elif state == "over_second":
            objects.bound(self._second(), window, region, self.kind, "all", False)
            if self.kind == 2:
                self._end(self._second(), window, region)
        else:
            only(state, "fresh")
        if state == "ended":
            self._end(link, window, region)

    def _end(self, link: Link, window: Window, region: Registered) -> None:
        """Unbinds a window of type 1, or invalidates one of type 2. Raises SetupRefused."""
        if self.kind == 2:
            self.objects.invalidated(link, window.rkey)
            return
        info = BindInfo(region.mr, region.extent.base, 0, 0)
        refused = link.connection.pair.responder.bind_mw(
            window, info, SIGNALED, self.objects.wr_id()
        )
        self.objects.completed(link, refused.value, "unbinding a window")

    def _range(self, region: Registered, rkey: int) -> Extent:
        """Returns the bytes to which the window is bound, with its key."""
        whole, page = region.extent, self.objects.bench.page
        narrow = whole.length - 2 * INSET
        start, length = {
            "part": (INSET, narrow),
            "whole": (0, whole.length),
            "start": (0, narrow),
            "end": (2 * INSET, narrow),
            "odd": (INSET + 1, narrow - 9),
            "pages": (-whole.addr % page, page),
            "one_beyond": (2 * INSET, narrow + 1),
            "one_before": (-1, narrow),
            "across_end": (INSET, whole.length),
            "behind": (whole.length, page),
            "wrap": (0, -whole.base % (1 << 64) + INSET),
        }[self.call["range"]]
        base = {"offsets": 0, "own": whole.base + start}[self.call["addresses"]]
        return Extent(whole.addr + start, length, base, rkey, rkey)

    def _posted(
        self,
        link: Link,
        window: Window,
        region: Registered,
    ) -> tuple[str, list[Completion]]:
        """Posts the bind. Returns the errno of a refusal or an empty text, and the completions of the bind."""
        objects, queue = self.objects, link.connection.pair.responder
        extent = self._range(region, 0)
        access = objects.window_rights(self.call["rights"])
        if self.call["addresses"] == "offsets":
            access |= _ZERO_BASED
        start = region.extent.base + extent.addr - region.extent.addr
        info = BindInfo(region.mr, start, extent.length, access)
        wr_id, flags = objects.wr_id(), _FLAGS[self.call["flags"]]
        lkey = region.mr.struct.lkey
        region.mr.struct.lkey = self.lkey(self.call["lkey"], region, self.kind)
        try:
            if self.call["posting"] == "bind_mw":
                refused = queue.bind_mw(window, info, flags, wr_id).value
            else:
                key = next_rkey(window.rkey) ^ _FAR_TAG[self.call["new_key"]]
                request = SendRequest(
                    "BIND_MW", wr_id, flags=flags, rkey=key, window=window, bind=info
                )
                refused = queue.post_send(request).value
        finally:
            region.mr.struct.lkey = lkey
        if refused:
            return errno_name(refused), []
        if self.call["posting"] != "bind_mw":
            window.rkey = key
        self._wr_id = wr_id
        if flags & SIGNALED:
            return "", objects.completions(queue)
        return "", self._before_another(link)

    def _before_another(self, link: Link) -> list[Completion]:
        """Returns the completions of an unsignaled bind: those in front of a SEND behind the bind."""
        pair = link.connection.pair
        behind = self.objects.wr_id()
        post_receives(pair.requester, [self.objects.wr_id()])
        pair.responder.post_send(SendRequest("SEND", behind))
        completions: list[Completion] = []
        while not completions or completions[-1].wr_id != behind:
            more = self.objects.completions(pair.responder)
            if not more:
                return completions
            completions += more
            if more[-1].status != "SUCCESS":
                return completions
        self.objects.completions(pair.requester)
        return completions[:-1]

    def _words_of(self, done: Completion) -> list[str]:
        name = "bind" if done.wr_id == self._wr_id else "another wr_id"
        return [done.status, name, *([done.opcode] if done.status == "SUCCESS" else [])]
