"""Tests whose defect a violation is. The owner follows from the evidence in a result; docs/findings/places.yaml has the
place of each defect in the sources, which was found by reading them."""

import importlib
import sys
from collections.abc import Mapping
from functools import cache

import pytest
import yaml

from conformance.defects import Defect, defects_of, is_of_stack
from conformance.defects.owner import CORE, DEVICE, LIBIBVERBS, PROVIDER, UNKNOWN
from conformance.tables.suite import ROOT

sys.path.insert(0, str(ROOT / "docs"))
quotes = importlib.import_module("quotes")
PLACES: Mapping[str, str] = yaml.safe_load((ROOT / "docs/findings/places.yaml").read_text())
STACKS = ("rxe", "mended", "siw", "trixie")
# The words in a place, and the layer that they are in.
_LAYERS = {
    "drivers/infiniband/core": CORE,
    "drivers/infiniband/sw": DEVICE,
    "libibverbs/": LIBIBVERBS,
    "providers/": PROVIDER,
}


@cache
def defects(stack: str) -> Mapping[str, Defect]:
    defects = defects_of(quotes.recorded(stack).results)
    return {defect.fingerprint: defect for defect in defects}


def layer_of(place: str) -> str:
    """Returns the layer of the first file that a place names."""
    positions = {word: place.find(word) for word in _LAYERS}
    first = min(
        (word for word in positions if positions[word] >= 0), key=lambda word: positions[word]
    )
    return _LAYERS[first]


def test_the_evidence_names_the_layer_of_the_source():
    shown = {name for stack in STACKS for name in defects(stack)} & PLACES.keys()
    layer_count = 0
    for fingerprint in sorted(shown):
        of_stacks = [defects(stack).get(fingerprint) for stack in STACKS]
        owners = [defect.answering for defect in of_stacks if defect is not None]
        layers = {owner.layer for owner in owners} - {UNKNOWN}
        assert layers <= {layer_of(PLACES[fingerprint])}, fingerprint
        layer_count += len(layers)
        assert all(owner.because for owner in owners), fingerprint
    assert layer_count > 20


@pytest.mark.parametrize("stack", ["rxe", "trixie"])
def test_every_defect_of_rxe_has_a_place_in_the_sources(stack):
    assert [name for name in defects(stack) if name not in PLACES] == []


@pytest.mark.parametrize("stack", STACKS)
def test_no_device_fails_for_a_defect_of_another_layer(stack):
    for defect in defects(stack).values():
        if defect.answering.layer in (CORE, LIBIBVERBS):
            records = [symptom.record for symptom in defect.symptoms]
            assert all(map(is_of_stack, records)), defect.title


def sections() -> Mapping[str, Mapping[str, str]]:
    """The defects of docs/findings.md by fingerprint, each with the lines of its section by name."""
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    by_fingerprint: dict[str, Mapping[str, str]] = {}
    for section in page.split("\n## ")[1:]:
        lines = (line.removeprefix("- ").partition(": ") for line in section.splitlines())
        named = {name: text for name, _, text in lines if text}
        by_fingerprint[named["fingerprint"].strip("`")] = named
    return by_fingerprint


@pytest.mark.parametrize("fingerprint", sections())
def test_a_defect_of_the_findings_is_owned_by_the_layer_of_its_place(fingerprint):
    section = sections()[fingerprint]
    layer, _, evidence = section["answered by"].partition(" (")
    # A death elsewhere in the kernel does not tell whose it is; its place in the source may.
    assert layer == layer_of(section["where"]) or "is on the stack" in evidence
    assert evidence
