"""Tests that each reader survives the files in tests/fuzzed/READER, which tests/fuzz_readers.py has found: an earlier
version ended with a traceback, or needed too long. A file that a night finds is moved there when the reader is mended."""

import shutil
import signal
from pathlib import Path

import pytest

import fuzz_readers
from test_old_results import OLD

FUZZED = Path(__file__).parent / "fuzzed"


@pytest.mark.parametrize("name", [str(path.relative_to(FUZZED)) for path in FUZZED.glob("*/*")])
def test_a_reader_survives_what_fuzzing_has_found(name, tmp_path):
    reader = fuzz_readers.readers()[name.partition("/")[0]]
    folder = Path(shutil.copytree(OLD, tmp_path / "run"))
    folder.chmod(0o700)
    path = folder / reader.name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FUZZED / name, path)
    path.chmod(0o600)
    before = signal.signal(signal.SIGPROF, fuzz_readers._late)
    try:
        _, wrong = fuzz_readers.outcome_of(reader, folder)
    finally:
        signal.signal(signal.SIGPROF, before)
    assert wrong == ""
