"""Whatever a file contains, the loader returns cases or located mistakes, and the same ones every time.

Derandomized, so that a run in CI fails because of a change and not by chance.
"""

import functools
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.model import capability, vocabulary
from conformance.tables.loader import parse_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT
from conformance.verbs import ENUMS, ArgumentSpec
from conformance.yamldoc.nodes import Mistake, Node, TextError, read_bytes
from launched import ended
from samples import registry

REAL = sorted(path for path in CASES.glob("*/*.yaml"))
NAME = "cases/reg_mr/sample.yaml"

# More at night. RDMA_CTS_FUZZED is also that of test_fuzzed_results.py.
FUZZED = int(os.environ.get("RDMA_CTS_FUZZED", "120"))
quick = settings(derandomize=True, max_examples=FUZZED)
HEALTH_CHECKS = quick.suppress_health_check
# Reading a real table takes some 10 ms, and there are many.
few = settings(
    quick,
    max_examples=max(1, FUZZED // 12),
    suppress_health_check=[*HEALTH_CHECKS, HealthCheck.function_scoped_fixture],
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
    """Reads a file of rules. If it has mistakes, checks their locations."""
    (folder / "v").mkdir(exist_ok=True)
    (folder / "v" / "rules.yaml").write_bytes(data)
    _, mistakes = read_registry([folder], folder)
    if mistakes:
        check_locations(mistakes, data)


@quick
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_location(data: bytes) -> None:
    load(data)


_SIGNS = (
    "- ¦: ¦? ¦[¦]¦{¦}¦, ¦&p ¦*p ¦!¦!!str ¦!<x>¦'¦#¦<<¦yes¦true¦~¦0x¦99999999999999999999¦é¦$¦$p¦${p}¦bit ¦verb: ¦"
    'each: ¦buf¦.¦+¦page¦`¦@¦|\n¦>-\n¦"¦\n¦\n  ¦\n    ¦\t¦\r¦%YAML 1.1\n¦---\n¦...\n¦\\U00110000¦\\ud800¦\\x¦'
    "\ufeff¦\u2028¦\x85¦\x00¦rows:\n"
)
FRAGMENTS = st.sampled_from(_SIGNS.split("¦"))


@quick
@given(st.lists(FRAGMENTS, max_size=30).map("".join))
def test_any_heap_of_yaml_signs_is_read_or_refused_with_a_location(text: str) -> None:
    load(text.encode())


TEXTS = st.text(max_size=8) | st.sampled_from(["$a", "$", "yes", "buf", "success", "1 page", "bit 3", f"bit {9**20}"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.dates() | st.binary(max_size=4)
STRUCTURES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@quick
@given(STRUCTURES, st.booleans(), st.booleans())
def test_any_structure_that_yaml_can_write_is_read_or_refused_with_a_location(
    structure: object, flow: bool, wide: bool
) -> None:
    text = yaml.safe_dump(structure, default_flow_style=flow, allow_unicode=wide, width=20)
    load(text.encode("utf-8", "surrogatepass"))


ODD = st.sampled_from([None, True, 0, -1, 7, "", "x", "$p", "$r", [], ["x"], {}, {"x": 1}, "bit 3"])


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Usually a value of the right kind, now and then an odd one."""
    return st.integers(0, 19).flatmap(lambda die: ODD if die == 19 else usual)


def words(*names: str) -> st.SearchStrategy[str]:
    return st.sampled_from(names)


def mapping(
    required: dict[str, st.SearchStrategy[Any]] | None = None, **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with the required keys and any of the others."""
    return st.fixed_dictionaries(
        {key: mostly(value) for key, value in (required or {}).items()},
        optional={key: mostly(value) for key, value in optional.items()},
    )


QUANTITIES = st.sampled_from(["buf", "buf.size - 1", "1 page", "SIZE_MAX", "mr.rkey", "$p", 1, "new.addr"])
SIZES = st.sampled_from(["1 page", 4096, "1 MiB", "2 hugepages"])
FLAGS = st.lists(words("LOCAL_WRITE", "REMOTE_WRITE", "MW_BIND", "bit 12", "$q"), max_size=2, unique=True)
SGES = st.lists(mapping({"addr": QUANTITIES, "length": QUANTITIES, "lkey": QUANTITIES}), max_size=2)
OF_KIND: dict[str, Callable[[ArgumentSpec], st.SearchStrategy[Any]]] = {
    "object": lambda parameter: words(parameter.of, parameter.default or "pd"),
    "quantity": lambda parameter: QUANTITIES,
    "flags": lambda parameter: FLAGS if "access" in parameter.of else st.just([]),
    "value": lambda parameter: words(*ENUMS[parameter.of].short_names),
    "word": lambda parameter: words(*parameter.words),
    "sges": lambda parameter: SGES,
}


def arguments(call: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a call, those that have no default always among them."""
    drawn = {key: (OF_KIND[each.kind](each), each.default is None) for key, each in vocabulary.CALLS[call].items()}
    return mapping(
        {key: strategy for key, (strategy, needed) in drawn.items() if needed},
        **{key: strategy for key, (strategy, needed) in drawn.items() if not needed},
    )


def then(call: str) -> st.SearchStrategy[Any]:
    """Possible expectations of a call."""
    more = {"code": words("ERR_CMD"), "completion": words("none")}  # the vocabulary has the words of the others
    fitting = {
        key: more[key] if key in more else words(*spec.words)
        for key, spec in vocabulary.EXPECTATIONS.items()
        if spec.calls and call in spec.calls
    }
    errno = words("EINVAL", "any") | st.just(["EINVAL", "ENOMEM"])
    return words(*vocabulary.OUTCOMES) | mapping({"outcome": words(*vocabulary.OUTCOMES)}, errno=errno, **fitting)


def step(judged: bool) -> st.SearchStrategy[dict[str, Any]]:
    """A call of its own before or after the judged one."""
    return st.sampled_from(sorted(vocabulary.CALLS)).flatmap(
        lambda call: st.builds(
            lambda own, expected: {**own, "call": call, **({"then": expected} if judged else {})},
            arguments(call),
            then(call),
        )
    )


def given_objects() -> st.SearchStrategy[dict[str, Any]]:
    """Objects of every kind under the names that calls have as defaults."""
    kinds = sorted(vocabulary.MEMORY_KINDS)
    return mapping(
        {
            "memory": st.fixed_dictionaries({"buf": mostly(mapping({"kind": words(*kinds), "size": SIZES}))}),
            "mrs": st.fixed_dictionaries({"mr": mostly(arguments("ibv_reg_mr"))}),
        },
        pds=st.just(["other"]),
        memlock=SIZES,
        qps=st.fixed_dictionaries({"qp": mapping({"type": words("RC", "UD")}, state=words("RTS"))}),
        windows=st.fixed_dictionaries({"mw": mapping({"type": words("1", "2")}, pd=words("pd"))}),
        dmabufs=st.fixed_dictionaries({"dmabuf": mapping({"kind": words("udmabuf"), "size": SIZES})}),
    )


def row(call: str) -> st.SearchStrategy[dict[str, Any]]:
    """A row without id and axes."""
    return mapping(
        {"rules": st.just(["REG-01"]), "when": arguments(call), "then": then(call)},
        needs=st.just([capability.NAMES[0]]),
        given=given_objects(),
        before=st.lists(step(judged=False), max_size=1),
        afterwards=st.lists(step(judged=True), max_size=1),
        entries=st.lists(words(*vocabulary.ENTRIES), min_size=1, max_size=2, unique=True),
        hazardous=st.booleans(),
        note=st.just("a remark"),
    )


def table_of(verb: str) -> st.SearchStrategy[dict[str, Any]]:
    """A table of a verb with a few mistakes or none."""
    rows = st.lists(row(vocabulary.DEFAULT_CALLS.get(verb, verb)), min_size=1, max_size=2)
    table = mapping({"given": given_objects()}, about=st.just("Its output."))
    return st.builds(functools.partial(finished, verb), table, rows)


AXES: dict[str, list[Any]] = {"p": [1, "1 page"], "q": [[], ["REMOTE_READ"]]}


def finished(verb: str, table: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table with ids, with the axes that its rows use, and with the right count of cases."""
    count = 0
    for number, each in enumerate(rows):
        used = [axis for axis in AXES if f"${axis}" in str(each)]
        entries = each.get("entries")
        count += 2 ** len(used) * (len(entries) if isinstance(entries, list) and entries else 1)
        each["id"] = "-".join([f"row{number}", *(f"${axis}" for axis in used)])
        if used:
            each["each"] = {axis: AXES[axis] for axis in used}
    return {"verb": verb, "cases": count, **table, "rows": rows}


class Plain(yaml.SafeDumper):
    """A dumper that writes a value out each time it occurs."""

    def ignore_aliases(self, data: object) -> bool:
        return True


TABLE = st.sampled_from(vocabulary.VERBS).flatmap(table_of)


@quick
@given(TABLE)
def test_anything_shaped_like_a_table_becomes_cases_or_located_mistakes(table: dict[str, Any]) -> None:
    path = Path(table["verb"].removeprefix("ibv_")) / "sample.yaml"
    load(yaml.dump(table, Dumper=Plain, sort_keys=False, width=10_000).encode(), path)


Mutation = Callable[[bytes, random.Random], bytes]


def flip_a_byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def delete_a_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def repeat_a_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def indent_a_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    lines[at] = b"  " + lines[at] if chance.random() < 0.5 else lines[at].removeprefix(b"  ")
    return b"".join(lines)


def rename_a_key(data: bytes, chance: random.Random) -> bytes:
    keys = list(re.finditer(rb"[a-z_]+(?=:)", data))
    key, other = chance.choice(keys), chance.choice(keys)
    return data[: key.start()] + other[0] + data[key.end() :]


def swap_two_tokens(data: bytes, chance: random.Random) -> bytes:
    tokens = list(re.finditer(rb"[\w$.]+|[\[\]{},:-]", data))
    first, second = sorted(chance.sample(tokens, 2), key=lambda token: token.start())
    between = data[first.end() : second.start()]
    return data[: first.start()] + second[0] + between + first[0] + data[second.end() :]


def cut_off_the_end(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


MUTATIONS: list[Mutation] = [
    flip_a_byte,
    delete_a_line,
    repeat_a_line,
    indent_a_line,
    rename_a_key,
    swap_two_tokens,
    cut_off_the_end,
]


@functools.cache
def excerpt(path: Path) -> bytes:
    """A table cut so that it is read within a few milliseconds: its head and some of its rows."""
    text = path.read_text()
    head, rows, body = text.partition("\nrows:\n")
    pieces = re.split(r"(?m)^(?=  - id: )", body)
    return (head + rows + "".join(pieces[:12])).encode()


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}/{path.stem}")
@few
@given(mutation=st.sampled_from(MUTATIONS), seed=st.integers(0, 2**32))
def test_a_real_file_with_one_change_becomes_cases_or_located_mistakes(
    path: Path, mutation: Mutation, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    if path.name == "rules.yaml":
        load_rules(mutation(path.read_bytes(), chance), tmp_path_factory.getbasetemp())
    else:
        load(mutation(excerpt(path), chance), path)


DUMP = """
import hashlib, re
from conformance.tables.suite import load_suite
suite = load_suite()
everything = "\\n".join(map(repr, [*suite.registry.values(), *suite.cases]))
# A set is the same in whatever order it is shown.
everything = re.sub(r"frozenset\\(\\{([^}]*)\\}\\)", lambda found: str(sorted(found[1].split(", "))), everything)
print(*(case.id for case in suite.cases), hashlib.sha256(everything.encode()).hexdigest(), sep="\\n")
"""


def dump(hash_seed: str) -> str:
    """Every case's id and a digest of all data of all cases, from a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = ended(sys.executable, "-c", DUMP, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_expansion_is_the_same_in_every_process_and_for_every_hash_seed() -> None:
    first, second = dump("1"), dump("4242")
    assert first == second
    assert len(first.splitlines()) > 100
