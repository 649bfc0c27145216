"""The words that the rules quote stand in the manual pages and headers that this machine has installed."""

import re

import pytest

import pages
from conformance.model.rules import Rule
from samples import registry

# Documents that no package installs: their words were compared by hand only.
UNCHECKED = {"vendor documentation, Memory Region Re-registration", "Linux, Documentation/infiniband/user_verbs.rst"}
QUOTED = {rule.id: rule for rule in registry().values() if rule.quote}
CHECKED = [id_ for id_, rule in QUOTED.items() if rule.document not in UNCHECKED]


def sections_of(rule: Rule) -> str:
    """The text of those sections of the rule's document that the rule names; of a header, all of it."""
    path = pages.path_of(rule.document)
    assert path, f"{rule.id}: {rule.document} is neither a manual page nor a header, nor among UNCHECKED"
    if not path.exists():
        pytest.skip(f"{path} is not installed (libibverbs-dev, by a dpkg that leaves out no manual pages)")
    return "\n".join(text for heading, text in pages.sections(path).items() if heading in rule.section.split("; ")[0])


@pytest.mark.parametrize("id_", CHECKED)
def test_the_document_has_the_words(id_: str) -> None:
    rule = QUOTED[id_]
    if pages.stands(rule.quote, sections_of(rule)):
        return
    release = pages.installed_release()
    if release < int(rule.since):
        pytest.skip(f"{rule.document} of rdma-core {release} is older than these words, which came with {rule.since}")
    pytest.fail(f"{rule.document} of rdma-core {release} does not have in {rule.section}: {rule.quote}")


def test_words_that_differ_are_not_found() -> None:
    rule = QUOTED["REG-15"]
    text = sections_of(rule)
    assert not pages.stands(rule.quote.replace("must", "should"), text)
    assert not pages.stands(rule.quote, text.replace("must be set", "must not be set"))


def test_left_out_words_are_marked() -> None:
    assert pages.stands("one […] three four.", "Zero one two three four.")
    assert not pages.stands("one three", "one two three")
    assert not pages.stands("three […] one", "one two three")


@pytest.mark.parametrize("id_", QUOTED)
def test_a_quote_is_at_most_one_sentence(id_: str) -> None:
    assert not re.search(r"[.?!] +[A-Z(]", QUOTED[id_].quote)
