"""Decides which values of a model's parameters can occur in one point, by propagation over what cannot occur together.

The *domains* of a point in the making are one mask for each parameter, whose bits are the values that are still possible.
The parameter behind those of the model is the fault: its value 0 is that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from conformance.model.combinations import Model
from conformance.model.predicate import And, Expression, HasCapability, Not, Word, parse
from conformance.model.space import Space
from conformance.older_python import zip

Domains = list[int]
# Masks of parameters: these values cannot occur together.
_Clause = tuple[tuple[int, int], ...]
Clauses = list[list[_Clause]]  # of each parameter
_Term = Mapping[int, int]


class Constraints:
    """What excludes a point."""

    def __init__(self, model: Model) -> None:
        self._axes = model.parameters
        self.sizes = [*(axis.size for axis in self._axes), 1 + len(model.faults)]
        self._full = [(1 << size) - 1 for size in self.sizes]
        space = Space(model.parameters)

        def read(text: str) -> Expression:
            return parse(text, space, {})

        fault = len(self._axes)
        clauses: list[_Term] = []
        for text in model.excluded.values():
            clauses += self._terms(read(text), True)
        for number, text in enumerate(model.faults.values(), 1):
            present = 1 << number
            absent = self._full[fault] ^ present
            clauses += [{**term, fault: absent} for term in self._terms(read(text), True)]
            clauses += [{**term, fault: present} for term in self._terms(read(text), False)]
        self._needs = {name: self._terms(read(model.needs[name]), True) for name in model.rare}
        self._by_parameter = self._indexed(clauses)
        self._without_needs: dict[frozenset[str], Clauses] = {}

    def _terms(self, expression: Expression, wanted: bool) -> list[_Term]:
        """Returns terms of which one is true exactly if the expression is `wanted`."""
        if isinstance(expression, Word):
            number = [axis.name for axis in self._axes].index(expression.axis)
            mask = 1 << self._axes[number].value(expression.word)
            return [{number: mask if wanted else self._full[number] ^ mask}]
        if isinstance(expression, Not):
            return self._terms(expression.part, not wanted)
        assert not isinstance(expression, HasCapability)
        parts = [self._terms(part, wanted) for part in expression.parts]
        if isinstance(expression, And) is not wanted:
            return _merged(term for part in parts for term in part)
        joined: list[_Term] = [{}]
        for part in parts:
            products = (_product(left, right) for left in joined for right in part)
            joined = _merged(term for term in products if term is not None)
        return joined

    def _indexed(self, terms: Iterable[_Term]) -> Clauses:
        """Returns the clauses of each parameter."""
        by_parameter: Clauses = [[] for _ in self.sizes]
        for term in terms:
            clause = tuple(term.items())
            for number in term:
                by_parameter[number].append(clause)
        return by_parameter

    def whole(self, permitted: frozenset[str] | None) -> tuple[Domains, Clauses]:
        """Returns the domains of a point without a value, and the clauses of points that have no rare need but those
        that are permitted; None permits all."""
        if permitted is None:
            return self._full.copy(), self._by_parameter
        if permitted not in self._without_needs:
            others = [
                term
                for name, terms in self._needs.items()
                if name not in permitted
                for term in terms
            ]
            more = self._indexed(others)
            pairs = zip(self._by_parameter, more, strict=True)
            self._without_needs[permitted] = [clauses + needs for clauses, needs in pairs]
        return self._full.copy(), self._without_needs[permitted]

    def rare(self, domains: Domains) -> frozenset[str]:
        """Returns the rare needs that a point certainly has."""
        return frozenset(name for name, terms in self._needs.items() if _is_certain(terms, domains))


def _is_certain(terms: Iterable[_Term], domains: Domains) -> bool:
    """Whether one of the terms is true at every point of the domains."""
    return any(_is_true(term, domains) for term in terms)


def _is_true(term: _Term, domains: Domains) -> bool:
    return not any(domains[number] & ~mask for number, mask in term.items())


def _product(left: _Term, right: _Term) -> _Term | None:
    """Returns the term that is true if both are; None if both cannot be."""
    product = dict(left)
    for number, mask in right.items():
        product[number] = product.get(number, -1) & mask
        if not product[number]:
            return None
    return product


def _merged(terms: Iterable[_Term]) -> list[_Term]:
    """Returns the terms; those of the same single parameter are one."""
    single: dict[int, int] = {}
    others: list[_Term] = []
    for term in terms:
        if len(term) == 1:
            ((number, mask),) = term.items()
            single[number] = single.get(number, 0) | mask
        else:
            others.append(term)
    return [{number: mask} for number, mask in single.items()] + others


def narrow(domains: Domains, clauses: Clauses, changed: Sequence[int]) -> bool:
    """Removes the values that have become impossible since the domains of `changed` became smaller. Returns False if no
    point remains."""
    waiting = list(changed)
    while waiting:
        for clause in clauses[waiting.pop()]:
            forced = _forced(domains, clause)
            if forced is None:
                continue
            number, mask = forced
            if not mask:
                return False
            domains[number] = mask
            waiting.append(number)
    return True


def _forced(domains: Domains, clause: _Clause) -> tuple[int, int] | None:
    """Returns the only parameter that can be outside of the clause, and the values that it can have; None if the
    clause decides nothing yet."""
    outside = -1
    left = 0
    for number, mask in clause:
        domain = domains[number]
        if not domain & mask:
            return None
        rest = domain & ~mask
        if rest:
            if outside >= 0:
                return None
            outside, left = number, rest
    if outside < 0:
        return clause[0][0], 0
    return outside, left
