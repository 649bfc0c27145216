"""Derived files: tables are read only once, and no outdated or damaged file is ever used."""

import marshal
import os
import pickle
import shutil
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands import __main__ as commands
from conformance import cache
from conformance.device import compiled
from conformance.errors import UserError
from conformance.header.compare import ask
from conformance.header.program import Answers, Toolchain
from conformance.model.rules import Registry
from conformance.tables import loader
from conformance.tables import suite as suites
from conformance.tables.suite import CASES, ROOT, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from fixtures.guest import freezing, job, template
from fixtures.guest.kept import COMPILED, IMAGES, MENDED, MODULES, TEMPLATES, WORKSHOPS
from fixtures.system import cache as system_cache
from kinds import Patch
from launched import ended
from patience import PATIENCE_S
from samples import laid, user_error
from trial.kernel.modules import MUTANTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The directory of derived files for a suite with the tables of two verbs."""
    place = tmp_path / "derived"
    monkeypatch.setenv(cache.DIRECTORY, str(place))
    for verb in ("fork_init", "import_mr"):
        shutil.copytree(CASES / verb, tmp_path / "cases" / verb)
    monkeypatch.setattr(suites, "CASES", tmp_path / "cases")
    return place


def never(*_: object) -> Any:
    raise AssertionError("a cached file was made again")


def test_a_suite_that_was_read_is_not_read_again(folder, monkeypatch):
    first = load_suite()
    monkeypatch.setattr(suites, "_read_suite", never)
    again = load_suite()
    assert again == first
    assert again is not first
    assert [case.id for case in again.cases] == [case.id for case in first.cases]


def test_a_mistake_in_a_folder_of_a_user_does_not_make_the_other_tables_be_read_again(
    folder, tmp_path, monkeypatch
):
    read: list[str] = []
    read_table = loader.read_table

    def noted(path: Path, *more: Any) -> Any:
        read.append(path.name)
        return read_table(path, *more)

    monkeypatch.setattr(loader, "read_table", noted)
    own = tmp_path / "own"
    laid(own, {"fork_init/mine.yaml": "verb: ibv_fork_init\nrows: []\n"})
    with pytest.raises(UserError, match="at least one row"):
        load_suite([own])
    assert len(read) > 1
    for text in ("verb: ibv_fork_init\n", "rows: 5\n"):
        laid(own, {"fork_init/mine.yaml": text})
        read.clear()
        with pytest.raises(UserError, match=r"mine\.yaml"):
            load_suite([own])
        assert read == ["mine.yaml"]


def test_the_file_of_a_suite_does_not_depend_on_the_directory_of_the_project(tmp_path, monkeypatch):
    digests = set()
    for name in ("here", "there"):
        place = tmp_path / name
        for verb in ("fork_init", "import_mr"):
            shutil.copytree(CASES / verb, place / "cases" / verb)
        (place / "conformance").symlink_to(ROOT / "conformance")
        monkeypatch.setattr(suites, "ROOT", place)
        digests.add(suites._digest_of_sources([place / "cases"]))
    assert len(digests) == 1
    laid(place, {"cases/fork_init/more.yaml": ""})
    assert suites._digest_of_sources([place / "cases"]) not in digests


def test_the_files_that_a_process_has_used_are_remembered(folder):
    load_suite()
    (file,) = folder.glob("suite-*.pickle")
    assert file in cache.used()


def test_only_the_tables_that_a_question_is_about_are_read(folder, monkeypatch):
    suite = load_suite()
    again, loads = load_suite(), pickle.loads
    read: list[bytes] = []

    def observed(data: bytes) -> Any:
        read.append(data)
        return loads(data)

    monkeypatch.setattr(pickle, "loads", observed)
    of_imports = next(table for table in suite.tables if table.name == "import_mr/imports")
    first = of_imports.cases[0]
    assert again.find(first.id) == first
    assert again.named({first.id}) == [first]
    assert again.find("import_mr/none/first") is None
    assert len(read) == 1
    assert again.left_out([]) == [case.id for case in of_tier(suite.cases, DEFAULT)]
    assert again.left_out([first.id]) == suite.left_out([first.id])
    for rule in {rule for case in suite.cases for rule in case.rules}:
        assert again.of_rule(rule) == [case for case in suite.cases if rule in case.rules]
    assert again.of_rule("NONE-01") == []
    again.load()
    assert len(read) == len(suite.tables)
    assert again == suite


def test_a_changed_table_is_read_again(folder, tmp_path):
    text = (CASES / "fork_init" / "children.yaml").read_text()
    own_table = laid(tmp_path / "own", {"fork_init/own.yaml": text})
    before = load_suite([own_table])
    laid(own_table, {"fork_init/own.yaml": f"{text}\n# a remark\n"})
    assert load_suite([own_table]).tables_sha256 != before.tables_sha256
    shutil.rmtree(own_table / "fork_init")
    with pytest.raises(UserError, match="no table in this folder"):
        load_suite([own_table])


def test_of_a_changed_suite_only_the_changed_table_is_parsed(folder, tmp_path, monkeypatch):
    before = load_suite()
    parsed: list[str] = []
    read_table = loader.read_table

    def observed(path: Path, shown: str, registry: Registry) -> Any:
        parsed.append(path.stem)
        return read_table(path, shown, registry)

    monkeypatch.setattr(loader, "read_table", observed)
    table = tmp_path / "cases" / "fork_init" / "children.yaml"
    table.write_text(f"{table.read_text()}# a remark\n")
    again = load_suite()
    assert parsed == ["children"]
    assert again.tables == before.tables
    assert again.tables_sha256 != before.tables_sha256
    rules = table.with_name("rules.yaml")
    rules.write_text(f"{rules.read_text()}# a remark\n")
    load_suite()
    assert len(parsed) == 1 + len(before.tables), "the rules decide what rows mean"
    table.write_text("verb: ibv_fork_init\n")
    with pytest.raises(UserError, match=r"children\.yaml"):
        load_suite()


def test_a_damaged_file_is_ignored(folder, monkeypatch):
    first = load_suite()
    (file,) = folder.glob("suite-*.pickle")
    monkeypatch.setattr(suites, "_read_suite", lambda *_: first)
    pickled = file.read_bytes()
    of_a_case = pickled.replace(b"import_mr", b"imbort_mr")
    for content in (b"", b"not a pickle", b"\x80\x05N.", pickled[:-9], of_a_case):
        file.write_bytes(content)
        assert load_suite() is first


def test_a_fifo_in_the_place_of_a_file_is_ignored(folder):
    load_suite()
    (file,) = folder.glob("suite-*.pickle")
    file.unlink()
    os.mkfifo(file)
    assert load_suite().cases


HEADER = """
#define ANSWER 41
enum answer { IS = ANSWER + 1 };
"""


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """A compiler and a header of a few lines."""
    laid(tmp_path, {"infiniband/verbs.h": HEADER})
    return Toolchain.found(None, [tmp_path], PATIENCE_S)


def answered(toolchain: Toolchain, *expressions: str) -> Answers:
    return ask(toolchain, toolchain.preprocessed(), expressions, {}, ())


def test_a_header_that_was_compared_is_not_compiled_again(folder, toolchain, monkeypatch):
    first = answered(toolchain, "IS", "NOWHERE")
    assert (first.values, list(first.refused)) == ({"IS": 42}, ["NOWHERE"])
    monkeypatch.setattr(Toolchain, "ask", never)
    assert answered(toolchain, "IS", "NOWHERE") == first


@pytest.mark.parametrize(
    "damage",
    [b"", b"[]", b"[[], {}]", b'[{"IS": "42"}, {}]', b'[{"IS": 42}, {"NOWHERE": 1}]'],
)
def test_damaged_answers_are_compiled_again(folder, toolchain, damage):
    first = answered(toolchain, "IS")
    (file,) = folder.glob("answers-*.json")
    file.write_bytes(damage)
    assert answered(toolchain, "IS") == first


def test_another_header_or_expression_is_compiled_again(folder, toolchain, tmp_path):
    assert answered(toolchain, "IS").values == {"IS": 42}
    assert answered(toolchain, "IS + 1").values == {"IS + 1": 43}
    (tmp_path / "infiniband" / "verbs.h").write_text(HEADER.replace("41", "6"))
    assert answered(toolchain, "IS").values == {"IS": 7}


@pytest.mark.parametrize("directory", ["", "/dev/null/below"])
def test_nothing_is_stored_without_a_directory_that_can_be_made(monkeypatch, directory):
    monkeypatch.setenv(cache.DIRECTORY, directory)
    if not directory:
        monkeypatch.delenv(cache.DIRECTORY)
    cache.store("a", b"1")
    assert cache.lookup("a") is None


def test_the_files_used_last_are_kept(folder):
    for number in range(cache.KEPT):
        cache.store(f"{number}", b"")
        os.utime(folder / f"{number}", (number, number))
    assert cache.lookup("0")  # this counts as a use
    cache.store("new", b"")
    assert {path.name for path in folder.iterdir()} == {"0", "new", *map(str, range(2, cache.KEPT))}


@pytest.mark.parametrize("damage", [None, b"not a library"])
def test_a_compiled_source_is_compiled_once(folder, tmp_path, monkeypatch, damage):
    source = tmp_path / "source.c"
    source.write_text(
        "const unsigned rdma_cts_layout[] = {1, 7}; int answer(void) { return 42; }\n",
    )
    find, layout = compiled.library.__wrapped__, (("seven", 7),)
    first = find(source, layout)
    assert first
    assert first.answer() == 42
    if damage is None:
        monkeypatch.setattr("shutil.which", lambda _: None)
    else:
        (file,) = folder.glob("source-*.so")
        file.unlink()  # not overwritten, because the loaded library is a mapping of the file
        file.write_bytes(damage)
    again = find(source, layout)
    assert again
    assert again.answer() == 42
    source.write_text(source.read_text().replace("42", "43"))
    changed = find(source, layout)
    assert (changed and changed.answer()) == (None if damage is None else 43)


@pytest.mark.parametrize("what", ["file", "folder", "parent"])
def test_cached_files_that_others_can_write_are_not_used(folder, what):
    cache.store("a", b"1")
    assert cache.lookup("a")
    writable = {"file": folder / "a", "folder": folder, "parent": folder.parent}[what]
    writable.chmod(writable.stat().st_mode | 0o002)
    assert cache.lookup("a") is None


def test_a_module_is_packed_with_the_same_time_on_every_host(tmp_path):
    times = set()
    for number, name in enumerate(("one", "two")):
        module = laid(tmp_path / name, {"a.py": "1\n"}) / "a.py"
        os.utime(module, (number, number))
        job.date_by_content(module.parent)
        times.add(module.stat().st_mtime)
    assert len(times) == 1


@pytest.mark.parametrize(
    "arguments, devices, keeps",
    [
        (["list"], ["any0"], True),
        (["run", "--guest"], ["any0"], True),
        (["run"], ["any0"], False),
        (["run"], [], True),
        (["run", "--device", "any0"], [], False),
    ],
)
def test_a_run_on_a_device_of_this_host_stores_no_derived_files(
    monkeypatch, tmp_path, arguments, devices, keeps
):
    for name in devices:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(system_cache, "_DEVICES", tmp_path)
    # so that monkeypatch removes the variable after the test
    monkeypatch.setenv(cache.DIRECTORY, "")
    monkeypatch.delenv(cache.DIRECTORY)
    commands.keep_derived_files(arguments)
    assert (cache.DIRECTORY in os.environ) == keeps


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_what_others_can_write_in_the_cache_is_not_used(tmp_path, mode):
    shelves = (IMAGES, MODULES, MENDED, WORKSHOPS, COMPILED, MUTANTS)
    for shelf in (*shelves, TEMPLATES):
        assert shelf.of(tmp_path) == tmp_path / shelf.name
        (tmp_path / shelf.name).chmod(mode)
    for shelf in shelves:
        with user_error(f"{shelf.name} can be written by other users", status=3):
            shelf.of(tmp_path)
    with pytest.raises(freezing.Failure, match="templates can be written by other users"):
        template.Templates(tmp_path, print).resume(*[SimpleNamespace()] * 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "owner, mode, private",
    [(0, 0o755, True), (0, 0o775, False), (12345, 0o755, False)],
)
def test_a_directory_is_private_if_only_root_or_this_user_can_write_it(
    monkeypatch, owner, mode, private
):
    status = SimpleNamespace(st_uid=owner, st_gid=54321, st_mode=stat.S_IFDIR | mode)
    monkeypatch.setattr("conformance.cache.os.stat", lambda _: status)
    assert cache.is_private(Path("x")) is private


_START = """
import os, sys
from fixtures.system import cache
cache.__spec__.cached = sys.argv[1]
cache.use_bytecode(sys.argv[2:])
print(sys.pycache_prefix, sys.dont_write_bytecode)
"""


@pytest.mark.parametrize(
    "beside, mode, command, uses, writes",
    [
        ("missing", None, "list", True, True),
        ("missing", 0o777, "list", True, True),
        (__file__, None, "list", False, False),
        ("missing", None, "run --device rxe0", False, False),
        ("missing", 0o755, "run --device rxe0", False, False),
        ("missing", 0o700, "run --device rxe0", True, False),
    ],
)
def test_bytecode_is_in_the_cache_if_it_is_not_beside_the_modules(
    beside, mode, command, uses, writes, tmp_path
):
    """Only this user can enter the folder of the cache, and a run on a device writes nothing to it."""
    folder = tmp_path / "bytecode"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    done = ended(
        sys.executable,
        *("-c", _START, beside, *command.split()),
        cwd=ROOT,
        env={
            **os.environ,
            "RDMA_CTS_CACHE": str(tmp_path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPYCACHEPREFIX": "",  # a command that ran in this process may have set it
        },
    )
    assert done.stdout.split() == [str(folder if uses else None), str(not writes)], done.stderr
    if uses:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    else:
        assert folder.exists() == (mode is not None)


_LISTED = ("list", "variables")


def _bytecode_after(folder: Path, limit: str = "unlimited") -> list[Path]:
    """Runs a command that stores its bytecode in this directory and can write files of only `limit` KiB; returns the
    bytecode of the suite's modules."""
    # processes of pytest-xdist share what is made of the tables, and a command stores it only without that
    environment = {name: value for name, value in os.environ.items() if name != cache.DIRECTORY}
    done = ended(
        *("bash", "-c", f'ulimit -Sf {limit}; exec "$@"', "bash"),
        *(sys.executable, ROOT / "commands" / "cli" / "start.py", *_LISTED),
        cwd=ROOT,
        env={
            **environment,
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder),
            "RDMA_CTS_CACHE": str(folder),
        },
    )
    assert (done.returncode, "File too large" in done.stderr) == (0, limit == "4")
    return [path for path in folder.rglob("*.pyc") if str(ROOT) in str(path)]


