"""Tests of what is known of the causes of defects, and of its cached file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import cache
from fixtures.guest import changes
from reports import causes
from reports.digest import read

RUN = Path(__file__).with_name("recorded_violations") / "forky.jsonl"

CHANGE = """
subject: Check the length
about: Without the check, a window covers too much.
rules: [BIND-04]
case: bind_mw/codes/too-long
defects: [0123456789ab]
edits:
  - {file: FILE, in: bind, before: "return 0;", text: "check();"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one change and a cache, of which nothing has been loaded."""
    mended = tmp_path / "mended"
    mended.mkdir()
    (mended / "length.yaml").write_text(CHANGE.replace("FILE", "linux/rxe_mw.c"))
    (tmp_path / "docs" / "findings").mkdir(parents=True)
    (tmp_path / "docs" / "findings" / causes.PLACES).write_text("0123456789ab: rxe_mw.c, bind\n")
    monkeypatch.setattr(changes, "FOLDER", mended)
    monkeypatch.setattr(causes, "ROOT", tmp_path)
    monkeypatch.setattr(causes, "DOCS", tmp_path / "docs")
    monkeypatch.setenv(cache.DIRECTORY, str(tmp_path / "derived"))
    return tmp_path


def test_the_cause_of_a_recorded_defect_is_perhaps_that_of_its_other_cases(folder):
    run = read(RUN)
    defect = next(item for item in run.violations.defects if len(item.cases) > 1)
    name, (known, other, *_) = defect.fingerprint, defect.cases
    (folder / "docs" / "findings" / causes.PLACES).write_text(f"{name}: sw/rxe/rxe_mw.c, bind\n")
    change = CHANGE.replace("0123456789ab", name).replace("FILE", "linux/rxe_mw.c")
    (folder / "mended" / "length.yaml").write_text(change)
    (folder / "ci" / "rxe").mkdir(parents=True)
    (folder / "ci" / "rxe" / "waivers.yaml").write_text(
        f'waivers: [{{defect: "0", also: ["{name}"], cases: ["{known}"]}}, {{rule: REG-01}}]'
    )
    causes.load.cache_clear()
    shown = {symptom.case: symptom for symptom in defect.symptoms}
    certain = list(causes.causes(defect, run, shown[known]))
    assert [kind for kind, _ in certain] == ["in the source", "fixed by"]
    perhaps = list(causes.causes(defect, run, shown[other]))
    assert [kind for kind, _ in perhaps] == ["perhaps in the source", "perhaps fixed by"]
    assert all(text.endswith(f"(known of other cases, such as {known})") for _, text in perhaps)
    assert causes.unsure([name], known) == causes.unsure(["none"], other) == ""
    under_test: Any = {"given": {"changes": {"length": "0" * 64}}}
    mended = replace(run, header={**run.header, "under_test": under_test})
    told = dict(causes.causes(defect, mended, shown[known]))
    assert told["not fixed by"] == "length, which this stack has: Check the length"
    assert "fixed by" not in told


def _loaded() -> causes.Causes:
    """What another process would load."""
    causes.load.cache_clear()
    return causes.load()


@pytest.fixture(autouse=True)
def _forget():
    yield
    causes.load.cache_clear()


def test_what_is_known_comes_from_the_cache_until_a_file_changes(folder, monkeypatch):
    first = _loaded()
    assert first.places == {"0123456789ab": "rxe_mw.c, bind"}
    mend = causes.Mend(
        "length",
        "Check the length",
        "Without the check, a window covers too much.",
        "linux",
    )
    assert first.mends == {"0123456789ab": [mend]}
    assert mend.command.endswith("rdma-cts patches --linux TREE --out DIR")
    with monkeypatch.context() as patched:
        patched.setattr(
            changes, "read_changes", lambda _: pytest.fail("the changes were read again")
        )
        assert _loaded() == first
    (folder / "mended" / "length.yaml").write_text(CHANGE.replace("FILE", "libibverbs/cmd.c"))
    assert _loaded().mends["0123456789ab"] == [mend._replace(trees="libibverbs")]
    (folder / "docs" / "findings" / causes.PLACES).unlink()
    assert _loaded().places == {}


@pytest.mark.parametrize("content", ["{", "[]", "[{}]", json.dumps([{}, {"0123456789ab": [[1]]}])])
def test_a_damaged_file_of_the_cache_is_made_again(folder, content):
    first = _loaded()
    [file] = (folder / "derived").glob("causes-*")
    file.write_text(content)
    assert _loaded() == first


def test_a_change_that_mends_two_fingerprints_of_a_defect_is_named_once(folder):
    path = folder / "mended" / "length.yaml"
    path.write_text(
        CHANGE.replace("FILE", "linux/rxe_mw.c").replace("[0123", "[ba9876543210, 0123")
    )
    _loaded()
    assert [mend.name for mend in causes.mends_of(["0123456789ab", "ba9876543210"])] == ["length"]
