"""Collects the parts of a program: its objects by name, its statements, and the pieces that the statements need."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from conformance.model.case import Argument, Case, Flags, Step
from conformance.model.positions import locate
from conformance.model.quantity import Quantity, Term
from reports.reproducers import expressions
from reports.reproducers.expressions import Names, identifier
from reports.reproducers.layout import WIDTH, statement


class Inexpressible(Exception):
    """Raised with the reason why a case has no program; the text completes "cannot be expressed: …"."""


# The sizes of a page and of a huge page on the systems on which a program may run.
_SYSTEMS = ((4096, 2 << 20), (65536, 512 << 20))
_LARGEST_AREA = 1 << 30  # the maximum size in bytes of memory that a program fills and compares
# the distance in bytes between the assumed addresses of memories, so that their ranges are disjoint
_APART = 1 << 44


class Writer:
    """Collects the statements of main(). `case` is a row with a known expectation."""

    def __init__(self, case: Case, width: int = WIDTH) -> None:
        self.case, self.width = case, width
        self.names = Names()
        self.memories = {**case.given.memory, **case.given.dmabufs}
        self._bases = {name: _APART * (number + 1) for number, name in enumerate(self.memories)}
        self.lines: list[str] = []
        self.pieces: dict[str, None] = {}
        self.features: set[str] = set()
        self.headers: set[str] = {"err.h", "infiniband/verbs.h", "stdio.h"}
        self.largest = 0  # the maximum number of bytes that an operation of the program transfers
        self.area: tuple[str, str] | None = None
        self.is_set_up = False  # whether the lines belong to a call before the judged call
        self.made: set[str] = set()  # the names of objects that calls of the case have created
        # the window of each bind of type 2, by the name of the request
        self.posted: dict[str, str] = {}
        # the line that declares a variable for later steps, by name
        self._kept: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self.declared: set[str] = set()
        self._depth = 1

    @property
    def raw(self) -> bool:
        """Whether the case issues the kernel's commands instead of calls of the library."""
        return self.case.entry == "uverbs"

    def use(self, *pieces: str) -> None:
        """Notes that the program needs these pieces of C."""
        self.pieces |= dict.fromkeys(pieces)

    def say(self, text: str) -> None:
        self.lines += statement(text, self._depth, self.width)

    def check(self, condition: str, message: str, *values: str) -> None:
        """Adds a check: the condition, and a message in the format of printf with its values. Before the judged call, the
        program ends if the condition is false; a condition that is always true only prints."""
        if self.is_set_up or condition == "1":
            text = re.sub(r" should [^,]*,", ":", message)
            self.say(f"printf({', '.join([f'{chr(34)}{text}{chr(92)}n{chr(34)}', *values])});")
        if self.is_set_up:
            self.say(f"SET_UP({condition});")
        elif condition != "1":
            self.say(f"CHECK({', '.join([condition, f'{chr(34)}{message}{chr(34)}', *values])});")

    def keep(self, name: str, text: str, kind: str) -> None:
        """Declares a variable for later steps. The variable is left out if no later step uses it."""
        if name in self.declared:
            self.say(f"{name} = {text};")
            return
        self.declared.add(name)
        self._kept[name] = len(self.lines)
        self.say(f"{kind} {name} = {text};")

    @property
    def used(self) -> list[str]:
        """Returns the lines of main() without unused variables."""
        idle: set[int] = set()
        for name, number in self._kept.items():
            named = {
                place for place, line in enumerate(self.lines) if re.search(rf"\b{name}\b", line)
            }
            set_only = {
                place for place in named if self.lines[place].lstrip().startswith(f"{name} = ")
            } | {number}
            idle |= set_only if named == set_only else set()
        return [line for number, line in enumerate(self.lines) if number not in idle]

    def say_if(self, condition: str, text: str) -> None:
        """Adds a statement under a condition. The condition may be empty."""
        if condition:
            self.lines += statement(f"if ({condition})", self._depth, self.width)
        self.lines += statement(text, self._depth + bool(condition), self.width)

    def assign(self, name: str, text: str, kind: str = "int") -> None:
        """Sets a variable; the first such statement also declares it."""
        new = name not in self.declared
        if self._depth == 1:
            self.declared.add(name)
        self.say(
            f"{kind}{'' if kind.endswith('*') else ' '}{name} = {text};"
            if new
            else f"{name} = {text};",
        )

    def next_number(self, of: str) -> int:
        """Returns the next number for names with the word `of`, from 0."""
        self._counted[of] = self._counted.get(of, -1) + 1
        return self._counted[of]

    @contextmanager
    def block(self, condition: str) -> Iterator[None]:
        """Puts the statements that are added in the `with` block under a condition."""
        self.say(f"if ({condition}) {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.say("}")

    def number(self, argument: Argument) -> str:
        return self._noted(_quantity(argument), self.names.number(_quantity(argument)))

    def pointer(self, argument: Argument) -> str:
        """Returns a quantity as an expression of a pointer type."""
        return self._noted(_quantity(argument), self.names.pointer(_quantity(argument)))

    def _noted(self, quantity: Quantity, text: str) -> str:
        if any(term.unit.startswith("hugepage") for term in quantity.terms):
            self.features.add("hugepage")
            self.use("hugepage_size")
        return text

    def access(self, argument: Argument, of: str = "ibv_access_flags") -> str:
        assert isinstance(argument, Flags)
        return expressions.flags(argument, of)

    def memory_of(self, at: Quantity) -> str:
        """Returns the name of the memory that contains an address."""
        start = self.evaluate(at)
        for name, base in self._bases.items():
            if base <= start <= base + self.evaluate(self.memories[name].size):
                return name
        raise Inexpressible("the address of an operation is not in the memory of the case")

    def holds(self, addr: Quantity, length: Quantity) -> bool:
        """Whether one memory of the case contains the whole range. True if the range does not depend on memory."""
        if not any(name in self._bases for name, _ in addr.names):
            return True
        start = self.evaluate(addr)
        end = start + self.evaluate(length)
        sizes = {name: self.evaluate(self.memories[name].size) for name in self._bases}
        return any(
            base <= start and end <= base + sizes[name] for name, base in self._bases.items()
        )

    def evaluate(self, quantity: Quantity, system: tuple[int, int] = _SYSTEMS[0]) -> int:
        """Returns the value of a quantity with the page sizes of a system. Raises Inexpressible if the quantity depends
        on an object that is not memory."""

        def value_of(name: str, property_: str) -> int:
            if name not in self._bases:
                raise Inexpressible(f"an address depends on {name}.{property_}")
            if property_ in ("addr", ""):
                size = 0
            else:
                size = self.evaluate(self.memories[name].size, system)
            if property_ == "size":
                return size
            return self._bases[name] + size

        return quantity.evaluate(*system, value_of)

    def located(self, step: Step, operation: str) -> tuple[str, str, str, str]:
        """Returns four expressions for an operation: the address in the request, the address of the bytes in this
        process, the number of bytes, and the memory."""
        addr, length = _quantity(step.arguments["addr"]), _quantity(step.arguments["length"])
        at, position = _quantity(step.arguments["at"] or addr), str(step.arguments["position"])
        places = []
        for system in _SYSTEMS:
            of_range = self.evaluate(addr, system), self.evaluate(length, system)
            places.append(locate(position, operation, *of_range))
            self.largest = max(self.largest, places[-1][1])
        shift: tuple[Term, ...] = (Term(1 if places[0][0] >= 0 else -1, abs(places[0][0])),)
        count = Quantity("", (Term(1, places[0][1]),))
        if places[0] != places[1]:
            # The results for the systems differ because the size of the range is in whole pages.
            if position not in ("whole", "first", "before", "across-start", "empty"):
                offset = places[0][0] - self.evaluate(length)
                shift = (*length.terms, Term(1 if offset >= 0 else -1, abs(offset)))
            if places[0][1] != places[1][1]:
                count = length
        target = Quantity("", (*at.terms, *shift))
        name = self.memory_of(at)
        return (
            self.number(Quantity("", (*addr.terms, *shift))),
            self.pointer(target),
            self.number(count),
            name,
        )

    def moved(self, length: Argument) -> str:
        """Returns the expression for a number of bytes of the peer's memory; empty for no bytes."""
        sizes = [self.evaluate(_quantity(length), system) for system in _SYSTEMS]
        if not any(sizes):
            return ""
        self.features.add("traffic")
        self.largest = max(self.largest, *sizes)
        return self.number(length)

    def area_of(self, name: str) -> None:
        """Writes the statement after which operations check the whole memory `name`. If the memory is too large to be
        filled, each operation checks only its own bytes."""
        if self.evaluate(self.memories[name].size) > _LARGEST_AREA:
            self.features.add("large")
            return
        area = (identifier(name), self.names.of(name, "size"))
        if area != self.area:
            self.area = area
            self.say(f"area = {area[0]}, size = {area[1]};")


def _quantity(argument: Argument) -> Quantity:
    assert isinstance(argument, Quantity)
    return argument
