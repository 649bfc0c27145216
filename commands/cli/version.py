"""The text of --version: the version, and the commit from which the suite runs."""

from __future__ import annotations

from pathlib import Path

from conformance.tables.suite import ROOT, VERSION
from fixtures.system.packages import find_program
from fixtures.system.processes import ran

# The files with the commit: in a package, and in an archive that git has made of a checkout. In the checkout itself, the
# second file has the placeholder that git replaces.
FILES = ("commit", "ci/packaging/commit")
_PLACEHOLDER = "$"
_DIGITS = 12
_WITHIN_S = 20.0


def version_text(root: Path = ROOT) -> str:
    commit = _commit_of(root)
    if commit:
        return f"{VERSION} (commit {commit})"
    return VERSION


def _commit_of(root: Path) -> str:
    """Returns the commit of a package or a checkout; empty if it is unknown. `+` marks changes that are not committed."""
    for name in FILES:
        try:
            commit = (root / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if not commit.startswith(_PLACEHOLDER):
            return commit
    git = find_program("git")
    if not git or not (root / ".git").exists():
        return ""
    head = ran([git, "-C", str(root), "rev-parse", f"--short={_DIGITS}", "HEAD"], _WITHIN_S)
    if head.returncode:  # such as a checkout of another user, which git refuses
        return ""
    changes = ran([git, "-C", str(root), "diff", "--quiet", "HEAD"], _WITHIN_S)
    commit = head.stdout.strip()
    if changes.returncode:
        return f"{commit}+"
    return commit
