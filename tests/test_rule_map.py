"""Tests of the signs on the map of the rules."""

import re

from conformance.tables.suite import ROOT
from reports.digest import read

RXE = ROOT / "docs/runs/rxe.jsonl.xz"


def test_the_map_distinguishes_rules_of_a_dialect_that_were_not_judged(cli, tmp_path):
    page = tmp_path / "report.html"
    cli(0, "report", RXE, "--format", "html", "--out", page)
    text = page.read_text()
    run = read(RXE)
    signs = re.findall(r'aria-label="([\w-]+): ([^"]*)"><i class="v UNREACHABLE">(.)</i>', text)
    assert {rule for rule, _, sign in signs if sign == "v"} == run.verdicts.apart
    unreachable = {rule for rule, _, sign in signs if sign == "-"}
    assert unreachable
    assert unreachable.isdisjoint(run.verdicts.apart)
    for _, words, sign in signs:
        assert words == {"v": "of a vendor's dialect, not judged", "-": "UNREACHABLE"}[
            sign
        ].replace("'", "&#39;")
    assert '<i class="v UNREACHABLE">v</i> of a vendor' in text
