"""A guest with a hostile overlay forges bytecode of the suite. A later run of the plain image does not use the forged
bytecode."""

from pathlib import Path

import pytest

from conformance.results.records import Recorded, read_results
from fixtures.system.cache import cache_directory
from launched import run_in_guest

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
CASE = "dereg_mr/deregistration/of-none"
MODULE = "conformance/execution/runner.py"
# Each Python of the guest forges bytecode that Python would load for the module, and that the host would keep as a
# derived file.
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
def cache(tmp_path: Path) -> Path:
    """A cache with the usual images, and without files that guests have derived."""
    target = tmp_path / "cache" / "images"
    for path in (cache_directory() / "images").glob("*/*"):
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        (target / path.parent.name / path.name).symlink_to(path.resolve())
    return target.parent


def run(cache: Path, out: Path, *more: str) -> tuple[Recorded, str]:
    """Runs one case; returns its records and its console."""
    done = run_in_guest(out, "--guests", "1", *more, only=[CASE], RDMA_CTS_CACHE=str(cache))
    assert done.returncode == 0, done.stdout + done.stderr
    return read_results(out), (out / "console.log").read_text(errors="replace")


def test_an_honest_run_is_not_touched_by_an_overlay_before_it(cache: Path, tmp_path: Path) -> None:
    packages = tmp_path / "overlay/usr/lib/python3/dist-packages"
    packages.mkdir(parents=True)
    (packages / "forger.pth").write_text("import forger\n")
    (packages / "forger.py").write_text(FORGER)
    hostile, said = run(cache, tmp_path / "hostile", "--overlay", str(tmp_path / "overlay"))
    assert "FORGED" in said
    assert "derived" not in hostile.header
    assert not list((cache / "derived").glob("**/runner*"))
    first, said = run(cache, tmp_path / "first")
    assert "FORGED" not in said
    assert "derived" not in first.header
    # A second guest with an overlay, which needs another template, gets the files that the honest guest has derived.
    (packages / "forger.py").write_text("")
    second, said = run(cache, tmp_path / "second", "--overlay", str(tmp_path / "overlay"))
    assert "FORGED" not in said
    assert second.header["derived"]["files"] > 10
    (worker,) = [record for record in second.others if record["type"] == "worker"]
    assert worker["derived"] == second.header["derived"]
