"""Tests of lists of work requests in one call of ibv_post_send or ibv_post_recv."""

import ctypes
import errno

import pytest

from conformance.bench.calls import Return, Sge
from conformance.bench.work_requests import SendRequest
from conformance.device.posting import Poster

POST_SEND, POST_RECV = 25, 26  # indices in the table of the provider's functions
ELEMENTS = tuple(Sge(0x1000 * number, number, number) for number in range(1, 12))


@pytest.fixture
def posted():
    """Returns a function that makes a poster of a provider that refuses the request with the index `refuses`, and sets
    bad_wr `beside` bytes behind it (None: not at all). It also returns a list to which the provider adds the wr_id and the
    number of elements of each request that it takes."""
    references: list[object] = []

    def make(index, refuses, beside=0):
        taken = []

        def post(_, request, bad):
            number = 0
            while request:
                if number == refuses:
                    if beside is not None:
                        ctypes.c_uint64.from_address(bad).value = request + beside
                    return errno.ENOMEM
                wr_id, following, _ = (ctypes.c_uint64 * 3).from_address(request)
                taken.append((wr_id, ctypes.c_int.from_address(request + 24).value))
                request, number = following, number + 1
            return 0

        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(post)
        functions, cq = (ctypes.c_uint64 * 64)(), (ctypes.c_uint64 * 4)()
        for of_call in (11, POST_SEND, POST_RECV):
            functions[1 + of_call] = ctypes.cast(function, ctypes.c_void_p).value or 0
        context = ctypes.addressof(functions)
        queue = (ctypes.c_uint64 * 32)(context, 0, 0, ctypes.addressof(cq), ctypes.addressof(cq))
        references.extend((function, functions, cq, queue))
        poster = Poster(ctypes.addressof(queue))
        lists = {
            POST_SEND: lambda: poster.sends(
                [SendRequest("RDMA_WRITE", wr_id, ELEMENTS[:wr_id]) for wr_id in (1, 11, 3)],
            ),
            POST_RECV: lambda: poster.receives([(ELEMENTS[:wr_id], wr_id) for wr_id in (1, 11, 3)]),
        }
        return lists[index](), taken

    return make


@pytest.mark.parametrize("call", [POST_SEND, POST_RECV])
def test_a_list_is_posted_in_its_order_with_all_elements(posted, call):
    assert posted(call, None) == ((Return(0, 0), 3), [(1, 1), (11, 11), (3, 3)])


@pytest.mark.parametrize("call", [POST_SEND, POST_RECV])
@pytest.mark.parametrize("refuses", [0, 2])
def test_the_refused_request_of_a_list_is_known_from_bad_wr(posted, call, refuses):
    (returned, index), taken = posted(call, refuses)
    assert (returned.value, index, len(taken)) == (errno.ENOMEM, refuses, refuses)


@pytest.mark.parametrize("beside", [8, -(1 << 20), None])
def test_a_bad_wr_beside_the_list_is_no_request(posted, beside):
    assert posted(POST_SEND, 1, beside)[0][1] == -1
