"""`rdma-cts describe` as a person and as a program would use it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import pytest

from commands import describe
from conformance.errors import UserError
from conformance.verbs import ENUMS, VERBS

Shown = Callable[..., str]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    describe.add_arguments(parser)
    return describe.execute(parser.parse_args(arguments))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """What a command line prints; it must succeed."""

    def of(*arguments: str) -> str:
        assert run(*arguments) == 0
        return capsys.readouterr().out

    return of


def test_without_a_verb_each_is_listed_in_a_line(shown: Shown) -> None:
    lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == list(VERBS)
    assert lines[0].endswith(VERBS["ibv_reg_mr"].summary)


@pytest.mark.parametrize("name", VERBS)
def test_a_description_holds_every_statement_and_fits_a_terminal(name: str, shown: Shown) -> None:
    text = shown(name)
    assert max(map(len, text.splitlines())) <= 100
    verb, flat = VERBS[name], " ".join(text.split())
    statements = [
        verb.signature,
        verb.summary,
        verb.document,
        verb.success,
        verb.failure,
        *verb.notes,
        *verb.discrepancies,
        *(each.meaning for each in verb.parameters),
        *(cause for code in verb.return_codes for cause in code.causes),
    ]
    assert [each for each in statements if each not in flat] == []


def test_the_prefix_may_be_left_out(shown: Shown) -> None:
    assert shown("reg_mr") == shown("ibv_reg_mr")


def test_flags_are_printed_with_their_numbers(shown: Shown) -> None:
    rows = [line.split() for line in shown("ibv_reg_mr").splitlines()]
    assert ["IBV_ACCESS_RELAXED_ORDERING", "0x100000"] in [row[:2] for row in rows]
    for each in ENUMS["ibv_access_flags"]:
        assert [each.name, hex(each.value or 0)] in [row[:2] for row in rows]


def test_the_return_codes_say_what_is_left_of_the_region(shown: Shown) -> None:
    text = " ".join(shown("ibv_rereg_mr").split())
    assert "IBV_REREG_MR_ERR_CMD (-4) the command failed [MR unusable]" in text


def test_the_other_dialect_is_mentioned_and_shown_when_asked_for(shown: Shown) -> None:
    mainline, experimental = shown("ibv_rereg_mr"), shown("ibv_rereg_mr", "--dialect", "experimental")
    assert "--dialect experimental" in mainline
    assert "ibv_rereg_mr_attr" not in mainline
    assert "struct ibv_rereg_mr_attr *attr" in experimental
    assert "--dialect mainline" in experimental
    assert ["IBV_ACCESS_ALLOCATE_MR", "?"] in [line.split()[:2] for line in experimental.splitlines()]
    assert "ialect" not in shown("ibv_reg_mr")
    assert shown("--dialect", "experimental").split()[0] == "ibv_rereg_mr"


def test_structs_behind_pointers_are_printed_when_asked_for(shown: Shown) -> None:
    assert "struct ibv_device:" not in shown("ibv_reg_mr")
    assert "struct ibv_device:" in shown("ibv_reg_mr", "--structs")
    assert "struct ibv_mw_bind_info:" in shown("ibv_bind_mw")


def test_json_holds_the_enumerations_and_structs_it_names(shown: Shown) -> None:
    data = json.loads(shown("ibv_bind_mw", "--json"))
    assert data["signature"] == VERBS["ibv_bind_mw"].signature
    assert data["convention"]["name"] == "ZERO_OR_ERRNO"
    assert {"ibv_qp_type", "ibv_send_flags", "ibv_access_flags", "ibv_mw_type"} <= set(data["enums"])
    assert [field["name"] for field in data["structs"]["ibv_mw_bind"]["fields"]] == ["wr_id", "send_flags", "bind_info"]
    vendors = json.loads(shown("ibv_rereg_mr", "--dialect", "experimental", "--json"))
    flags = {each["name"]: each["value"] for each in vendors["enums"]["ibv_access_flags"]["values"]}
    assert flags["IBV_ACCESS_ALLOCATE_MR"] is None
    codes = json.loads(shown("ibv_advise_mr", "--json"))["return_codes"]
    assert [code["name"] for code in codes][:2] == ["EOPNOTSUPP", "ENOSYS"]


def test_json_lists_all_verbs_with_their_dialects(shown: Shown) -> None:
    listed = json.loads(shown("--json"))
    assert {each["name"]: each["dialects"] for each in listed} == {
        name: ["mainline", "experimental"] if name == "ibv_rereg_mr" else ["mainline"] for name in VERBS
    }


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ibv_reg_rm", "did you mean ibv_reg_mr"),
        ("bindmw", "did you mean ibv_bind_mw"),
        ("xyzzy", "`rdma-cts describe` lists them all"),
        ("", "`rdma-cts describe` lists them all"),
    ],
)
def test_an_unknown_verb_is_a_usage_error_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        run(name)
    assert caught.value.status == 2
    assert caught.value.message == f"unknown verb {name!r}"
    assert caught.value.hint.startswith(hint)


def test_a_dialect_that_a_verb_lacks_is_a_usage_error() -> None:
    with pytest.raises(UserError, match="no document describes an experimental ibv_reg_mr") as caught:
        run("ibv_reg_mr", "--dialect", "experimental")
    assert caught.value.status == 2
    assert "ibv_rereg_mr" in caught.value.hint
