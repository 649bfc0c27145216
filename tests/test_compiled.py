"""The C code is compiled if there is a compiler, and is used only if its structures equal Python's."""

from collections.abc import Iterator

import pytest

from conformance.device import native_exchange
from conformance.device.compiled import library
from conformance.errors import UserError
from conformance.sweeps import native
from samples import user_error


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """Clears the caches of compiled libraries before and after each test."""
    caches = library, native_exchange.compiled
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_the_loop_has_the_structures_that_python_assumes():
    assert native.compiled()


@pytest.mark.parametrize(
    "old, new, struct, moved",
    [
        ("    uint16_t *codes; ", "    uint64_t added;\n    uint16_t *codes; ", "loop", "codes"),
        ("    uint32_t handle, lkey, rkey;", "    uint64_t handle, lkey, rkey;", "region", "fd"),
        (
            "    int (*dereg)(",
            "    int (*added)(void);\n    int (*dereg)(",
            "before",
            "optional_mask",
        ),
    ],
)
def test_a_structure_that_differs_is_named_and_nothing_is_called(old, new, struct, moved, tmp_path):
    text = native.SOURCE.read_text()
    assert text.count(old) == 1, old
    copy = tmp_path / native.SOURCE.name
    copy.write_text(text.replace(old, new))
    with user_error(
        "^loop.c as compiled here differs from what its Python module assumes: ",
        status=3,
    ) as raised:
        library(copy, native.LAYOUT)
    first = str(raised.value).splitlines()[0]
    assert f"sizeof(struct {struct}) is " in first
    assert f"offset of {moved} is " in first


def test_a_layout_of_another_length_is_refused(tmp_path):
    source = tmp_path / "other.c"
    source.write_text("const unsigned rdma_cts_layout[] = {1, 8};\n")
    assert library(source, (("size", 8),)) is not None
    with pytest.raises(UserError, match="rdma_cts_layout has 1 values, not 2"):
        library(source, (("size", 8), ("offset", 4)))


def test_the_structures_of_exchanges_are_checked_too(tmp_path, monkeypatch):
    sizes = [size for _, size in native_exchange._LAYOUT]
    source = tmp_path / "exchange.c"
    source.write_text(
        f"const unsigned rdma_cts_layout[] = {{{len(sizes)}, {sizes[0] + 48}, {str(sizes[1:])[1:-1]}}};\n",
    )
    monkeypatch.setattr(native_exchange, "SOURCE", source)
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))
    # an empty linker script, because this test calls none of its functions
    (tmp_path / "libibverbs.so").write_text("")
    with pytest.raises(
        UserError,
        match=rf"sizeof\(struct exchange\) is {sizes[0] + 48}, not {sizes[0]}",
    ):
        native_exchange.compiled()


def test_python_is_used_where_c_cannot_be_compiled(tmp_path):
    source = tmp_path / "broken.c"
    source.write_text("#error no header\n")
    assert library(source, ()) is None
