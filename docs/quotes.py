"""Writes what the documentation quotes of a recorded run: no figure that a run changes is written by hand.

    python3 docs/quotes.py             # each block between `<!-- quoted: NAME -->` and `<!-- end of quote -->`
    python3 docs/quotes.py RUN         # the same, after RUN has become the recorded run

`docs/runs/rxe.jsonl.xz` is the results file of a default run in the guest. A test compares the pages with it.
"""

from __future__ import annotations

import io
import lzma
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from conformance.results.records import FILE_NAME, encode, read_results  # noqa: E402
from reports.digest import Digest, read  # noqa: E402
from reports.terminal import summary  # noqa: E402

RECORDED = ROOT / "docs/runs/rxe.jsonl.xz"
PAGES = ("README.md", "docs/benchmarks.md", "docs/bundles.md", "docs/reports.md", "docs/results.md")
_BLOCK = re.compile(r"(<!-- quoted: (?P<name>[a-z ]+) -->\n).*?(<!-- end of quote -->)", re.DOTALL)


def recorded() -> Digest:
    """The recorded run."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE_NAME).write_bytes(lzma.decompress(RECORDED.read_bytes()))
        return read(Path(folder))


def _summary(run: Digest) -> Iterator[str]:
    folder = Path("out", re.sub("[^0-9T]", "", run.header["started"].partition("+")[0]) + f"-{run.device}")
    yield from (f"    {line}".rstrip() for line in summary(run, folder, io.StringIO()).lstrip("\n").splitlines())


def _verified(run: Digest) -> Iterator[str]:
    yield f"    {run.short_sentence}"
    yield f"    {run.conclusion} (exit status {run.status})"


def _headline(run: Digest) -> Iterator[str]:
    yield f"    {run.headline}"


def _in_part(run: Digest) -> Iterator[str]:
    yield from (f"- {rule} {told}" for rule, told in run.restrictions.items())


def _calls(run: Digest) -> Iterator[str]:
    again = (run.footer or {}).get("confirmation", {})
    tried = sum(again.values())
    yield f"A default run made {run.points:,} calls in {len(run.results):,} cases and tried {tried:,} violations again."


QUOTES: Mapping[str, Callable[[Digest], Iterator[str]]] = {
    "summary": _summary,
    "conclusion": _verified,
    "headline": _headline,
    "rules in part": _in_part,
    "calls": _calls,
}


def quoted(text: str, run: Digest) -> str:
    """A page with its quotes as they are of this run."""

    def block(found: re.Match[str]) -> str:
        lines = "\n".join(QUOTES[found["name"]](run))
        return f"{found[1]}\n{lines}\n\n{found[3]}"

    return _BLOCK.sub(block, text)


def main() -> None:
    """Takes over a run, if one is given, and rewrites the pages."""
    if len(sys.argv) > 1:
        found = read_results(Path(sys.argv[1]))
        header = {**found.header, "argv": ["run"]}  # without the paths of whoever has run it
        lines = [header, *found.results, *found.others, *([found.footer] if found.footer else [])]
        RECORDED.write_bytes(lzma.compress(b"".join(map(encode, lines)), preset=9))
    run = recorded()
    for name in PAGES:
        page = ROOT / name
        page.write_text(quoted(page.read_text(encoding="utf-8"), run), encoding="utf-8")


if __name__ == "__main__":
    main()
