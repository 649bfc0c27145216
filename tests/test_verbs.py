"""The descriptions against names and numbers written down a second time, from the pages and verbs.h."""

from __future__ import annotations

import copy
import dataclasses
import errno
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.verbs import (
    CONSTANTS,
    ENUMS,
    EXPERIMENTAL,
    MAINLINE,
    STRUCTS,
    VENDOR_ENUMS,
    VENDOR_STRUCTS,
    VENDOR_VERBS,
    VERBS,
    Convention,
    Field,
    Linkage,
    Parameter,
    Verb,
    declaration,
    dialects,
    enum_in,
    structs_in,
)

ROOT = Path(__file__).parent.parent
EVERY_VERB = [*VERBS.values(), *VENDOR_VERBS.values()]

# The prototypes of the pages; an indented line goes on.
SIGNATURES = (
    """
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
 int fd, int access)
int ibv_dereg_mr(struct ibv_mr *mr)
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
int ibv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
 struct ibv_sge *sg_list, uint32_t num_sge)
int ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
int ibv_dealloc_mw(struct ibv_mw *mw)
""".strip()
    .replace("\n ", " ")
    .splitlines()
)

VALUES = {
    "ibv_node_type": "UNKNOWN=-1 CA=1 SWITCH=2 ROUTER=3 RNIC=4 USNIC=5 USNIC_UDP=6 UNSPECIFIED=7",
    "ibv_transport_type": "UNKNOWN=-1 IB=0 IWARP=1 USNIC=2 USNIC_UDP=3 UNSPECIFIED=4",
    "ibv_qp_state": "RESET=0 INIT=1 RTR=2 RTS=3 SQD=4 SQE=5 ERR=6 UNKNOWN=7",
    "ibv_qp_type": "RC=2 UC=3 UD=4 RAW_PACKET=8 XRC_SEND=9 XRC_RECV=10 DRIVER=255",
    "ibv_mw_type": "1=1 2=2",
    "ibv_access_flags": "LOCAL_WRITE=1 REMOTE_WRITE=2 REMOTE_READ=4 REMOTE_ATOMIC=8 MW_BIND=16 "
    "ZERO_BASED=32 ON_DEMAND=64 HUGETLB=128 FLUSH_GLOBAL=256 FLUSH_PERSISTENT=512 "
    "RELAXED_ORDERING=1048576",
    "ibv_rereg_mr_flags": "CHANGE_TRANSLATION=1 CHANGE_PD=2 CHANGE_ACCESS=4 FLAGS_SUPPORTED=7",
    "ibv_rereg_mr_err_code": "ERR_INPUT=-1 ERR_DONT_FORK_NEW=-2 ERR_DO_FORK_OLD=-3 ERR_CMD=-4 "
    "ERR_CMD_AND_DO_FORK_NEW=-5",
    "ibv_advise_mr_advice": "PREFETCH=0 PREFETCH_WRITE=1 PREFETCH_NO_FAULT=2",
    "ib_uverbs_advise_mr_advice": "PREFETCH=0 PREFETCH_WRITE=1 PREFETCH_NO_FAULT=2",
    "ibv_advise_mr_flag": "FLUSH=1",
    "ib_uverbs_advise_mr_flag": "FLUSH=1",
    "ibv_send_flags": "FENCE=1 SIGNALED=2 SOLICITED=4 INLINE=8 IP_CSUM=16",
}

FIELDS = {
    "_ibv_device_ops": "_dummy1 _dummy2",
    "ibv_device": "_ops node_type transport_type name dev_name dev_path ibdev_path",
    "ibv_context_ops": "_compat_query_device _compat_query_port _compat_alloc_pd _compat_dealloc_pd "
    "_compat_reg_mr _compat_rereg_mr _compat_dereg_mr alloc_mw bind_mw dealloc_mw "
    "_compat_create_cq poll_cq req_notify_cq _compat_cq_event _compat_resize_cq "
    "_compat_destroy_cq _compat_create_srq _compat_modify_srq _compat_query_srq "
    "_compat_destroy_srq post_srq_recv _compat_create_qp _compat_query_qp "
    "_compat_modify_qp _compat_destroy_qp post_send post_recv _compat_create_ah "
    "_compat_destroy_ah _compat_attach_mcast _compat_detach_mcast _compat_async_event",
    "ibv_context": "device ops cmd_fd async_fd num_comp_vectors mutex abi_compat",
    "ibv_pd": "context handle",
    "ibv_mr": "context pd addr length handle lkey rkey",
    "ibv_mw": "context pd rkey handle type",
    "ibv_mw_bind_info": "mr addr length mw_access_flags",
    "ibv_mw_bind": "wr_id send_flags bind_info",
    "ibv_sge": "addr length lkey",
    "ibv_comp_channel": "context fd refcnt",
    "ibv_cq": "context channel cq_context handle cqe mutex cond comp_events_completed async_events_completed",
    "ibv_srq": "context srq_context pd handle mutex cond events_completed",
    "ibv_qp": "context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond events_completed",
}


