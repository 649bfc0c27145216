"""What a run was made on, as its header describes it: the device, and the stack under test with its changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from conformance.errors import format_count
from conformance.model.record import HeaderRecord
from conformance.recorded_command import LEFT_OUT
from reports.text import flat, format_value

# keys of the user's builds in the header
_OWN_BUILDS = ("kernel", "linux", "modules", "rdma_core", "overlay")
UNCOMMITTED = "uncommitted file"
_TREES = ("linux", "rdma_core_tree")  # keys of the user's source trees
_PRELOAD = "etc/ld.so.preload"
_MOST_CHANGES = 2  # the most changes of the mended stack in a headline
_MOST_VALUE = 60  # the most characters of an environment variable's value in a headline
# The words for a part of what was under test, by a pattern of its key in the header; other parts are called by their key.
_WORDS = {
    r"given\.environment\.(.*)": r"variable \1",
    r"given\.expired": "Debian suites with expired package lists",
    r"given\.image": "hash of the guest's image",
    r"given\.driver\.sha256": "hash of the driver as built",
    r"given\.driver\.files\.(.*)": r"hash of \1 as built",
    r"given\.(.*?)(?:_tree)?\.commit": r"commit of --\1",
    r"given\.(.*)\.sha256": r"hash of --\1",
    r"given\.(.*?)\.files\.(.*)": r"hash of \2 in --\1",
    r"given\.changes\.(.*)": r"change \1",
    r"given\.provider\.(.*)": r"hash of \1 as built",
    r"kernel\.build_id": "build id of the kernel",
    r"modules\.(.*)\.build_id": r"build id of \1",
    r"modules\.(.*)\.taint": r"taint of \1",
    r"libraries\.(.*)": r"hash of \1",
}
# reports show only the first digits of a hash
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")


class Environment:
    def __init__(self, header: HeaderRecord) -> None:
        self._header = header

    @property
    def device(self) -> str:
        return str(self._header["device"].get("name", "?"))

    @property
    def tables_sha256(self) -> str:
        """The hash of the tables; empty if the run does not name it."""
        return str(self._header["suite"].get("tables_sha256") or "")

    @property
    def profile_sha256(self) -> str:
        """The hash of the profile; empty without a profile."""
        profile = self._header.get("profile")
        return str(profile.get("sha256", "")) if profile else ""

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """The stack under test as texts by name. A text is empty if its fact is unknown."""
        header = self._header
        return format_facts(
            {
                "device": self.device,
                "driver": header["device"].get("driver"),
                "firmware": header["device"].get("fw") or "none",
                "kernel": header["env"].get("kernel"),
                "rdma-core": header["env"].get("rdma_core"),
                "stack": header["stack"],
                "transport": header["device"].get("transport"),
                "tier": header.get("tier"),
                "shard": _shard(header),
                "seed": header.get("seed"),
                "started": header["started"].replace("T", " "),
                "suite": header["suite"].get("version"),
                "tables": self.tables_sha256[:12],
                "profile": _profile(header),
                "judged again": _judged_again(header),
            },
        )

    @cached_property
    def under_test(self) -> Mapping[str, str]:
        """The first digits of the hashes of what was under test: kernel, modules, libraries, and the user's builds."""
        under_test = self._header.get("under_test")
        if not isinstance(under_test, dict):
            return {}
        texts = {name: _DIGEST.sub(r"\1", text) for name, text in flat(under_test)}
        for tree in _TREES:
            if uncommitted := texts.pop(f"given.{tree}.uncommitted", ""):
                commit = f"given.{tree}.commit"
                texts[commit] = texts.get(commit, "") + with_uncommitted(uncommitted)
        return texts

    @property
    def named_under_test(self) -> Mapping[str, str]:
        """`under_test` by the names that reports show."""
        return {called(name): text for name, text in self.under_test.items()}

    @cached_property
    def capabilities(self) -> Mapping[str, str]:
        """The ids, capabilities and limits that the device reports, as texts by name."""
        device = self._header["device"]
        capabilities: dict[str, object] = {
            name: device[name] for name in ("vendor_id", "vendor_part_id") if name in device
        }
        capabilities.update(device.get("caps", {}))
        return dict(flat(capabilities))

    @cached_property
    def _given(self) -> Mapping[str, object]:
        """What the user or the suite has put into the stack; the values may be of any type."""
        under_test: object = self._header.get("under_test")
        if not isinstance(under_test, dict):
            return {}
        given = under_test.get("given")
        return given if isinstance(given, dict) else {}

    @cached_property
    def changes(self) -> frozenset[str]:
        """The names of the changes of the mended stack that were under test."""
        changes = self._given.get("changes")
        return frozenset(changes) if isinstance(changes, dict) else frozenset()

    @property
    def changed_stack(self) -> str:
        """The changes of the stack and the user's builds in it, with hashes; empty if the stack is as shipped."""
        parts = "; ".join(_own_parts(self._given))
        return f"the stack under test was changed: {parts}" if parts else ""

    @property
    def name(self) -> str:
        """The heading of this run's column in a report."""
        env = self._header["env"]
        return f"{self.device}, {self._header['stack']}, kernel {env.get('kernel', '?')}"

    @property
    def when(self) -> str:
        """When the run began, to the minute; empty if its file does not tell."""
        return self.facts["started"][: len("2026-11-29 01:44")]

    @property
    def about(self) -> str:
        """The device, the versions and the time, in one line."""
        facts = self.facts
        parts = [f"{self.device} ({facts['driver']})" if facts["driver"] else self.device]
        parts += [
            f"{name} {facts[name]}" for name in ("kernel", "rdma-core", "stack") if facts[name]
        ]
        parts += [self.when] if self.when else []
        return ", ".join(parts)


