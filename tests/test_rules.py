"""The registry of rules: permanent ids, and mistakes in files of rules. Malformed files of rules are in
tests/malformed; test_tables.py reads them."""

from pathlib import Path

import pytest

from conformance.model.rules import Registry
from conformance.tables.rules_file import read_registry
from samples import laid, registry

RULE = """\
  - id: {id}
    statement: Something holds.
    document: a page
    section: NOTES
    level: must
    layer: kernel
    needs: [odp]
    since: "12"
    failure_means: Something breaks.
    quote: Something holds
"""


def read(tmp_path: Path, **files: str) -> tuple[Registry, list[str]]:
    """Reads a folder with these rules files, by verb; returns the rules, and the mistakes as `file:line:column:
    message`."""
    laid(tmp_path, {f"{verb}/rules.yaml": text for verb, text in files.items()})
    found, mistakes = read_registry([tmp_path], tmp_path)
    return found, [str(mistake) for mistake in mistakes]


def test_a_rule_is_read_whole(tmp_path: Path) -> None:
    found, mistakes = read(tmp_path, reg_mr="verb: ibv_reg_mr\nrules:\n" + RULE.format(id="VND-01"))
    rule = found["VND-01"]
    assert mistakes == []
    assert (rule.verb, rule.level, rule.layer) == ("ibv_reg_mr", "must", "kernel")
    assert (rule.needs, rule.since) == (("odp",), "12")
    assert (rule.quote, rule.unquoted) == ("Something holds", "")
    assert str(rule.location) == "reg_mr/rules.yaml:3:9"


def test_a_rule_without_a_quote_says_why(tmp_path: Path) -> None:
    text = RULE.format(id="VND-01").replace("quote: Something holds", "unquoted: It is secret.")
    found, mistakes = read(tmp_path, reg_mr="verb: ibv_reg_mr\nrules:\n" + text)
    assert mistakes == []
    texts = found["VND-01"].as_data()
    assert "quote" not in texts
    assert texts["unquoted"] == "It is secret."


def test_rules_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    files = {verb: f"verb: api\nrules:\n{RULE.format(id=id_)}" for verb, id_ in (("b", "AB-01"), ("a", "ZZ-01"))}
    found, mistakes = read(tmp_path, **files)
    assert (list(found), mistakes) == (["ZZ-01", "AB-01"], [])


USED = "verb: api\nrules:\n" + RULE.format(id="AB-01")
RETIRED = "verb: api\nrules: []\nretired:\n  - {id: AB-01, why: it said the same as AB-02}\n"


@pytest.mark.parametrize(
    ("a", "b", "mistake"),
    [
        (USED, USED, "b/rules.yaml:3:9: duplicate rule id AB-01 (first at a/rules.yaml:3:9)"),
        (USED, RETIRED, "a/rules.yaml:3:9: rule id AB-01 is retired (b/rules.yaml:4:10); choose a new one"),
        (RETIRED, RETIRED, "b/rules.yaml:4:10: duplicate retired rule id AB-01 (first at a/rules.yaml:4:10)"),
    ],
)
def test_an_id_is_used_or_retired_once_in_all_files(tmp_path: Path, a: str, b: str, mistake: str) -> None:
    assert read(tmp_path, a=a, b=b)[1] == [mistake]


def test_mistakes_come_file_by_file_from_top_to_bottom(tmp_path: Path) -> None:
    bad = "verb: api\nrules:\n" + RULE.format(id="AB-01").replace("must", "shall").replace("section", "sektion")
    locations = [one.split(": ")[0] for one in read(tmp_path, a=bad, b="rules: [] \nverb: *x")[1]]
    assert locations == ["a/rules.yaml:3:5", "a/rules.yaml:6:5", "a/rules.yaml:7:12", "b/rules.yaml:2:7"]


def test_every_rule_has_a_short_name_of_its_own() -> None:
    shorts = [rule.short for rule in registry().values()]
    without = [rule.id for rule in registry().values() if not 0 < len(rule.short) <= 60]
    assert without == [], "titles of defects need the key `short`, of at most 60 characters"
    assert len(set(shorts)) == len(shorts)