def test_the_signatures_are_those_of_the_manual_pages() -> None:
    assert [verb.signature for verb in VERBS.values()] == SIGNATURES, (
        "write the prototype of the page into SIGNATURES in tests/test_verbs.py"
    )


def test_the_enumerators_have_the_numbers_of_the_header() -> None:
    described = {
        name: " ".join(f"{enum.short(each.name)}={each.value}" for each in enum) for name, enum in ENUMS.items()
    }
    assert described == VALUES, "write the numbers of the header into VALUES in tests/test_verbs.py"


def test_the_structs_have_the_fields_of_the_header_in_order() -> None:
    described = {name: " ".join(field.name for field in struct.fields) for name, struct in STRUCTS.items()}
    assert described == FIELDS


def test_the_optional_access_flags_are_bits_20_to_29() -> None:
    assert CONSTANTS["IBV_ACCESS_OPTIONAL_FIRST"].value == 1 << 20
    assert CONSTANTS["IBV_ACCESS_OPTIONAL_RANGE"].value == sum(1 << bit for bit in range(20, 30))
    relaxed = ENUMS["ibv_access_flags"].value_of("RELAXED_ORDERING")
    assert relaxed & CONSTANTS["IBV_ACCESS_OPTIONAL_RANGE"].value


def test_length_is_a_size_t_and_says_that_the_seed_differs() -> None:
    verbs = ("ibv_reg_mr", "ibv_reg_mr_iova", "ibv_rereg_mr")
    arguments = [VERBS[name].parameter("length") for name in verbs]
    places: list[Field | Parameter] = [STRUCTS["ibv_mr"].field("length"), *arguments]
    for where in places:
        assert where.ctype == "size_t"
        assert "int" in where.discrepancy


@pytest.mark.parametrize(
    ("name", "convention", "document", "linkage"),
    [
        ("ibv_reg_mr", Convention.POINTER_OR_NULL, "ibv_reg_mr(3)", Linkage.MACRO),
        ("ibv_reg_mr_iova", Convention.POINTER_OR_NULL, "ibv_reg_mr(3)", Linkage.MACRO),
        ("ibv_reg_dmabuf_mr", Convention.POINTER_OR_NULL, "ibv_reg_mr(3)", Linkage.EXPORTED),
        ("ibv_dereg_mr", Convention.ZERO_OR_ERRNO, "ibv_reg_mr(3)", Linkage.EXPORTED),
        ("ibv_rereg_mr", Convention.ZERO_OR_CODE, "ibv_rereg_mr(3)", Linkage.EXPORTED),
        ("ibv_advise_mr", Convention.ZERO_OR_ERRNO, "ibv_advise_mr(3)", Linkage.INLINE),
        ("ibv_bind_mw", Convention.ZERO_OR_ERRNO, "ibv_bind_mw(3)", Linkage.INLINE),
        ("ibv_alloc_mw", Convention.POINTER_OR_NULL, "ibv_alloc_mw(3)", Linkage.INLINE),
        ("ibv_dealloc_mw", Convention.ZERO_OR_ERRNO, "ibv_alloc_mw(3)", Linkage.INLINE),
    ],
)
def test_each_verb_follows_its_pages_convention(
    name: str, convention: Convention, document: str, linkage: Linkage
) -> None:
    verb = VERBS[name]
    assert (verb.convention, verb.document, verb.linkage) == (convention, document, linkage)


