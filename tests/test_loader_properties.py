"""Tests that for any file, the loader returns cases or located mistakes, and the same result every time. The examples
are derandomized, so that a run in CI fails because of a change and not by chance."""

from __future__ import annotations

import functools
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.tables.loader import parse_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT
from conformance.yamldoc.nodes import Mistake, Node, TextError
from conformance.yamldoc.parsing import read_bytes
from launched import ended
from samples import registry

REAL = sorted(path for path in CASES.glob("*/*.yaml"))
NAME = "cases/reg_mr/sample.yaml"

# There are more examples at night. test_old_results.py reads RDMA_CTS_FUZZED too.
FUZZED = int(os.environ.get("RDMA_CTS_FUZZED", "60"))
quick = settings(derandomize=True, max_examples=FUZZED)
# Reading a real table takes about 10 ms.
few = settings(
    quick,
    max_examples=16 if "RDMA_CTS_FUZZED" in os.environ else 2,
    suppress_health_check=[*quick.suppress_health_check, HealthCheck.function_scoped_fixture],
)


def check_locations(mistakes: list[Mistake] | tuple[Mistake, ...], data: bytes) -> None:
    """Checks that every mistake is located inside the text and that its line can be printed."""
    assert mistakes
    lines = data.decode("utf-8", "replace").split("\n")
    for mistake in mistakes:
        assert 1 <= mistake.location.line <= len(lines), mistake
        assert 1 <= mistake.location.column <= len(lines[mistake.location.line - 1]) + 1, mistake
        assert mistake.message
        assert "\n" not in str(mistake)
        str(mistake).encode()


def load(data: bytes, path: Path = Path(NAME)) -> Node | None:
    """Reads a table. If it has mistakes, checks their locations."""
    try:
        root = read_bytes(data, NAME)
    except TextError as error:
        check_locations(error.mistakes, data)
        return None
    table, mistakes = parse_table(root, path, registry())
    if mistakes:
        assert table is None
        check_locations(mistakes, data)
    else:
        assert table is not None
        assert table.cases
        assert len({case.id for case in table.cases}) == len(table.cases)
    return root


def load_rules(data: bytes, folder: Path) -> None:
    (folder / "v").mkdir(exist_ok=True)
    (folder / "v" / "rules.yaml").write_bytes(data)
    _, mistakes = read_registry([folder], folder)
    if mistakes:
        check_locations(mistakes, data)


_SIGNS = (
    "- ¦: ¦? ¦[¦]¦{¦}¦, ¦&p ¦*p ¦!¦!!str ¦!<x>¦'¦#¦<<¦yes¦true¦~¦0x¦99999999999999999999¦é¦$¦$p¦${p}¦bit ¦verb: ¦"
    'each: ¦buf¦.¦+¦page¦`¦@¦|\n¦>-\n¦"¦\n¦\n  ¦\n    ¦\t¦\r¦%YAML 1.1\n¦---\n¦...\n¦\\U00110000¦\\ud800¦\\x¦'
    "\ufeff¦\u2028¦\x85¦\x00¦rows:\n"
)
FRAGMENTS = st.sampled_from(_SIGNS.split("¦"))


@quick
@given(st.lists(FRAGMENTS, max_size=30).map("".join))
def test_random_yaml_syntax_is_read_or_refused_with_a_location(text):
    load(text.encode())


Mutation = Callable[[bytes, random.Random], bytes]


def flip_a_byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def splice(data: bytes, chance: random.Random) -> bytes:
    """Replaces up to two bytes, words or lines by up to two other bytes, words or lines of the text."""
    pieces = re.findall(chance.choice([rb"(?s).", rb"[\w$.]+|\s+|[^\w\s]", rb".*\n"]), data)
    at, since = chance.randrange(len(pieces)), chance.randrange(len(pieces))
    put = pieces[since : since + chance.randrange(3)]
    return b"".join([*pieces[:at], *put, *pieces[at + chance.randrange(3) :]])


def rename_a_key(data: bytes, chance: random.Random) -> bytes:
    keys = list(re.finditer(rb"[a-z_]+(?=:)", data))
    key, other = chance.choice(keys), chance.choice(keys)
    return data[: key.start()] + other[0] + data[key.end() :]


def cut_off_the_end(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


MUTATIONS = [flip_a_byte, splice, rename_a_key, cut_off_the_end]


@functools.cache
def excerpt(path: Path) -> bytes:
    """Returns the head and the first rows of a table, which are read in a few milliseconds."""
    text = path.read_text()
    head, rows, body = text.partition("\nrows:\n")
    pieces = re.split(r"(?m)^(?=  - id: )", body)
    return (head + rows + "".join(pieces[:12])).encode()


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}/{path.stem}")
@few
@given(mutation=st.sampled_from(MUTATIONS), seed=st.integers(0, 2**32))
def test_a_mutated_table_has_cases_or_located_mistakes(path, mutation, seed, tmp_path_factory):
    chance = random.Random(seed)
    if path.name == "rules.yaml":
        load_rules(mutation(path.read_bytes(), chance), tmp_path_factory.getbasetemp())
    else:
        load(mutation(excerpt(path), chance), path)


DUMP = """
import hashlib, re
from conformance.tables.loader import read_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT
registry, _ = read_registry([CASES], ROOT)
found = [read_table(path, path.name, registry) for path in sorted((CASES / "bind_mw").glob("*.yaml"))]
cases = [case for table, _ in found if table for case in table.cases]
everything = "\\n".join(map(repr, cases))
# Sets are sorted, because their order may differ.
everything = re.sub(r"frozenset\\(\\{([^}]*)\\}\\)", lambda found: str(sorted(found[1].split(", "))), everything)
print(*(case.id for case in cases), hashlib.sha256(everything.encode()).hexdigest(), sep="\\n")
"""


def dump(hash_seed: str) -> str:
    """Computes the ids of the cases and a digest of all their data in a separate process."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = ended(sys.executable, "-c", DUMP, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_expansion_does_not_depend_on_the_hash_seed():
    first, second = dump("1"), dump("4242")
    assert first == second
    assert len(first.splitlines()) > 100
