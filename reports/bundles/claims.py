"""Checks the statements of a bundle's manifest about its run. Facts are always compared. Sentences and figures depend
on the version of rdma-cts, so they are compared only if this version has packed the bundle. archive.py defines the
format of the manifest, and commands/verify.py checks the verdicts."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.model.printable import one_line
from conformance.tables.suite import ROOT, VERSION
from reports.bundles.archive import Manifest
from reports.digest import Digest

_RUN, _BUNDLED_BY = "run", "bundled_by"
_FACTS = (
    "device driver firmware kernel rdma-core stack transport tier seed started suite tables".split()
)
# the folders of the code that judges and of the code that writes conclusions
_WORDING = ("conformance", "reports")


def claims(run: Digest) -> dict[str, Any]:
    """Returns the statements of a manifest about a run."""
    return {
        _RUN: {name: text for name, text in run.summary.facts.items() if text},
        "under_test": run.header.get("under_test", {}),
        "suite": dict(run.header["suite"]),
        "words": run.summary.short_sentence,
        _BUNDLED_BY: packer(),
    }


def packer() -> dict[str, str]:
    """Returns the manifest's statement about this version: its number, and the SHA-256 of the code that determines
    verdicts and conclusions."""
    return {"version": VERSION, "engine_sha256": _engine_sha256()}


@functools.cache
def _engine_sha256() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in _WORDING for path in (ROOT / folder).rglob("*.py")):
        digest.update(
            f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest(),
        )
    return digest.hexdigest()


def wrong_claim(manifest: Manifest, run: Digest) -> str:
    """Returns a clause about the first statement of the manifest that is not true of the run; empty if all are true."""
    stated, true = dict(manifest.about), claims(run)
    if _of_other_version(manifest):
        names = _compared(manifest)
        stated, true = _facts(stated, names), _facts(true, names)
    wrong = next((key for key in (*true, *stated) if stated.get(key) != true.get(key)), None)
    if wrong is not None:
        return f"`{one_line(wrong)}` of its manifest is not true of the run"
    return ""


def remark(manifest: Manifest, run: Digest) -> str:
    """Returns a remark if a different version wrote the manifest, with different statements; else empty."""
    claims_here = {**claims(run), _BUNDLED_BY: None}
    if not _of_other_version(manifest) or {**manifest.about, _BUNDLED_BY: None} == claims_here:
        return ""
    by = manifest.about.get(_BUNDLED_BY)
    version, engine = (
        str(by.get(key)) if isinstance(by, Mapping) else "?" for key in ("version", "engine_sha256")
    )
    facts = ", ".join(_compared(manifest)) or "none"
    return (
        f"manifest: its hashes and these facts are true of the run: {facts}; its other entries were not compared, "
        f"because a different version wrote them: {version} ({engine[:12]})"
    )


def _of_other_version(manifest: Manifest) -> bool:
    return manifest.about.get(_BUNDLED_BY) != packer()


def _compared(manifest: Manifest) -> list[str]:
    """Returns the names of the facts of the run that a bundle of any version must state truly."""
    named = manifest.about.get(_RUN)
    if isinstance(named, Mapping):
        return [name for name in _FACTS if name in named]
    return []


def _facts(about: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the statements with only the named facts of the run, and without texts that depend on the version."""
    run = about.get(_RUN)
    facts = {name: run.get(name) for name in names} if isinstance(run, Mapping) else run
    return {**about, _RUN: facts, "words": None, _BUNDLED_BY: None}