def format_facts(facts: Mapping[str, object]) -> dict[str, str]:
    """Returns facts as texts by name. A text is empty if its fact is unknown."""
    return {name: "" if value is None else format_value(value) for name, value in facts.items()}


def _profile(header: HeaderRecord) -> str:
    """Returns the name and the hash of the profile's file."""
    profile = header.get("profile")
    if not profile:
        return ""
    words = Path(str(profile.get("file", ""))).name, str(profile.get("sha256", ""))[:12]
    return " ".join(filter(None, words))


def _judged_again(header: HeaderRecord) -> str:
    """Returns the tables with which a run was recorded that `judge` has judged again; empty for any other run."""
    again = header.get("judged_again")
    if not again:
        return ""
    tables = str((again["suite"] or {}).get("tables_sha256") or "unknown")[:12]
    return f"{again['at'].replace('T', ' ')}, recorded with the tables {tables}"


def _own_parts(given: Mapping[str, object]) -> Iterator[str]:
    """Yields each part of the stack that is not as shipped."""
    changes = given.get("changes")
    if isinstance(changes, dict) and changes:
        names = [f"{name} {str(digest)[:8]}" for name, digest in changes.items()]
        if len(names) > _MOST_CHANGES:
            names[_MOST_CHANGES:] = [f"{len(names) - _MOST_CHANGES} more"]
        yield f"{format_count(len(changes), 'change')} ({', '.join(names)})"
    for name in _OWN_BUILDS:
        if (build := given.get(name)) and isinstance(build, dict):
            own_files = build.get("files")
            if isinstance(own_files, dict) and _PRELOAD in own_files:
                preloads = " with a preload"
            else:
                preloads = ""
            files = f"files {str(build.get('sha256'))[:8]}"  # this hash is no commit
            tree = given.get(f"{name}_tree")  # of which a build was made
            if commit := commit_text(tree if isinstance(tree, dict) else build):
                files = f"commit {commit} ({files})"
            yield f"{name.replace('_', '-')}, {files}{preloads}"
    if (environment := given.get("environment")) and isinstance(environment, dict):
        yield f"environment {', '.join(_assignment(*item) for item in environment.items())}"


def commit_text(source: Mapping[str, object]) -> str:
    """Returns the commit of a source tree, and how many of its files have other contents; empty without a commit."""
    commit = str(source.get("commit", ""))[:12]
    uncommitted = source.get("uncommitted")
    return commit + with_uncommitted(str(uncommitted)) if commit and uncommitted else commit


def with_uncommitted(number: str) -> str:
    return f" with {number} {UNCOMMITTED}{'' if number == '1' else 's'}"


def _assignment(name: str, value: object) -> str:
    if value == LEFT_OUT:
        return name
    return f"{name}={str(value)[:_MOST_VALUE]}"


def called(name: str) -> str:
    """Returns the shown name for a key of Digest.under_test, whose values are hashes and environment variables."""
    for pattern, words in _WORDS.items():
        if re.fullmatch(pattern, name):
            return re.sub(pattern, words, name).replace("--rdma_core", "--rdma-core")
    return f"hash of {name}"


def _shard(header: HeaderRecord) -> str:
    if shard := header.get("shard"):
        return f"{shard.get('number', '?')} of {shard.get('of', '?')}"
    if header.get("shards"):
        return f"{len(header['shards'])}, merged"
    return ""
