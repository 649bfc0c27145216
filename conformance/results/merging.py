"""Merges the shards that several machines have recorded into one run, as if one machine had run all cases. The
functions are pure; directories appear only in messages. tables/tiers.py divides cases into shards, and
commands/merge.py reads and writes the files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.record import HeaderRecord, OtherRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.prior_sessions import stack_change
from conformance.results.records import Recorded, account_of, footer_record
from conformance.results.waivers import Waivers
from conformance.tables.suite import Suite
from conformance.tables.tiers import Shard, left_out

# Further keys whose values must be the same in all headers, each with its name in messages. `stack_change` compares the
# suite, the device and the environment.
_SAME = (
    ("stack", "the stack"),
    ("tier", "the tier"),
    ("subject", "what is judged"),
    ("seed", "the seed"),
)
# The keys that are omitted from the headers of the shards, because the merged header has them.
_ONCE = ("type", "schema", "rules", "controls", "planned", "left_out", "shard")
_OPTION = "--shard"
_KEPT_RECORDS = (
    "worker",
    "confirmation",
)  # a merged run needs no other records, because it is never resumed


@dataclass(frozen=True)
class Part:
    """A recorded shard: its number, and the ids of all cases of the whole run."""

    folder: Path
    recorded: Recorded
    shard: Shard
    whole: tuple[str, ...]

    @property
    def planned(self) -> list[str]:
        return self.recorded.header["planned"]

    @property
    def undecided(self) -> int:
        """The number of the shard's cases without a result."""
        done = {each["case"] for each in self.recorded.results if each["verdict"] != Verdict.MISSED}
        return sum(case not in done for case in self.planned)


def part_of(folder: Path, recorded: Recorded) -> Part:
    """Returns the shard in a directory. Raises UserError if the run in the directory is not a shard."""
    facts: Any = recorded.header.get("shard")
    if facts is None:
        raise UserError(f"{folder} is not a shard of a run", hint="run --shard K/N makes one")
    try:
        shard, whole, planned = (
            Shard(facts["number"], facts["of"]),
            facts["whole"],
            recorded.header["planned"],
        )
        if not 1 <= shard.number <= shard.of or not all(
            isinstance(each, str) for each in (*whole, *planned)
        ):
            raise ValueError
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: its header does not say which shard it is") from error
    return Part(folder, recorded, shard, tuple(whole))


def check(parts: Sequence[Part]) -> None:
    """Raises UserError if `parts` are not different shards of one run."""
    first, *others = parts
    for part in others:
        if change := _change(first, part):
            raise UserError(f"{part.folder} is not of the same run as {first.folder}: {change}")
    by_number: dict[int, Part] = {}
    by_case: dict[str, Part] = {}
    for part in parts:
        if (same := by_number.setdefault(part.shard.number, part)) is not part:
            raise UserError(
                f"{same.folder} and {part.folder} are both shard {part.shard}",
                hint="name only one of them",
            )
        strangers = {case for case in part.planned if case not in part.whole}
        strangers |= {each["case"] for each in part.recorded.results} - set(part.planned)
        if strangers:
            raise UserError(f"{part.folder}: its shard does not have the case {min(strangers)}")
        for case in part.planned:
            if (same := by_case.setdefault(case, part)) is not part:
                raise UserError(f"{same.folder} and {part.folder} both have the case {case}")


def _change(first: Part, part: Part) -> str:
    one, other = first.recorded.header, part.recorded.header
    if first.shard.of != part.shard.of:
        return f"the run has {part.shard.of} shards in {part.folder}, but {first.shard.of} shards in {first.folder}"
    if change := stack_change(one, other):
        return change
    for key, name in _SAME:
        if one.get(key) != other.get(key):
            return f"{name} differs: {one.get(key)} and {other.get(key)}"
    if _under_test(one) != _under_test(other):
        return "the software under test differs"
    for key, name in (("waivers", "the waivers differ"), ("profile", "the profile differs")):
        files: list[Any] = [one.get(key) or {}, other.get(key) or {}]
        if files[0].get("sha256") != files[1].get("sha256"):
            return name
    return "different cases were selected" if first.whole != part.whole else ""


