"""The objects of a set-up that the steps of a case need; many rows of a table share one set-up."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from conformance.model.case import Argument, Arguments, Case, SgeSpec
from conformance.model.quantity import Quantity


def without_idle(case: Case) -> Case:
    """The case with only the objects that its steps need, directly or through other objects."""
    given = case.given
    needed = {name for step in (*case.before, case.when, *case.afterwards) for name in names_in(step.arguments)}
    while True:
        more = set(needed)
        for name, mr in given.mrs.items():
            more |= set(names_in(mr.arguments)) if name in needed else set()
        for name, window in given.windows.items():
            more |= {window.pd, *names_in(window.bound or {})} if name in needed else set()
        for name, qp in given.qps.items():
            more |= {qp.pd} if name in needed else set()
        for name, memory in (*given.memory.items(), *given.dmabufs.items()):
            more |= set(_names(memory.size)) if name in needed else set()
        if more == needed:
            break
        needed = more
    kept = replace(
        given,
        pds=tuple(name for name in given.pds if name in needed),
        memory={name: each for name, each in given.memory.items() if name in needed},
        dmabufs={name: each for name, each in given.dmabufs.items() if name in needed},
        mrs={name: each for name, each in given.mrs.items() if name in needed},
        qps={name: each for name, each in given.qps.items() if name in needed},
        windows={name: each for name, each in given.windows.items() if name in needed},
    )
    return replace(case, given=kept)


def names_in(arguments: Arguments) -> Iterator[str]:
    """The names that arguments contain: words, and the objects whose properties occur in quantities."""
    for argument in arguments.values():
        yield from _names(argument)


def _names(argument: Argument) -> Iterable[str]:
    if isinstance(argument, str):
        return (argument,)
    if isinstance(argument, Quantity):
        return [name for name, _ in argument.names]
    if isinstance(argument, tuple):
        return [
            name
            for each in argument
            if isinstance(each, SgeSpec)
            for part in (each.addr, each.length, each.lkey)
            for name in _names(part)
        ]
    return ()
