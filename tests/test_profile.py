"""Device profiles: how one is read, and what `present` and `absent` do to the judgement on a case."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.judging import Judgement, apply_profile
from conformance.model.profile import Profile
from conformance.model.verdict import Verdict
from conformance.tables.profile import read_profile
from conformance.tables.suite import ROOT

ABSENT = Profile("rxe", absent={"xrc": "the driver has no XRC transport"})
PRESENT = Profile("rxe", present={"odp": "the driver pages on demand"})
REFUSED = Judgement(Verdict.UNSUPPORTED, "the call was refused; the device does not declare xrc", ("seen",))
WORKED = Judgement(Verdict.PASS, "the call returned 0", ("seen",))
FAILED = Judgement(Verdict.FAIL, "the call should succeed, returned EINVAL", ("seen",))


def test_the_profile_that_is_shipped_can_be_read() -> None:
    profile = read_profile(ROOT / "profiles" / "rxe.yaml")
    assert profile.device == "rxe"
    assert set(profile.present) & {"odp", "atomics"}
    assert "xrc" in profile.absent


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("device: rxe\nabsent: {xcr: why}\n", ":2:10: unknown capability 'xcr'"),
        ("device: rxe\npresent: {xrc: why}\nabsent: {xrc: why}\n", "xrc is both present and absent"),
        ("absent: {xrc: why}\n", "lacks the key 'device'"),
        ("device: rxe\nmissing: {}\n", "unknown key 'missing'"),
    ],
)
def test_a_mistake_is_located(text: str, mistake: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        read_profile(path)
    assert str(path) in str(raised.value)
    assert mistake in str(raised.value)
    assert raised.value.status == 2


def test_what_must_be_present_and_is_not_fails() -> None:
    refused = Judgement(Verdict.UNSUPPORTED, "the call was refused; the device does not declare odp")
    pinned = apply_profile(refused, ("odp",), ("odp",), PRESENT)
    assert pinned.verdict == Verdict.FAIL
    assert pinned.reason.endswith("yet by the profile odp must be present: the driver pages on demand")


def test_what_is_absent_as_expected_is_unsupported_for_the_reason_that_the_profile_gives() -> None:
    judged = apply_profile(REFUSED, ("xrc", "odp"), ("xrc",), ABSENT)
    assert judged == Judgement(
        Verdict.UNSUPPORTED, f"{REFUSED.reason} (by the profile: the driver has no XRC transport)", ("seen",)
    )


@pytest.mark.parametrize("judgement", [WORKED, FAILED])
def test_what_is_declared_although_it_is_absent_by_the_profile_is_a_remark(judgement: Judgement) -> None:
    judged = apply_profile(judgement, ("xrc",), (), ABSENT)
    assert (judged.verdict, judged.reason) == (judgement.verdict, judgement.reason)
    assert judged.notes == (
        "seen",
        "the profile says that xrc is absent (the driver has no XRC transport), yet the device has it:"
        " update the profile",
    )


def test_what_works_without_being_declared_is_a_remark_too() -> None:
    judged = apply_profile(WORKED, ("xrc",), ("xrc",), ABSENT)
    assert judged.verdict == Verdict.PASS
    assert judged.notes[-1].endswith("yet the device has it: update the profile")


@pytest.mark.parametrize(
    ("judgement", "needs", "undeclared"),
    [
        (WORKED, ("odp",), ()),  # the case does not need what is absent
        (FAILED, ("xrc",), ("xrc",)),  # not declared, and not shown to work either
        (Judgement(Verdict.UNREACHABLE, "no swap"), ("xrc",), ()),  # nothing was tried
        (Judgement(Verdict.BROKEN, "no memory"), ("xrc",), ()),
    ],
)
def test_otherwise_an_absent_capability_changes_nothing(
    judgement: Judgement, needs: tuple[str, ...], undeclared: tuple[str, ...]
) -> None:
    assert apply_profile(judgement, needs, undeclared, ABSENT) == judgement
