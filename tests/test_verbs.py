"""Tests that compare the suite's descriptions, and the words that rules quote, with the installed manual pages.
test_header.py compares the descriptions with headers."""

import re

import pytest

import pages
from conformance import verbs
from samples import registry

EVERY_VERB = [*verbs.VERBS.values(), *verbs.VENDOR_VERBS.values()]


def sections(document: str) -> dict[str, str]:
    """Returns the sections of a manual page or header, or skips the test if the document is not installed."""
    path = pages.path_of(document)
    assert path, f"{document} is neither a manual page nor a header, nor among UNCHECKED"
    if not path.exists():
        pytest.skip(
            f"{path} is not installed (package libibverbs-dev; dpkg may be configured to omit manual pages)",
        )
    return pages.sections(path)


@pytest.mark.parametrize("name", verbs.VERBS)
def test_the_prototype_is_in_its_page(name):
    verb, release = verbs.VERBS[name], pages.installed_release()
    if release < int(verb.since or 0):
        pytest.skip(
            f"{verb.document} of rdma-core {release} is older than {name}, added in {verb.since}",
        )
    # some prototypes are not in the synopsis
    text = re.sub(r'[\s"]', "", "".join(sections(verb.document).values()))
    assert re.sub(r"\s|const (?=void)", "", verb.signature) in text


def test_the_vendors_dialect_is_separate():
    verb = verbs.VENDOR_VERBS["ibv_rereg_mr"]
    assert verb.signature == (
        "int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, "
        "uint64_t access, struct ibv_rereg_mr_attr *attr)"
    )
    assert (verb.dialect, verb.convention) == (verbs.EXPERIMENTAL, verbs.Convention.ZERO_OR_ERRNO)
    (access,) = (parameter for parameter in verb.parameters if parameter.name == "access")
    assert access.allowed == ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "ALLOCATE_MR")
    assert verbs.VENDOR_STRUCTS["ibv_rereg_mr_attr"] in verbs.structs_in(verb)
    assert verbs.dialects("ibv_rereg_mr") == (verbs.MAINLINE, verbs.EXPERIMENTAL)
    assert verbs.dialects("ibv_reg_mr") == (verbs.MAINLINE,)
    assert verbs.dialects("ibv_nothing") == ()


def test_the_vendors_flag_has_no_number_and_is_not_a_mainline_flag():
    vendors = verbs.enum_in(verbs.EXPERIMENTAL, "ibv_access_flags")
    assert vendors is verbs.VENDOR_ENUMS["ibv_access_flags"]
    assert vendors.named("ALLOCATE_MR").value is None
    with pytest.raises(KeyError, match="no document gives IBV_ACCESS_ALLOCATE_MR a number"):
        vendors.value_of("ALLOCATE_MR")
    assert vendors.names_of(0b111) == ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"]
    assert "ALLOCATE_MR" not in verbs.enum_in(verbs.MAINLINE, "ibv_access_flags").short_names


def test_a_flag_is_found_by_its_short_and_by_its_full_name():
    access = verbs.ENUMS["ibv_access_flags"]
    assert access.value_of("REMOTE_WRITE") == access.value_of("IBV_ACCESS_REMOTE_WRITE") == 2
    assert access.mask_of("LOCAL_WRITE", "IBV_ACCESS_MW_BIND") == 0x11
    assert access.mask_of() == 0
    with pytest.raises(KeyError, match="ibv_access_flags has no REMOTE_WIRTE"):
        access.value_of("REMOTE_WIRTE")


@pytest.mark.parametrize(
    "mask, names",
    [
        (0, []),
        (0x100003, ["LOCAL_WRITE", "REMOTE_WRITE", "RELAXED_ORDERING"]),
        (1 << 31, ["0x80000000"]),
        (0x3FF00001, ["LOCAL_WRITE", "RELAXED_ORDERING", "0x3fe00000"]),
        (-(1 << 31) + 1, ["LOCAL_WRITE", "0x80000000"]),
    ],
)
def test_a_mask_is_named_bit_by_bit_and_the_unknown_rest_stays_a_number(mask, names):
    assert verbs.ENUMS["ibv_access_flags"].names_of(mask) == names


