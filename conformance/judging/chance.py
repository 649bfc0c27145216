"""How surely the tries of a race tell two stacks apart. A *hit* is a try that violates a rule."""

from math import prod

SURE = 0.01  # runs of equal stacks differ with at most this probability


def chance_of_hits(hits: int, of: int, without: int) -> float:
    """Returns the greatest probability with which equal stacks have all `hits` among the `of` tries of one of them, and none
    among the `without` tries of the other."""
    return prod((of - number) / (of + without - number) for number in range(hits))
