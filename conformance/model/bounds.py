"""Defines upper bounds for the texts and lists of a record, and for the size of a results file. docs/results.md lists
the bounds."""

MOST_CHARACTERS = 2000  # in a reason, a remark, or a line of the kernel's log
MOST_NOTES = 100
MOST_DEVIATIONS = 100  # different deviations of the points of a sweep
MOST_RESULTS_BYTES = 224 << 20  # for all result records of a run; a file may have 256 MiB
MOST_VALUES = 4_000_000  # JSON values in a file; equal values of results count once; a default run has 150,000
MOST_RECORDS = 250_000  # lines of a file; a default run has 2,300
# of a run; a result has 1,500 bytes on average, and 2,600 bytes of each fit into a file
MOST_CASES = 90_000
RESERVED_BYTES, RESERVED_VALUES = 1200, 20  # of a file, for each case that has no result yet
MOST_RESULTS_VALUES = 3_500_000  # the part of MOST_VALUES that result records may have


def cut(text: str) -> str:
    """Returns the text. If the text is too long, returns its beginning and the number of omitted characters."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text) - MOST_CHARACTERS:,} characters are left out)"
