"""Libraries in the real guest that attack the program that has loaded them. None gets a PASS for a case that did not
pass. One preloaded library (hostile.c) has all attacks, and each row selects one of them. All rows are in one run."""

from pathlib import Path

import pytest

import bad_driver
from conformance.results.records import Recorded, read_results
from kinds import rows
from launched import run_in_guest

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
DEADLINE_S = "30"
FIRST_PAGES = 201
# The attacks in the order of hostile.c, and the allowed verdicts on their rows.
ATTACKS = {attack: verdicts.split() for attack, verdicts in rows("hostile_libraries")}
ROWS = ("first", *ATTACKS, "last")


def tables(folder: Path) -> Path:
    """Makes a folder for --cases: a valid registration for each attack, and one more before and after all attacks."""
    text = f"verb: ibv_reg_mr\ncases: {len(ROWS)}\nrows:\n"
    for number, row in enumerate(ROWS):
        pages = FIRST_PAGES + number - 1 if row in ATTACKS else 4
        text += f"  - id: {row}\n    rules: [REG-01]\n"
        text += f"    given: {{memory: {{buf: {{kind: anonymous, size: {pages} pages}}}}}}\n"
        text += f"    when: {{access: [LOCAL_WRITE]}}\n    then: {'refused' if row == 'alter' else 'success'}\n"
    (folder / "reg_mr").mkdir(parents=True)
    (folder / "reg_mr" / "hostile.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    place = tmp_path_factory.mktemp("hostile")
    overlay = bad_driver.overlay(place / "overlay", "hostile.c")
    chosen = ("--cases", tables(place / "tables"), "--overlay", overlay, "-k", "hostile/", "--guests", "1")
    forged = f"RDMA_CTS_FORGED={','.join(f'reg_mr/hostile/{row}' for row in ROWS)}"
    how = ("--guest-env", forged, "--deadline", DEADLINE_S, "--no-confirm")
    done = run_in_guest(place / "out", *chosen, *how)
    assert done.returncode == 1, done.stdout + done.stderr
    print(done.stdout)
    return read_results(place / "out")


def test_each_attack_affects_only_its_case(run: Recorded) -> None:
    assert len(ATTACKS) >= 10
    wanted = {"first": ["PASS"], **ATTACKS, "last": ["PASS"]}
    found = {line["case"].rpartition("/")[2]: line["verdict"] for line in run.results}
    assert found.keys() == wanted.keys()
    assert {row: verdict for row, verdict in found.items() if verdict not in wanted[row]} == {}
    assert run.footer is not None
    assert run.footer["complete"] is True


def test_no_forged_word_is_recorded(run: Recorded) -> None:
    assert all(line["reason"] != "forged" for line in run.results)
    (altered,) = [line for line in run.results if line["case"].endswith("/alter")]
    assert "the worker says PASS" in altered["reason"]
    assert "its observation gives FAIL" in altered["reason"]
