"""Reads installed manual pages and headers as text, for tests. A manual page is read from its roff source (written by
hand or by pandoc), so that no formatter wraps or hyphenates the text."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

ROOT = Path("/usr")
_PAGE = re.compile(r"(\w+)\((\d)\)")
_HEADING = re.compile(r"(?:\.SH +|# )\"?([A-Z][A-Za-z ]*)\"?$")
# Macros whose arguments are joined without a space, and macros whose arguments are text; other macros have no text.
_JOINED, _TEXT = re.compile(r"\.(?:[BIR][BIR]) "), re.compile(r"\.[BI] ")
_WORD = re.compile(r'"[^"]*"|\S+')
_ESCAPES = {
    r"\\f(?:\[\w*\]|\w)|\\s[-+]?\d|\\[&c]": "",
    r"\\(?:\(cq|\[cq\]|\[aq\]|\(aq)": "'",
    r"\\-": "-",
    r"\\ ": " ",
}


def path_of(document: str, root: Path = ROOT) -> Path | None:
    """Returns the file of a manual page `name(3)` or of a header `infiniband/name.h`; None for another document."""
    if page := _PAGE.fullmatch(document):
        return root / f"share/man/man{page[2]}/{page[1]}.{page[2]}.gz"
    if re.fullmatch(r"[\w/-]+\.h", document):
        return root / "include" / document
    return None


def sections(path: Path) -> dict[str, str]:
    """Returns each section's text by its heading, with single spaces; a header is one section with the heading ""."""
    if path.suffix == ".gz":
        return _sections(gzip.decompress(path.read_bytes()).decode())
    return {"": _spaced(re.sub(r"\n\s*\*(?!/)", "\n", path.read_text(encoding="utf-8")))}


def installed_release() -> int:
    """Returns the release of the installed development package of rdma-core."""
    folders = [*Path("/usr").glob("lib*/pkgconfig"), *Path("/usr/lib").glob("*/pkgconfig")]
    file = next(
        folder / "libibverbs.pc" for folder in folders if (folder / "libibverbs.pc").exists()
    )
    match = re.search(r"^Version: \d+\.\d+\.(\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert match, file
    return int(match[1])


def stands(quote: str, text: str) -> bool:
    """Whether the text has these words in this order without other words between them; `[…]` stands for any words."""
    return (
        re.search(".*?".join(re.escape(part.strip()) for part in _spaced(quote).split("[…]")), text)
        is not None
    )


def _sections(source: str) -> dict[str, str]:
    sections: dict[str, list[str]] = {"": []}
    heading = ""
    for line in source.splitlines():
        if match := _HEADING.match(line):
            heading = match[1].strip()
        elif _JOINED.match(line):
            sections.setdefault(heading, []).append(
                "".join(word.strip('"') for word in _WORD.findall(line)[1:]),
            )
        elif not line.startswith(".") or _TEXT.match(line):
            sections.setdefault(heading, []).append(_TEXT.sub("", line))
    return {heading: _spaced(_plain("\n".join(lines))) for heading, lines in sections.items()}


def _plain(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = re.sub(escape, character, text)
    return text


def _spaced(text: str) -> str:
    return " ".join(text.split())
