"""Bounds of texts and lists in a record that others wrote; a cut text says so (docs/results.md has the figures)."""

MOST_CHARACTERS = 2000  # of a reason, a remark, and of a line of the kernel's log
MOST_NOTES = 100
MOST_DEVIATIONS = 100  # ways in which the points of a sweep deviate
MOST_RESULTS_BYTES = 224 << 20  # of the results of a run; readers take 256 MiB, and other records have room in the rest
MOST_VALUES = 4_000_000  # of JSON in a file that no earlier result has; a default run has 150,000 in all
MOST_RECORDS = 250_000  # lines of a file; a default run has 2,300
MOST_RESULTS_VALUES = 3_500_000  # of these, the values of results


def cut(text: str) -> str:
    """A text, or its beginning with how much is left out."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text) - MOST_CHARACTERS:,} characters are left out)"