def test_advise_documents_eight_reasons_with_this_systems_numbers() -> None:
    codes = VERBS["ibv_advise_mr"].codes
    assert " ".join(codes) == "EOPNOTSUPP ENOSYS ENOTSUP EFAULT EINVAL EPERM ENOENT ENOMEM"
    assert all(code.value == getattr(errno, name) for name, code in codes.items())
    assert [len(codes[name].causes) for name in ("EFAULT", "EINVAL", "EPERM", "ENOENT")] == [2, 3, 2, 1]


def test_rereg_documents_five_codes_and_what_each_leaves_of_the_region() -> None:
    verb = VERBS["ibv_rereg_mr"]
    prefix = "IBV_REREG_MR_"
    assert {name.removeprefix(prefix): (code.value, code.leaves) for name, code in verb.codes.items()} == {
        "ERR_INPUT": (-1, "old MR valid"),
        "ERR_DONT_FORK_NEW": (-2, "old MR valid"),
        "ERR_DO_FORK_OLD": (-3, "new MR valid"),
        "ERR_CMD": (-4, "MR unusable"),
        "ERR_CMD_AND_DO_FORK_NEW": (-5, "MR unusable"),
    }
    assert list(verb.codes) == [each.name for each in ENUMS[verb.code_enum]]


def test_reasons_that_a_page_leaves_open_are_empty() -> None:
    assert [verb.name for verb in VERBS.values() if verb.codes] == ["ibv_rereg_mr", "ibv_advise_mr"]
    assert not VENDOR_VERBS["ibv_rereg_mr"].codes


def test_a_dmabuf_allows_five_flags_and_a_window_four() -> None:
    assert VERBS["ibv_reg_dmabuf_mr"].parameter("access").allowed == (
        "LOCAL_WRITE",
        "REMOTE_WRITE",
        "REMOTE_READ",
        "REMOTE_ATOMIC",
        "RELAXED_ORDERING",
    )
    assert STRUCTS["ibv_mw_bind_info"].field("mw_access_flags").allowed == (
        "REMOTE_WRITE",
        "REMOTE_READ",
        "REMOTE_ATOMIC",
        "ZERO_BASED",
    )
    assert STRUCTS["ibv_mw_bind"].field("send_flags").allowed == ("FENCE", "SIGNALED")
    assert VERBS["ibv_bind_mw"].parameter("qp").allowed == ("UC", "RC", "XRC_SEND")


def test_the_vendors_dialect_is_separate() -> None:
    verb = VENDOR_VERBS["ibv_rereg_mr"]
    assert verb.signature == (
        "int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, "
        "uint64_t access, struct ibv_rereg_mr_attr *attr)"
    )
    assert (verb.dialect, verb.convention) == (EXPERIMENTAL, Convention.ZERO_OR_ERRNO)
    assert verb.parameter("access").allowed == ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "ALLOCATE_MR")
    assert VENDOR_STRUCTS["ibv_rereg_mr_attr"] in structs_in(verb)
    assert dialects("ibv_rereg_mr") == (MAINLINE, EXPERIMENTAL)
    assert dialects("ibv_reg_mr") == (MAINLINE,)
    assert dialects("ibv_nothing") == ()


def test_the_vendors_flag_has_no_number_and_is_not_a_mainline_flag() -> None:
    vendors = enum_in(EXPERIMENTAL, "ibv_access_flags")
    assert vendors is VENDOR_ENUMS["ibv_access_flags"]
    assert vendors.named("ALLOCATE_MR").value is None
    with pytest.raises(KeyError, match="no document gives IBV_ACCESS_ALLOCATE_MR a number"):
        vendors.value_of("ALLOCATE_MR")
    assert vendors.names_of(0b111) == ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"]
    assert "ALLOCATE_MR" not in enum_in(MAINLINE, "ibv_access_flags").short_names
    assert len(ENUMS["ibv_access_flags"].short_names) == len(VALUES["ibv_access_flags"].split())


