"""Tests that the published JSON Schemas are up to date, agree with the loader, and detect mistakes."""

import importlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import corpus
from commands import schema as command
from conformance.defects import Severity
from conformance.model import memory_kinds, vocabulary
from conformance.model.verdict import OF_RULES, VERDICTS, VIOLATIONS
from conformance.results.conclusions import Standing
from conformance.tables import arguments, keys, rules_file
from conformance.tables.schema import rules_schema, table_schema
from conformance.tables.suite import CASES, ROOT
from conformance.verbs import ArgumentSpec

VALIDATORS = {
    "table": jsonschema.Draft202012Validator(table_schema()),
    "rules": jsonschema.Draft202012Validator(rules_schema()),
}
REAL = sorted(str(path.relative_to(CASES)) for path in CASES.glob("*/*.yaml"))
ROW: dict[str, Any] = {
    "id": "a",
    "rules": ["REG-01"],
    "when": {"access": ["LOCAL_WRITE"]},
    "then": "success",
}


def accepts(data: object, of: str = "table") -> bool:
    """Whether the schema accepts the data as a table, or as rules."""
    return bool(VALIDATORS[of].is_valid(data))


def with_row(**changes: Any) -> dict[str, Any]:
    """Returns a table whose only row is a valid row with these changes."""
    return {"verb": "ibv_reg_mr", "cases": 1, "rows": [{**ROW, **changes}]}


@pytest.mark.parametrize("of", command.SCHEMAS)
def test_a_schema_is_valid_by_draft_2020_12_and_its_published_copy_is_up_to_date(of):
    jsonschema.Draft202012Validator.check_schema(json.loads(command.text(of)))
    path = ROOT / "docs" / f"{of}.schema.json"
    assert path.read_text() == command.text(of) + "\n", (
        f"run: ./rdma-cts list schema {of} > docs/{path.name}"
    )


def test_the_schemas_of_summaries_and_waivers_have_all_verdicts_and_severities():
    summary, waivers = (json.loads(command.text(of)) for of in ("summary", "waivers"))
    properties, severities = summary["properties"], [severity.label for severity in Severity]
    assert [*properties["cases"]["properties"]] == [*VERDICTS]
    assert [*properties["standings"]["properties"]] == [*Standing]
    assert properties["rules"]["additionalProperties"]["enum"] == [*OF_RULES]
    assert [*properties["severities"]["properties"]] == severities
    of_rule, of_defect = waivers["properties"]["waivers"]["items"]["anyOf"]
    assert of_rule["properties"]["observed"]["properties"]["verdict"]["enum"] == [*VIOLATIONS]
    assert of_defect["properties"]["observed"]["properties"]["severity"]["enum"] == severities


@pytest.mark.parametrize("name", REAL)
def test_every_real_file_validates(name):
    data = yaml.load((CASES / name).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    validator = VALIDATORS["rules" if Path(name).name == rules_file.FILE_NAME else "table"]
    assert [error.message for error in validator.iter_errors(data)] == []


@pytest.mark.parametrize("name", corpus.DOCUMENTS)
def test_a_malformed_document_does_not_validate_unless_it_is_beyond_the_schema(name):
    try:
        data = yaml.safe_load(corpus.DOCUMENTS[name])
    except (yaml.YAMLError, ValueError):
        return
    assert accepts(data, "rules" if corpus.is_rules(name) else "table") == (
        name in corpus.BEYOND_THE_SCHEMA
    )


def test_the_schema_has_the_expectations_of_the_loader():
    definitions = table_schema()["$defs"]
    keys = set()
    for name in (name for name in definitions if name.partition(" ")[0] == "then"):
        keys |= {
            key
            for definition in definitions[name]["anyOf"]
            for key in definition.get("properties", ())
        }
    assert keys == set(arguments._THEN_KEYS)


def test_a_new_call_and_a_new_kind_of_memory_appear_in_the_schema(monkeypatch):
    vocabulary_made = {"access": ArgumentSpec("flags", "ibv_access_flags")}
    with monkeypatch.context() as with_both:
        with_both.setattr(
            vocabulary, "CALLS", {**vocabulary.CALLS, "ibv_new_verb": vocabulary_made}
        )
        with_both.setattr(
            memory_kinds,
            "MEMORY_KINDS",
            {**memory_kinds.MEMORY_KINDS, "pmem": "persistent memory"},
        )
        importlib.reload(keys)
        text = json.dumps(table_schema())
    importlib.reload(keys)
    assert "arguments of ibv_new_verb" in text
    assert '"pmem"' in text


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "a-$flag", "each": {"flag": ["LOCAL_WRITE"]}, "when": {"access": ["$flag"]}},
        {"each": {"some": [[], ["LOCAL_WRITE"]]}, "when": {"access": "$some"}},
        {"when": "$arguments"},
        {"when": {"access": [], "length": "$n pages", "addr": "buf + $offset", "pd": "$pd"}},
        {"then": "$outcome"},
        {"then": {"outcome": "$outcome", "errno": "$errno"}},
        {"then": {"outcome": "refused", "errno": ["EINVAL", "$errno"]}},
        {"given": "$given"},
        {
            "given": {
                "memory": {"buf": {"kind": "$kind", "size": "$size"}},
                "pds": "$pds",
                "memlock": "$limit",
            },
        },
        {"given": {"memory": {"buf": "$memory"}}},
        {"afterwards": [{"call": "$call", "mr": "new", "then": "success"}]},
        {"afterwards": [{"call": "ibv_dereg_mr", "mr": "$mr", "then": "$then"}]},
        {"needs": ["$need"], "entries": ["$entry"], "hazardous": "$hazard"},
    ],
)
def test_an_axis_may_be_used_wherever_a_value_may_be_used(changes):
    assert accepts(with_row(**changes))


FITTING = [
    4097,
    *[
        "buf",
        "buf.size + 1 page - 1",
        "0x10 KiB",
        " - 1",
        "1pages",
        "pager",
        "SIZE_MAX",
        "buf + -1",
    ],
]
NOT_FITTING = ["", "007", "1 2", "buf +", "1.5", "buf * 2"]


@pytest.mark.parametrize("text", [*FITTING, *NOT_FITTING])
def test_quantities_are_checked_as_in_the_loader(text):
    assert accepts(with_row(when={"access": [], "length": text})) == (text in FITTING)
