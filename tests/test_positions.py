"""Positions in a range: offset and size of operations on bytes and on words."""

from __future__ import annotations

import pytest

from conformance.model.positions import POSITIONS, WORD_OPERATIONS, locate

ADDR, LENGTH = 4096 + 100, 200


@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty"}))
@pytest.mark.parametrize("operation", ["RDMA_WRITE", "SEND", "ATOMIC_WRITE", "ATOMIC_FETCH_AND_ADD"])
def test_a_position_is_inside_or_outside_the_range_as_its_name_says(operation: str, position: str) -> None:
    offset, size = locate(position, operation, ADDR, LENGTH)
    inside = range(LENGTH)
    touched = [byte in inside for byte in range(offset, offset + size)]
    expected = {"before": [False], "after": [False], "across-start": [False, True], "across-end": [True, False]}
    assert sorted(set(touched)) == sorted(expected.get(position, [True]))


def test_before_and_after_are_next_to_the_range() -> None:
    assert locate("before", "RDMA_READ", ADDR, LENGTH) == (-1, 1)
    assert locate("after", "RDMA_READ", ADDR, LENGTH) == (LENGTH, 1)


@pytest.mark.parametrize("operation", WORD_OPERATIONS)
@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty", "exact"}))
def test_words_are_aligned_where_the_range_begins_and_ends_in_the_middle_of_one(operation: str, position: str) -> None:
    offset, size = locate(position, operation, ADDR, LENGTH)
    assert ((ADDR + offset) % 8, size) == (0, 8)


@pytest.mark.parametrize("operation", WORD_OPERATIONS)
@pytest.mark.parametrize("addr", [ADDR, ADDR + 1, ADDR + 4])
def test_an_exact_word_is_at_the_address_aligned_or_not(operation: str, addr: int) -> None:
    assert locate("exact", operation, addr, LENGTH) == (0, 8)


def test_no_word_is_empty() -> None:
    assert locate("empty", "RDMA_WRITE", ADDR, LENGTH) == (0, 0)
    with pytest.raises(LookupError, match="no position 'empty'"):
        locate("empty", "ATOMIC_WRITE", ADDR, LENGTH)