def test_a_flag_is_found_by_its_short_and_by_its_full_name() -> None:
    access = ENUMS["ibv_access_flags"]
    assert access.value_of("REMOTE_WRITE") == access.value_of("IBV_ACCESS_REMOTE_WRITE") == 2
    assert access.mask_of("LOCAL_WRITE", "IBV_ACCESS_MW_BIND") == 0x11
    assert access.mask_of() == 0
    with pytest.raises(KeyError, match="ibv_access_flags has no REMOTE_WIRTE"):
        access.value_of("REMOTE_WIRTE")


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, []),
        (0x100003, ["LOCAL_WRITE", "REMOTE_WRITE", "RELAXED_ORDERING"]),
        (1 << 31, ["0x80000000"]),
        (0x3FF00001, ["LOCAL_WRITE", "RELAXED_ORDERING", "0x3fe00000"]),
        (-(1 << 31) + 1, ["LOCAL_WRITE", "0x80000000"]),
    ],
)
def test_a_mask_is_named_bit_by_bit_and_the_unknown_rest_stays_a_number(mask: int, names: list[str]) -> None:
    assert ENUMS["ibv_access_flags"].names_of(mask) == names


def test_a_mask_of_all_flags_is_not_a_choice_of_its_own() -> None:
    rereg = ENUMS["ibv_rereg_mr_flags"]
    assert rereg.short_names == ("CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS")
    assert rereg.names_of(rereg.value_of("FLAGS_SUPPORTED")) == list(rereg.short_names)


def test_a_single_value_is_named_or_stays_a_number() -> None:
    assert ENUMS["ibv_rereg_mr_err_code"].name_of(-4) == "ERR_CMD"
    assert ENUMS["ibv_qp_state"].name_of(0) == "RESET"
    assert ENUMS["ibv_qp_type"].name_of(77) == "77"


@pytest.mark.parametrize(
    ("ctype", "expected"),
    [
        ("int", "int x"),
        ("struct ibv_mr *", "struct ibv_mr *x"),
        ("char[64]", "char x[64]"),
        ("void *(*)(void)", "void *(*x)(void)"),
        ("void (*)(struct ibv_pd *, int (*)(int))", "void (*x)(struct ibv_pd *, int (*)(int))"),
    ],
)
def test_a_type_declares_a_name_as_c_does(ctype: str, expected: str) -> None:
    assert declaration(ctype, "x") == expected


@pytest.mark.parametrize("verb", EVERY_VERB, ids=lambda verb: f"{verb.name}-{verb.dialect}")
def test_everything_a_verb_names_is_described(verb: Verb) -> None:
    owners: list[Field | Parameter] = [*verb.parameters]
    owners += [field for struct in structs_in(verb) for field in struct.fields]
    for owner in owners:
        if owner.enum:
            assert set(owner.allowed) <= set(enum_in(verb.dialect, owner.enum).short_names), owner.name
        else:
            assert not owner.allowed, owner.name
    assert not verb.code_enum or verb.code_enum in ENUMS
    for parameter in verb.parameters:
        # One clear sentence: it starts large, ends with its only full stop, and fits two lines.
        assert parameter.meaning[0].isupper(), parameter.name
        assert parameter.meaning.endswith("."), parameter.name
        assert parameter.meaning.count(". ") == 0, parameter.name
        assert len(parameter.meaning) < 160, parameter.name


def test_the_structs_behind_pointers_are_reached_nearest_first() -> None:
    names = [struct.name for struct in structs_in(VERBS["ibv_bind_mw"])]
    assert names[:3] == ["ibv_qp", "ibv_mw", "ibv_mw_bind"]
    assert {"ibv_mw_bind_info", "ibv_mr", "ibv_context_ops", "ibv_device"} <= set(names)


def test_an_alias_agrees_with_the_enumeration_behind_it() -> None:
    for enum in ENUMS.values():
        if enum.alias_of:
            original = ENUMS[enum.alias_of]
            assert enum.short_names == original.short_names
            assert [each.value for each in enum] == [each.value for each in original]


def test_descriptions_are_frozen_and_survive_copies() -> None:
    verb = VERBS["ibv_rereg_mr"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        verb.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        VERBS["ibv_new"] = verb  # type: ignore[index]
    assert pickle.loads(pickle.dumps(verb)) == copy.deepcopy(verb) == verb
    assert len(set(EVERY_VERB)) == len(EVERY_VERB)


def test_importing_needs_the_standard_library_only() -> None:
    program = (
        "import sys; before = set(sys.modules); import conformance.verbs; new = set(sys.modules) - before; "
        "print(*{name.partition('.')[0] for name in new} - set(sys.stdlib_module_names))"
    )
    # -S -E: neither installed packages nor the environment's paths.
    command = [sys.executable, "-S", "-E", "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (run.stdout.split(), run.stderr) == (["conformance"], "")