def _under_test(header: HeaderRecord) -> dict[str, Any]:
    """Returns the hashes of the software under test. Omits the image's hash, because each machine builds its image."""
    found: dict[str, Any] = {**(header.get("under_test") or {})}
    given = found.get("given")
    return {**found, "given": {**given, "image": ""}} if isinstance(given, dict) else found


def missing(parts: Sequence[Part]) -> Iterator[str]:
    """Yields lines about the missing parts of the run: absent shards, and shards that are incomplete."""
    of, numbers = parts[0].shard.of, {part.shard.number for part in parts}
    if lacking := set(parts[0].whole) - {case for part in parts for case in part.planned}:
        names = ", ".join(
            str(Shard(number, of)) for number in range(1, of + 1) if number not in numbers
        )
        yield f"without {'shards' if ',' in names else 'shard'} {names}: {_cases(len(lacking))} no result"
    for part in parts:
        if part.undecided or part.recorded.footer is None:
            cut = "was cut short" if part.recorded.footer is None else "is incomplete"
            of_them = f"{part.undecided:,} of its {_cases(len(part.planned))} no result"
            yield f"shard {part.shard} ({part.folder}) {cut}: {of_them}"


def _cases(count: int) -> str:
    return "1 case has" if count == 1 else f"{count:,} cases have"


def merged(parts: Sequence[Part], suite: Suite, waivers: Waivers | None) -> Recorded:
    """Returns the run that consists of these shards, which `check` has accepted. `suite` must have their tables."""
    parts = sorted(parts, key=lambda part: part.shard.number)
    whole = parts[0].whole
    results: dict[str, ResultRecord] = {}
    others: list[OtherRecord] = []
    workers = 0
    for part in parts:
        for record in part.recorded.results:
            worker = record.get("worker")
            results[record["case"]] = {**record, "worker": worker + workers} if worker else record
        others += [each for each in part.recorded.others if each["type"] in _KEPT_RECORDS]
        boots = part.recorded.footer.get("boots") or 0 if part.recorded.footer else 0
        workers += max([boots, *(record.get("worker") or 0 for record in part.recorded.results)])
    header = _header(parts, suite)
    in_order = [results[case] for case in whole if case in results]
    footers = [part.recorded.footer for part in parts if part.recorded.footer]
    footer = footer_record(
        whole,
        in_order,
        suite.registry,
        duration_s=max(
            (each.get("duration_s") or 0.0 for each in footers), default=0.0
        ),  # shards run in parallel
        boots=workers,
        resumed=sum(each.get("resumed") or 0 for each in footers),
    )
    if any("confirmation" in each for each in footers):
        tried = Recorded(header, others=others).confirmations
        not_tried = sum(each.get("confirmation", {}).get("not_tried", 0) for each in footers)
        footer["confirmation"] = account_of(tried, not_tried)
    if waivers:
        footer["waivers"] = waivers.account(in_order, header)
    return Recorded(header, in_order, footer, others=others)


def _header(parts: Sequence[Part], suite: Suite) -> HeaderRecord:
    """Returns the header of the merged run: the first shard's header, with the headers of all shards in `shards`."""
    first, whole = parts[0].recorded.header, parts[0].whole
    header = first.copy()
    del header["shard"]
    header["planned"] = list(whole)
    header["left_out"] = len(left_out(suite.cases, whole))
    header["started"] = min(part.recorded.header.get("started") or "" for part in parts)
    header["argv"] = _without_shard(first.get("argv") or [])
    header["shards"] = [_of_shard(part) for part in parts]
    return header


def _of_shard(part: Part) -> dict[str, Any]:
    footer: dict[str, Any] = {**(part.recorded.footer or {})}
    figures = {key: footer.get(key) for key in ("complete", "duration_s", "boots", "resumed")}
    own = {key: value for key, value in part.recorded.header.items() if key not in _ONCE}
    return {
        "number": part.shard.number,
        "of": part.shard.of,
        "cases": len(part.planned),
        **figures,
        **own,
    }


def _without_shard(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of the whole run: a shard's arguments without `--shard`."""
    words, kept = iter(argv), []
    for word in words:
        if word == _OPTION:
            next(words, None)
        elif not word.startswith(f"{_OPTION}="):
            kept.append(word)
    return kept
