"""Tests of the children that a process under test forks."""

from conformance.kernel.child import fork


def test_a_child_ends_while_a_later_child_lives():
    earlier = fork(lambda report, wait: report(b"woken" if wait() else b"end of file"))
    later = fork(lambda report, wait: wait())
    earlier.end()  # returns only if the later child does not hold the pipe that wakes the earlier one
    later.end()