def _is_whole(bytecode: Path) -> bool:
    try:
        marshal.loads(bytecode.read_bytes()[16:])
    except (EOFError, TypeError, ValueError):
        return False
    return True


def test_a_full_disk_leaves_no_beginning_of_bytecode(tmp_path):
    stored = _bytecode_after(tmp_path, limit="4")
    assert stored
    assert [path for path in stored if not _is_whole(path)] == []


@pytest.mark.parametrize("size, rest", [(17, b""), (-1, b""), (16, b"\xff")])
def test_damaged_bytecode_is_replaced(size, rest, tmp_path):
    whole = {path: path.read_bytes() for path in _bytecode_after(tmp_path)}
    assert len(whole) > 10
    for path, content in whole.items():
        path.write_bytes(content[:size] + rest)
    _bytecode_after(tmp_path)  # removes what is damaged
    assert [path for path in _bytecode_after(tmp_path) if not _is_whole(path)] == []


def test_a_link_that_others_could_have_made_is_not_followed(tmp_path, monkeypatch):
    """A cached file is executed; the file that the link names may be of this user and have another's content."""
    content = tmp_path / "unpacked"
    content.write_bytes(b"content")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "a").symlink_to(content)
    monkeypatch.setenv(cache.DIRECTORY, str(shared))
    assert cache.lookup("a"), "a link in a directory of this user is followed"
    shared.chmod(0o777)
    assert cache.lookup("a") is None
