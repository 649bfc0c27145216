"""What the compiler has answered before about the same header, kept for the next process (see cache.py).

Compiling takes seconds in an emulated guest. The preprocessed header, whose macros name compiler and target, and the
questions decide all answers. Not for asking (program.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from conformance import cache
from conformance.header.program import FLAGS, Answers, Toolchain


def ask(
    toolchain: Toolchain,
    preprocessed: str,
    expressions: Iterable[str],
    declarations: Mapping[str, str],
    undefine: Iterable[str],
) -> Answers:
    """Toolchain.ask, or what it answered before. `preprocessed` is the toolchain's header. Raises Unreachable."""
    questions, macros = list(expressions), list(undefine)
    parts = json.dumps([toolchain.command, FLAGS, questions, dict(declarations), macros])
    name = f"answers-{cache.digest_of([preprocessed.encode(), parts.encode()])}.json"
    known = _known(name)
    if known is None:
        known = toolchain.ask(questions, declarations, macros)
        cache.store(name, json.dumps([known.values, known.refused]).encode())
    return known


def _known(name: str) -> Answers | None:
    path = cache.lookup(name)
    if path is None:
        return None
    try:
        values, refused = json.loads(path.read_bytes())
        whole = all(isinstance(value, int) for value in values.values())
        whole &= all(isinstance(error, str) for error in refused.values())
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return Answers(values, refused) if whole else None
