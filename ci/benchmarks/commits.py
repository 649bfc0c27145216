"""What `run_cost.py` measures of commits: the first run of a new commit, and two commits in turn."""

import contextlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from readers import Cost

from conformance.errors import UserError
from conformance.older_python import zip
from fixtures.system.cache import cache_directory

TABLE = (
    "| what | pairs | before | now | ratio | processors before | now | ratio |",
    "|---|---|---|---|---|---|---|---|",
)


def cache_of_images(place: Path) -> Path:
    """Makes a cache like that in which a new commit is run: with the images and what their guests have compiled, but
    without templates, and without the tables of the commit."""
    own = cache_directory()
    for image in own.glob("images/*/"):
        copy = place / image.relative_to(own)
        copy.mkdir(parents=True, mode=0o700)
        for file in image.iterdir():
            (copy / file.name).symlink_to(file.resolve())
    shutil.copytree(own / "derived", place / "derived", ignore=shutil.ignore_patterns("*.pickle"))
    return place


@contextlib.contextmanager
def tree_of(project: Path, commit: str) -> Iterator[Path]:
    """Yields a directory with the files of a commit, which is removed at the end. Raises UserError (status 2) if git
    cannot check the commit out."""
    git = ["git", "-C", str(project), "worktree"]
    with tempfile.TemporaryDirectory(prefix="rdma-cts-commit-") as folder:
        tree = Path(folder) / "tree"
        add = [*git, "add", "--quiet", "--detach", str(tree), commit]
        done = subprocess.run(add, capture_output=True, text=True, check=False)
        if done.returncode:
            *_, reason = done.stderr.splitlines() or ["git gives no reason"]
            raise UserError(f"{commit}: {reason}", status=2)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=False)


def beside(
    title: str,
    run: Callable[[Path, Path], Cost],
    repetitions: int,
    trees: tuple[Path, Path],
) -> str:
    """Runs both trees in turn, each time in a new directory: once to fill caches and then `repetitions` times, or only
    once if this is 0. Returns a line of TABLE: the medians of both trees, and the median and range of the ratios."""
    pairs = []
    for repetition in range(repetitions + 1):
        costs = []
        for tree in trees:
            with tempfile.TemporaryDirectory(prefix="rdma-cts-benchmark-") as folder:
                costs.append(run(Path(folder), tree))
        before, now = costs
        print(
            f"{title}: {before.seconds:.2f} and {now.seconds:.2f} s,"
            f" processors {before.processor_s:.2f} and {now.processor_s:.2f} s",
            flush=True,
        )
        if repetition or not repetitions:
            pairs.append((before, now))
    columns = [title, str(len(pairs))]
    for figure in ("seconds", "processor_s"):
        figures = [(getattr(before, figure), getattr(now, figure)) for before, now in pairs]
        ratios = [now / before for before, now in figures]
        columns += [f"{statistics.median(column):.2f} s" for column in zip(*figures, strict=True)]
        columns.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return f"| {' | '.join(columns)} |"