def test_a_single_value_is_named_or_stays_a_number():
    assert verbs.ENUMS["ibv_rereg_mr_err_code"].name_of(-4) == "ERR_CMD"
    assert verbs.ENUMS["ibv_qp_state"].name_of(0) == "RESET"
    assert verbs.ENUMS["ibv_qp_type"].name_of(77) == "77"


@pytest.mark.parametrize(
    "ctype, expected",
    [
        ("int", "int x"),
        ("struct ibv_mr *", "struct ibv_mr *x"),
        ("char[64]", "char x[64]"),
        ("void *(*)(void)", "void *(*x)(void)"),
        ("void (*)(struct ibv_pd *, int (*)(int))", "void (*x)(struct ibv_pd *, int (*)(int))"),
    ],
)
def test_a_declaration_has_the_syntax_of_c(ctype, expected):
    assert verbs.declaration(ctype, "x") == expected


@pytest.mark.parametrize("verb", EVERY_VERB, ids=lambda verb: f"{verb.name}-{verb.dialect}")
def test_the_enumerations_of_a_verb_exist_and_each_meaning_is_one_sentence(verb):
    owners: list[verbs.Field | verbs.Parameter] = [*verb.parameters]
    owners += [field for struct in verbs.structs_in(verb) for field in struct.fields]
    for owner in owners:
        if owner.enum:
            assert set(owner.allowed) <= set(verbs.enum_in(verb.dialect, owner.enum).short_names), (
                owner.name
            )
        else:
            assert not owner.allowed, owner.name
    assert not verb.code_enum or verb.code_enum in verbs.ENUMS
    for parameter in verb.parameters:
        # A meaning is one sentence: it begins with a capital, ends with its only full stop, and fits in two lines.
        assert parameter.meaning[0].isupper(), parameter.name
        assert parameter.meaning.endswith("."), parameter.name
        assert parameter.meaning.count(". ") == 0, parameter.name
        assert len(parameter.meaning) < 160, parameter.name


def test_an_alias_has_the_names_and_values_of_its_enumeration():
    for enum in verbs.ENUMS.values():
        if enum.alias_of:
            original = verbs.ENUMS[enum.alias_of]
            assert enum.short_names == original.short_names
            assert [constant.value for constant in enum] == [
                constant.value for constant in original
            ]


# Documents that no package installs. The words quoted from them were compared manually.
UNCHECKED = {
    "vendor documentation, Memory Region Re-registration",
    "Linux, drivers/dma-buf/dma-buf.c",
    "Linux, include/linux/dma-buf.h",
    "Linux, Documentation/infiniband/user_verbs.rst",
}
QUOTED = {rule.id: rule for rule in registry().values() if rule.quote}
CHECKED = [id_ for id_, rule in QUOTED.items() if rule.document not in UNCHECKED]


@pytest.mark.parametrize("id_", CHECKED)
def test_the_document_has_the_words_of_the_quote(id_):
    rule = QUOTED[id_]
    parts = rule.section.split("; ")
    section_text = []
    by_heading = sections(rule.document)
    for heading, text in by_heading.items():
        if any(heading in part for part in parts):
            section_text.append(text)
    if pages.stands(rule.quote, " ".join(section_text)):
        return
    release = pages.installed_release()
    if release < int(rule.since):
        pytest.skip(
            f"{rule.document} of rdma-core {release} is older than these words, added in {rule.since}",
        )
    place = f"{rule.location}: {rule.id}: {rule.document} of rdma-core {release}"
    if not section_text:
        pytest.fail(f"{place} has no section {rule.section!r}, only {', '.join(by_heading)}")
    pytest.fail(f"{place} does not have in {rule.section}: {rule.quote}")
