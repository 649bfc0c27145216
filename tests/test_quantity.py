"""Addresses and lengths as tables write them."""

from __future__ import annotations

import pytest

from conformance.model.quantity import parse

PAGE, HUGE = 4096, 2 << 20


def value(text: str | int) -> int:
    """The quantity on a machine with 4 KiB pages, where `buf` is 8 KiB at 0x10000 and `mr` has rkey 7."""
    objects = {("buf", ""): 0x10000, ("buf", "addr"): 0x10000, ("buf", "size"): 0x2000, ("mr", "rkey"): 7}
    return parse(text).evaluate(PAGE, HUGE, lambda name, property_: objects[name, property_])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0),
        (4097, 4097),
        ("0x10", 16),
        ("64 KiB", 65536),
        ("1MiB", 1 << 20),
        ("2 pages", 8192),
        ("1 hugepage", HUGE),
        ("1 byte", 1),
        ("buf", 0x10000),
        ("buf + 1 page - 1", 0x10FFF),
        ("buf.size+1", 0x2001),
        ("mr.rkey", 7),
        ("SIZE_MAX", (1 << 64) - 1),
        ("buf + -1", 0xFFFF),
        ("buf - -1", 0x10001),
        ("SIZE_MAX - 100", (1 << 64) - 101),
        ("18446744073709551615", (1 << 64) - 1),
    ],
)
def test_a_sum_of_terms_is_evaluated(text: str | int, expected: int) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("SIZE_MAX + 1", 0), ("-1", -1), ("buf - 128 KiB", -0x10000)])
def test_a_sum_wraps_as_size_t_does(text: str, expected: int) -> None:
    assert value(text) == expected % (1 << 64)


def test_pages_are_those_of_the_machine_that_runs_the_case() -> None:
    assert parse("2 pages").evaluate(65536, HUGE, lambda name, property_: 0) == 131072


def test_the_objects_of_a_sum_are_known_before_it_has_a_value() -> None:
    assert parse("buf.size + SIZE_MAX - mr.rkey").names == [("buf", "size"), ("mr", "rkey")]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "empty"),
        ("   ", "it is blank"),
        ("buf +", "at '+'"),
        ("+ - 1", "not a sum"),
        ("1 + - - 1", "at '+ - - 1'"),
        ("1 2", "at '2'"),
        ("buf * 2", "at '* 2'"),
        ("1.5 pages", "at '.5 pages'"),
        ("buf.size.end", "at '.end'"),
        ("__import__('os')", "not a sum"),
        ("4 pagse", "unknown unit 'pagse' (did you mean page?)"),
        ("4 kib", "did you mean KiB?"),
        ("page", "a unit and needs a number"),
        ("007", "begins with 0"),
        ("18446744073709551616", "more than 64 bits"),
        ("0x10000000000000000", "more than 64 bits"),
        ("9" * 10000, "more than 64 bits"),
        ("16777216 TiB", "more than 64 bits"),
        ("18446744073709551615 pages", "more than 64 bits"),
        ("SIZE_MAX.addr", "has no property 'addr'"),
    ],
)
def test_an_invalid_quantity_is_refused_with_a_message(text: str, fragment: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse(text)
    assert fragment in str(caught.value)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match="not a sum") as caught:
        parse("1 " * 1000)
    assert len(str(caught.value)) < 250
