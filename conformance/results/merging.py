"""Merges the shards that several machines have recorded into one run, as if one machine had run all cases. The
functions are pure; directories appear only in messages. tables/tiers.py divides cases into shards, and
commands/merge.py reads and writes the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.record import HeaderRecord, OtherRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.new_records import account_of, footer_record
from conformance.results.prior_sessions import stack_change
from conformance.results.records import Recorded
from conformance.results.waivers import Waivers
from conformance.tables.suite import Suite
from conformance.tables.tiers import Shard

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
# a merged run needs no other records, because it is never resumed
_KEPT_RECORDS = ("worker", "confirmation")


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
        done = {
            result["case"]
            for result in self.recorded.results
            if result["verdict"] != Verdict.MISSED
        }
        return sum(case not in done for case in self.planned)


def part_of(folder: Path, recorded: Recorded) -> Part:
    """Returns the shard in a directory. Raises UserError if the run in the directory is not a shard."""
    facts: Any = recorded.header.get("shard")
    if facts is None:
        raise UserError(f"{folder} is not a shard of a run", hint="run --shard K/N makes one")
    try:
        shard, all_ids, planned = (
            Shard(facts["number"], facts["of"]),
            facts["whole"],
            recorded.header["planned"],
        )
        if not 1 <= shard.number <= shard.of or not all(
            isinstance(case_id, str) for case_id in (*all_ids, *planned)
        ):
            raise ValueError
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: its header does not say which shard it is") from error
    return Part(folder, recorded, shard, tuple(all_ids))


def check(parts: Sequence[Part]) -> None:
    """Raises UserError if `parts` are not different shards of one run."""
    first, *later = parts
    for part in parts:
        if len(set(part.whole)) < len(part.whole):
            raise UserError(f"{part.folder}: its run has planned a case twice")
    for part in later:
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
        strangers |= {result["case"] for result in part.recorded.results} - set(part.planned)
        if strangers:
            raise UserError(f"{part.folder}: its shard does not have the case {min(strangers)}")
        for case in part.planned:
            if (same := by_case.setdefault(case, part)) is not part:
                raise UserError(f"{same.folder} and {part.folder} both have the case {case}")


def _change(first: Part, part: Part) -> str:
    first_header, other = first.recorded.header, part.recorded.header
    if first.shard.of != part.shard.of:
        return f"the run has {part.shard.of} shards in {part.folder}, but {first.shard.of} shards in {first.folder}"
    if change := stack_change(first_header, other):
        return change
    for key, name in _SAME:
        if first_header.get(key) != other.get(key):
            return f"{name} differs: {first_header.get(key)} and {other.get(key)}"
    if _under_test(first_header) != _under_test(other):
        return "the software under test differs"
    for key, name in (("waivers", "the waivers differ"), ("profile", "the profile differs")):
        files: list[Any] = [first_header.get(key) or {}, other.get(key) or {}]
        if files[0].get("sha256") != files[1].get("sha256"):
            return name
    if first.whole != part.whole:
        return "different cases were selected"
    return ""


def _under_test(header: HeaderRecord) -> dict[str, Any]:
    """Returns the hashes of the software under test. Omits the image's hash, because each machine builds its image."""
    under_test: dict[str, Any] = {**(header.get("under_test") or {})}
    given_files = under_test.get("given")
    if isinstance(given_files, dict):
        return {**under_test, "given": {**given_files, "image": ""}}
    return under_test


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
            if part.recorded.footer is None:
                cut = "was cut short"
            else:
                cut = "is incomplete"
            number = len(part.planned)
            of_them = f": {part.undecided:,} of its {_cases(number)} no result"
            if not part.undecided:
                of_them = f" after its last case; all {number:,} cases have results"
            yield f"shard {part.shard} ({part.folder}) {cut}{of_them}"


def _cases(count: int) -> str:
    if count == 1:
        return "1 case has"
    return f"{count:,} cases have"


def merged(parts: Sequence[Part], suite: Suite, waivers: Waivers | None) -> Recorded:
    """Returns the run that consists of these shards, which `check` has accepted. `suite` must have their tables."""
    parts = sorted(parts, key=lambda part: part.shard.number)
    all_ids = parts[0].whole
    results: dict[str, ResultRecord] = {}
    other_records: list[OtherRecord] = []
    workers = 0
    for part in parts:
        for record in part.recorded.results:
            worker = record.get("worker")
            results[record["case"]] = {**record, "worker": worker + workers} if worker else record
        other_records += [
            record for record in part.recorded.others if record["type"] in _KEPT_RECORDS
        ]
        if part.recorded.footer:
            boots = part.recorded.footer.get("boots") or 0
        else:
            boots = 0
        workers += max([boots, *(record.get("worker") or 0 for record in part.recorded.results)])
    header = _header(parts, suite)
    in_order = [results[case] for case in all_ids if case in results]
    footers = [part.recorded.footer for part in parts if part.recorded.footer]
    footer = footer_record(
        all_ids,
        in_order,
        suite.registry,
        duration_s=max(
            (footer.get("duration_s") or 0.0 for footer in footers),
            default=0.0,
        ),  # shards run in parallel
        boots=workers,
        resumed=sum(footer.get("resumed") or 0 for footer in footers),
    )
    if any("confirmation" in footer for footer in footers):
        tried = Recorded(header, others=other_records).confirmations
        not_tried = sum(footer.get("confirmation", {}).get("not_tried", 0) for footer in footers)
        footer["confirmation"] = account_of(tried, not_tried)
    if waivers:
        footer["waivers"] = waivers.account(in_order, header)
    return Recorded(header, in_order, footer, others=other_records)


def _header(parts: Sequence[Part], suite: Suite) -> HeaderRecord:
    """Returns the header of the merged run: the first shard's header, with the headers of all shards in `shards`."""
    first, whole_plan = parts[0].recorded.header, parts[0].whole
    header = first.copy()
    del header["shard"]
    header["planned"] = list(whole_plan)
    header["left_out"] = len(suite.left_out(whole_plan))
    header["started"] = min(part.recorded.header.get("started") or "" for part in parts)
    header["argv"] = _without_shard(first.get("argv") or [])
    header["shards"] = [_of_shard(part) for part in parts]
    return header


def _of_shard(part: Part) -> dict[str, Any]:
    footer: dict[str, Any] = {**(part.recorded.footer or {})}
    figures = {key: footer.get(key) for key in ("complete", "duration_s", "boots", "resumed")}
    header = {key: value for key, value in part.recorded.header.items() if key not in _ONCE}
    return {
        "number": part.shard.number,
        "of": part.shard.of,
        "cases": len(part.planned),
        **figures,
        **header,
    }


def _without_shard(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of the whole run: a shard's arguments without `--shard`."""
    words, words_kept = iter(argv), []
    for word in words:
        if word == _OPTION:
            next(words, None)
        elif not word.startswith(f"{_OPTION}="):
            words_kept.append(word)
    return words_kept
