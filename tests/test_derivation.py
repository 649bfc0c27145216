"""Files that a guest has derived from the suite: a later guest uses them only with the modules they were made of, and
none that a hostile guest has forged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.results.records import Recorded, read_written
from fixtures.guest import derivation, freezing, job
from fixtures.system.cache import cache_directory
from kinds import rows
from launched import run_in_guest
from samples import laid


def test_files_that_a_guest_has_derived_get_the_same_paths_in_another_suite(tmp_path):
    same = {"a/__pycache__/x.pyc": b"x", "a/x.py": b"1", "derived/same.so": b"same"}
    new = {"a/__pycache__/x.pyc": b"changed", f"derived/new-{'0' * 32}.so": b"\0new"}
    packed, suite = laid(tmp_path / "packed", same), laid(tmp_path / "suite", {**same, **new})
    files = derivation.encoded(suite, packed)
    assert set(files) == set(new)
    folder_kept, target = tmp_path / "kept", tmp_path / "target"
    derivation.keep(folder_kept, files, MODULES)
    laid_files = derivation.lay(folder_kept, target, MODULES)
    assert laid_files
    assert laid_files["files"] == 2
    assert {name: (target / name).read_bytes() for name in new} == new


def test_a_guest_gets_the_tables_that_its_host_has_parsed_but_not_the_hosts_compiled_c(tmp_path):
    tables, library = f"suite-{'0' * 32}.pickle", f"loop-{'0' * 32}.so"
    host = laid(tmp_path / "host", {tables: b"tables", library: b"of the host"})
    suite = tmp_path / "suite"
    derivation.give([host / tables, host / library], suite)
    assert [path.name for path in (suite / "derived").iterdir()] == [tables]


MODULES = {"a/x.py": "1" * 64}
BYTECODE, PLANTED = (f"a/__pycache__/{name}.cpython-314.pyc" for name in "xy")


def named_outside(kept: Path) -> None:
    index = kept / "index.json"
    index.write_text(index.read_text().replace(BYTECODE, f"../kept/{BYTECODE}"))


# For each test, a change of the stored files, and the modules of a later guest.
CHANGES: dict[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "another module": (lambda stored_before: None, {"a/x.py": "2" * 64}),
    "no module": (lambda stored_before: None, {}),
    "changed": (lambda stored_before: (stored_before / BYTECODE).write_bytes(b"forged"), MODULES),
    "planted": (
        lambda stored_before: (stored_before / BYTECODE).rename(stored_before / PLANTED),
        {**MODULES, "a/y.py": "1" * 64},
    ),
    "without index": (lambda stored_before: (stored_before / "index.json").unlink(), MODULES),
    "damaged index": (
        lambda stored_before: (stored_before / "index.json").write_text("[1]"),
        MODULES,
    ),
    "index of others": (lambda stored_before: (stored_before / "index.json").chmod(0o666), MODULES),
    "outside": (named_outside, MODULES),
}


@pytest.mark.parametrize("change, modules", CHANGES.values(), ids=CHANGES)
def test_a_derived_file_is_used_only_with_the_module_it_was_made_of(tmp_path, change, modules):
    folder_kept = tmp_path / "kept"
    derivation.keep(folder_kept, {BYTECODE: "YQ=="}, MODULES)
    assert derivation.lay(folder_kept, tmp_path / "as it is", MODULES)
    change(folder_kept)
    assert derivation.lay(folder_kept, tmp_path / "suite", modules) is None
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize("name, text", rows("files_of_guests"))
def test_no_other_file_of_a_guest_is_stored(tmp_path, name, text):
    with pytest.raises(ValueError, match=r"derived file|damaged"):
        derivation.keep(tmp_path / "cache" / "kept", {name: text}, {"conformance/errors.py": ""})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_more_files_or_bytes_than_a_suite_can_have_are_not_stored(tmp_path):
    too_many = {f"a/__pycache__/x.cpython-{number}.pyc": "" for number in range(100)}
    large = {"a/__pycache__/x.cpython-314.pyc": "A" * (33 << 20)}
    for files in (too_many, large):
        with pytest.raises(ValueError, match="more, or larger, than a suite has"):
            derivation.keep(tmp_path / "kept", files, MODULES)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("is_clean", [False, True])
def test_files_are_stored_only_from_a_guest_without_files_of_the_user(tmp_path, is_clean):
    freezing_job = job.Job((), "", derived=tmp_path / "kept", is_clean=is_clean)
    files = {BYTECODE: "YQ=="}
    freezing._keep_derived(
        {"type": "guest", "event": "derived", "files": files}, freezing_job, MODULES
    )
    assert (tmp_path / "kept" / BYTECODE).exists() == is_clean


# A guest with a hostile overlay, and later guests

CASE = "dereg_mr/deregistration/of-none"
MODULE = "conformance/execution/runner.py"


# Each Python in the guest writes forged bytecode of the module to the path from which Python would load the bytecode.
# The host would store the file at this path as a derived file.
FORGER = f"""
import importlib.util, os
from importlib._bootstrap_external import _code_to_timestamp_pyc
found = os.stat({MODULE!r})
code = compile(open({MODULE!r}).read() + "\\nprint('FORGED', flush=True)\\n", {MODULE!r}, "exec")
target = importlib.util.cache_from_source({MODULE!r})
os.makedirs(os.path.dirname(target), exist_ok=True)
with open(target, "wb") as file:
    file.write(_code_to_timestamp_pyc(code, int(found.st_mtime), found.st_size))
"""


@pytest.fixture
def cache_of_images(tmp_path: Path) -> Path:
    """A cache with the usual images but without files that guests have derived."""
    place = tmp_path / "cache"
    for path in cache_directory().glob("images/*/*"):
        link = place / path.relative_to(cache_directory())
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    return place


def run_one_case(place: Path, out: Path, *more: str) -> tuple[Recorded, str]:
    done = run_in_guest(out, "--guests", "1", *more, only=[CASE], RDMA_CTS_CACHE=str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    return read_written(out), (out / "console.log").read_text(errors="replace")


@pytest.mark.guest
@pytest.mark.nightly
def test_an_honest_run_does_not_use_bytecode_that_a_guest_with_an_overlay_has_forged(
    cache_of_images, tmp_path
):
    files = {"forger.pth": "import forger\n", "forger.py": FORGER}
    packages = laid(tmp_path / "overlay/usr/lib/python3/dist-packages", files)
    hostile, said = run_one_case(
        cache_of_images,
        tmp_path / "hostile",
        "--overlay",
        str(tmp_path / "overlay"),
    )
    assert "FORGED" in said
    assert "derived" not in hostile.header
    assert not list((cache_of_images / "derived").glob("**/runner*"))
    first, said = run_one_case(cache_of_images, tmp_path / "first")
    assert "FORGED" not in said
    assert "derived" not in first.header
    # The second guest has an overlay and thus another template, but gets the files that the honest guest has derived.
    (packages / "forger.py").write_text("")
    second, said = run_one_case(
        cache_of_images,
        tmp_path / "second",
        "--overlay",
        str(tmp_path / "overlay"),
    )
    assert "FORGED" not in said
    assert second.header["derived"]["files"] > 10
    (worker,) = [record for record in second.others if record["type"] == "worker"]
    assert worker["derived"] == second.header["derived"]
