"""The personas. The paths that begin with `drivers/` and `include/` are of Linux, the others of rdma-core.

The sources are Linux 7.2 and rdma-core 691953d. The behaviours are in behaviours.yaml; some are permitted variants of
the mutants.
"""

from collections.abc import Mapping
from dataclasses import replace

from trial.personas.persona import Persona
from trial.personas.sysfs_port import EFA, INFINIBAND, IWARP, MANA

_HW = "drivers/infiniband/hw"
_CHANGES: Mapping[str, str] = {
    "no-change-is-a-command-error": "drivers/infiniband/core/uverbs_cmd.c: ib_uverbs_rereg_mr"
}


def _dropping(where: str) -> dict[str, str]:
    return {"zero-based-is-dropped": f"{where}, which does not check IB_ZERO_BASED"}


def _without(where: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, where)


_PAGING = ("odp", "odp_implicit", "odp_atomic", "odp_uc_write", "odp_flush", "odp_atomic_write", "advise_mr")
_FLUSHING = ("flush_global", "flush_persistent", "atomic_write")
_WINDOWS = ("mw_type_1", "mw_type_2")
_BINDING = (*_WINDOWS, "wr_post_windows")
_BUILDING = ("wr_post", "wr_post_windows")
_CHANGING = ("rereg_mr", "rereg_translation")
_BEYOND_REGISTRATION = (*_BUILDING, *_PAGING, *_CHANGING, *_WINDOWS, "reg_dmabuf_mr")
_NOT_OF_IWARP = ("immediate_data", "iba_statuses", "read_sinks")

_SINKS = "drivers/infiniband/core/rw.c: rdma_rw_init_one_mr, which gives the sink of a READ the right on iWARP"
_NO_BIND_BIT = f"{_HW}/mlx5/mr.c: set_mkc_access_pd_addr_fields, whose memory keys have no bit for MW_BIND"
_HOLDS_NOTHING = f"{_HW}/mlx5/mr.c: __mlx5_ib_dereg_mr, which checks no window"
_LAST_PAGE = f"{_HW}/mlx5/odp.c: pagefault_mr, which compares with the end of the last page"
_HUGE = f"{_HW}/mlx5/mr.c: create_user_odp_mr, by core/umem.c: ib_umem_find_best_pgsz, which compares no offsets"
_TAG_ALONE = "providers/mlx5/qp.c: set_umr_mkey_seg, which takes the lowest byte of the key"
_CHECKED = ", by core/umem.c: ib_umem_check_rereg"
_MLX5 = Persona(
    "mlx5",
    {
        **_without(f"{_HW}/mlx5/main.c: mlx5_ib_query_device", *_FLUSHING),
        **_without(f"{_HW}/mlx5/odp.c: internal_fill_odp_caps", "odp_uc_send", "odp_uc_recv", "odp_uc_write"),
        **_without(f"{_HW}/mlx5/odp.c: internal_fill_odp_caps", "odp_ud_recv", "odp_flush", "odp_atomic_write"),
    },
    {
        **_CHANGES,
        "no-zero-based-type-one": "providers/mlx5/qp.c: mlx5_bind_mw",
        "no-bind-of-zero-based-regions": "providers/mlx5/qp.c: mlx5_bind_mw",
        "windows-of-two-gigabytes": "providers/mlx5/qp.c: set_bind_wr",
        "keys-kept": f"{_HW}/mlx5/mr.c: mlx5_ib_rereg_user_mr, by mlx5r_umr_rereg_pd_access",
        "last-key-comes-back": f"{_HW}/mlx5/mr.c: mlx5_ib_dereg_mr, which gives keys back to a pool",
        "only-flushed-advice-is-followed": f"{_HW}/mlx5/odp.c: mlx5_ib_advise_mr_prefetch, which queues the rest",
        "failures-carry-vendor-errors": "providers/mlx5/cq.c: mlx5_handle_error_cqe",
        "unreliable-writes-on-demand-are-lost": f"{_HW}/mlx5/odp.c: internal_fill_odp_caps, which declares none",
        "advice-ends-with-the-page": _LAST_PAGE,
        "no-right-to-bind": _NO_BIND_BIT,
        "index-of-a-key-is-ignored": _TAG_ALONE,
        "no-new-right-to-write": f"{_HW}/mlx5/mr.c: mlx5_ib_rereg_user_mr{_CHECKED}",
        "windows-hold-nothing": _HOLDS_NOTHING,
        "huge-pages-keep-their-offset": _HUGE,
        **_dropping(f"{_HW}/mlx5/mr.c: set_mkc_access_pd_addr_fields"),
    },
    mistakes={
        "REG-11": f"{_HW}/mlx5/mr.c: set_mkc_access_pd_addr_fields",
        "IOVA-06": _HUGE,
        "REG-10": _NO_BIND_BIT,
        "NUL-05": _NO_BIND_BIT,
        "DEREG-02": _HOLDS_NOTHING,
        "ADV-08": _LAST_PAGE,
        "BIND-20": _TAG_ALONE,
        "REREG-12": f"{_HW}/mlx5/mr.c: mlx5_ib_rereg_user_mr{_CHECKED}",
    },
    port=INFINIBAND,
)

_MLX4 = Persona(
    "mlx4",
    _without("providers/mlx4/mlx4.c: mlx4_ctx_ops", *_PAGING, "reg_dmabuf_mr", *_FLUSHING, *_BUILDING),
    {
        **_CHANGES,
        "keys-kept": f"{_HW}/mlx4/mr.c: mlx4_ib_rereg_user_mr",
        "no-writing-of-read-only-pins": f"{_HW}/mlx4/mr.c: mlx4_ib_rereg_user_mr",
        "pinned-for-writing": f"{_HW}/mlx4/mr.c: mlx4_get_umem_mr",
        "relaxed-ordering-ignored": f"{_HW}/mlx4/mr.c: mlx4_ib_reg_user_mr, by convert_access",
        "failures-carry-vendor-errors": "providers/mlx4/cq.c: mlx4_handle_error_cqe",
        **_dropping(f"{_HW}/mlx4/mr.c: mlx4_ib_reg_user_mr"),
    },
    mistakes={"REG-11": f"{_HW}/mlx4/mr.c: mlx4_ib_reg_user_mr"},
)

_IRDMA_PROVIDER = "providers/irdma/umain.c: irdma_uctx_ops"
_IRDMA_PART = f"{_HW}/irdma/verbs.c: irdma_reg_user_mr, which requires the provider's part of the command"
_IRDMA_REREG = f"{_HW}/irdma/verbs.c: irdma_rereg_user_mr"
_IRDMA: Mapping[str, str] = {
    **_CHANGES,
    "no-new-right-to-write": f"{_IRDMA_REREG}{_CHECKED}",
    "long-lengths-are-refused-unselected": f"{_IRDMA_REREG}, which checks the length first",
    "absent-types-are-invalid": "providers/irdma/uverbs.c: irdma_ucreate_qp_ex",
    "keys-kept": f"{_HW}/irdma/verbs.c: irdma_rereg_user_mr",
    "relaxed-ordering-ignored": f"{_HW}/irdma/verbs.c: irdma_hwreg_mr, by irdma_get_mr_access",
    "failures-carry-vendor-errors": f"{_HW}/irdma/verbs.c: irdma_process_cqe",
}
_IRDMA_RIGHTS = f"{_HW}/irdma/verbs.c: irdma_roce_fill_and_set_qpctx_info, and irdma_modify_qp_roce removes none"
_IRDMA_IW_RIGHTS = f"{_HW}/irdma/verbs.c: irdma_iw_fill_and_set_qpctx_info, and irdma_modify_qp removes none"
_IRDMA_MISTAKES = {
    "REREG-12": _IRDMA["no-new-right-to-write"],
    "REREG-13": _IRDMA["long-lengths-are-refused-unselected"],
}
_IRDMA_RESET = f"{_HW}/irdma/verbs.c: irdma_modify_qp_roce, which treats RESET as the error state"
_IRDMA_THIRD = Persona(
    "irdma",
    _without(_IRDMA_PROVIDER, *_PAGING, *_FLUSHING, *_BUILDING, "uc", "xrc"),
    {
        **_IRDMA,
        "reads-and-writes-need-no-right": _IRDMA_RIGHTS,
        "no-bind-of-zero-based-regions": "providers/irdma/uverbs.c: irdma_ubind_mw",
        "no-init-after-reset": _IRDMA_RESET,
        "binds-on-reliable-connections-only": "providers/irdma/uverbs.c: irdma_upost_send",
    },
    raw_registration=_IRDMA_PART,
    mistakes={**_IRDMA_MISTAKES, "REG-28": _IRDMA_RIGHTS},
)
_IRDMA_FLAG = f"{_HW}/irdma/verbs.c: irdma_query_device, which declares windows for every generation"
_IRDMA_SECOND = Persona(
    "irdma-e810",
    {
        **_without(_IRDMA_PROVIDER, *_PAGING, *_FLUSHING, *_BUILDING, "uc", "xrc", "rc_srq"),
        **_without("providers/irdma/uverbs.c: irdma_upost_send, IRDMA_FEATURE_ATOMIC_OPS", "atomics"),
        **_without(f"{_HW}/irdma/verbs.c: irdma_alloc_mw, which only the third generation has", *_WINDOWS),
    },
    {**_IRDMA, "no-init-after-reset": _IRDMA_RESET, "reads-and-writes-need-no-right": _IRDMA_RIGHTS},
    claims=_without(_IRDMA_FLAG, "mw_type_1"),
    raw_registration=_IRDMA_PART,
    mistakes={**_IRDMA_MISTAKES, "REG-28": _IRDMA_RIGHTS},
)
_IRDMA_IWARP = Persona(
    "irdma-iwarp",
    {
        **_IRDMA_SECOND.lacks,
        **_without(f"{_HW}/irdma/verbs.c: irdma_iw_port_immutable", "ud", *_NOT_OF_IWARP),
        **_without("providers/irdma/uverbs.c: irdma_upost_send, max_hw_read_sges", "read_lists"),
    },
    {
        **_IRDMA,
        "reads-and-writes-need-no-right": _IRDMA_IW_RIGHTS,
        "reads-have-one-element": "providers/irdma/uverbs.c: irdma_upost_send, max_hw_read_sges",
        "read-sinks-need-remote-write": _SINKS,
        "errors-are-general": "providers/irdma/uverbs.c: irdma_process_cqe, for errors other than flushes",
    },
    claims=_IRDMA_SECOND.claims,
    raw_registration=_IRDMA_PART,
    mistakes={**_IRDMA_MISTAKES, "REG-28": _IRDMA_IW_RIGHTS},
    port=IWARP,
)

_BNXT_RE = Persona(
    "bnxt_re",
    {
        **_without("providers/bnxt_re/main.c: bnxt_re_cntx_ops", *_PAGING, *_CHANGING, *_BINDING, *_FLUSHING, "xrc"),
        **_without("providers/bnxt_re/verbs.c: bnxt_re_check_qp_limits", "uc"),
    },
    {
        "absent-types-are-invalid": "providers/bnxt_re/verbs.c: bnxt_re_check_qp_limits",
        "negative-errno-when-posted": "providers/bnxt_re/verbs.c: bnxt_re_post_send",
        "dead-after-reset": "providers/bnxt_re/verbs.c: bnxt_re_modify_qp, which leaves the sequence numbers",
        "operations-are-not-compared": "providers/bnxt_re/verbs.c: bnxt_re_set_qp_ex_ops",
    },
    mistakes={"WRX-01": "providers/bnxt_re/verbs.c: bnxt_re_set_qp_ex_ops"},
    claims=_without(f"{_HW}/bnxt_re/ib_verbs.c: bnxt_re_query_device", *_WINDOWS),
)

_HNS = Persona(
    "hns",
    {
        **_without("providers/hns/hns_roce_u.c: hns_common_ops", *_PAGING, *_BINDING, *_FLUSHING, "reg_dmabuf_mr"),
        **_without("providers/hns/hns_roce_u_verbs.c: check_qp_create_mask", "uc"),
    },
    {
        **_CHANGES,
        "empty-arguments-have-no-errno": "providers/hns/hns_roce_u_verbs.c: hns_roce_u_reg_mr",
        "pinning-faults-are-enomem": f"{_HW}/hns/hns_roce_mr.c: mtr_alloc_bufs",
        "lowest-free-key": f"{_HW}/hns/hns_roce_mr.c: alloc_mr_key, by ida_alloc_range",
        "keys-kept": f"{_HW}/hns/hns_roce_mr.c: hns_roce_rereg_user_mr",
        "no-new-right-to-write": f"{_HW}/hns/hns_roce_mr.c: hns_roce_rereg_user_mr{_CHECKED}",
        "no-change-after-a-failed-one": f"{_HW}/hns/hns_roce_mr.c: hns_roce_rereg_user_mr",
        "relaxed-ordering-ignored": f"{_HW}/hns/hns_roce_mr.c: hns_roce_reg_user_mr",
        **_dropping(f"{_HW}/hns/hns_roce_mr.c: hns_roce_reg_user_mr"),
    },
    mistakes={
        "REG-02a": "providers/hns/hns_roce_u_verbs.c: hns_roce_u_reg_mr",
        "REG-11": f"{_HW}/hns/hns_roce_mr.c: hns_roce_reg_user_mr",
        "REREG-12": f"{_HW}/hns/hns_roce_mr.c: hns_roce_rereg_user_mr{_CHECKED}",
    },
)

_EFA = Persona(
    "efa",
    {
        **_without("providers/efa/verbs.c: efa_create_qp", "rc", "uc", "xrc", *_BUILDING),
        **_without("providers/efa/verbs.c: efa_check_qp_attr", "rc_srq"),
        **_without("providers/efa/efa.c: efa_ctx_ops", *_PAGING, *_CHANGING, *_WINDOWS),
        **_without(f"{_HW}/efa/efa_verbs.c: efa_port_link_layer, which reports no standard layer", "iba_statuses"),
        **_without(f"{_HW}/efa/efa_verbs.c: efa_alloc_mr", "atomics", "zero_based", *_FLUSHING),
    },
    {
        "two-keys": f"{_HW}/efa/efa_verbs.c: efa_register_mr",
        "huge-pages-not-offered": f"{_HW}/efa/efa_verbs.c: efa_alloc_mr",
        "relaxed-ordering-ignored": f"{_HW}/efa/efa_verbs.c: efa_alloc_mr, which removes all optional flags",
        "every-send-is-signaled": "providers/efa/verbs.c: efa_post_send_validate",
        "no-posting-in-known-error": "providers/efa/verbs.c: efa_post_send_validate, efa_post_recv_validate",
        "no-asynchronous-events": f"{_HW}/efa/efa_main.c: efa_process_eqe, which knows no events of queue pairs",
    },
    port=EFA,
)

_MANA_STATUS = "providers/mana/cq.c: vendor_error_to_wc_error"
_MANA = Persona(
    "mana",
    {
        **_without("providers/mana/qp.c: mana_create_qp", "uc", "ud", "xrc", *_BUILDING),
        **_without(f"{_HW}/mana/device.c: mana_ib_dev_ops", *_PAGING, *_CHANGING, *_WINDOWS, *_FLUSHING, "rc_srq"),
        **_without("providers/mana/wr.c: is_opcode_supported", "atomics"),
    },
    {
        "hugetlb-without-paging-refused": f"{_HW}/mana/mr.c: mana_ib_reg_user_mr",
        "unsupported-flags-are-invalid": f"{_HW}/mana/mr.c: mana_ib_reg_user_mr",
        "windows-cannot-be-bound": f"{_HW}/mana/mr.c: mana_ib_alloc_mw, which mana_ib_query_device does not report",
        "no-query-of-queue-pairs": f"{_HW}/mana/device.c: mana_ib_dev_ops",
        "no-posting-in-error": "providers/mana/wr.c: mana_ib_post_send",
        "invalid-requests-are-operation-errors": _MANA_STATUS,
        "relaxed-ordering-ignored": f"{_HW}/mana/mr.c: mana_ib_verbs_to_gdma_access_flags",
    },
    mistakes={"STAT-02": _MANA_STATUS},
    port=MANA,
)

_ERDMA_RIGHTS = f"{_HW}/erdma/erdma_verbs.c: erdma_modify_qp, which does not check qp_access_flags"
_ERDMA = Persona(
    "erdma",
    {
        **_without(f"{_HW}/erdma/erdma_verbs.c: erdma_qp_validate_attr", "uc", "ud", "xrc", "rc_srq"),
        **_without("providers/erdma/erdma.c: erdma_context_ops", *_BEYOND_REGISTRATION),
        **_without(f"{_HW}/erdma/erdma_verbs.c: erdma_query_device", *_FLUSHING),
        **_without(f"{_HW}/erdma/erdma_verbs.c: erdma_get_port_immutable", "iba_statuses", "read_sinks"),
        **_without("providers/erdma/erdma_verbs.c: erdma_push_one_sqe, which reads into one element", "read_lists"),
        **_without("providers/erdma/erdma_verbs.h: ERDMA_MAX_RECV_SGE", "lists"),
    },
    {
        "negative-io-error-in-known-error": "providers/erdma/erdma_verbs.c: erdma_post_send, erdma_post_recv",
        "negative-errno-when-posted": "providers/erdma/erdma_verbs.c: erdma_push_one_sqe",
        "receives-have-one-element": "providers/erdma/erdma_verbs.c: push_recv_wqe",
        "own-errors-are-access-errors": "providers/erdma/erdma_verbs.c: map_cqe_status",
        "queue-pairs-have-all-rights": _ERDMA_RIGHTS,
        "keys-have-tag-zero": f"{_HW}/erdma/erdma_verbs.c: erdma_create_stag",
        "relaxed-ordering-ignored": f"{_HW}/erdma/erdma_verbs.c: erdma_reg_user_mr, by to_erdma_access_flags",
        **_dropping(f"{_HW}/erdma/erdma_verbs.c: erdma_reg_user_mr"),
    },
    mistakes={"REG-11": f"{_HW}/erdma/erdma_verbs.c: erdma_reg_user_mr", "REG-28": _ERDMA_RIGHTS},
    hides=_without("providers/erdma/erdma_verbs.c: erdma_push_one_sqe, though it is an RNIC", "immediate_data"),
    port=IWARP,
)

_CXGB4 = Persona(
    "cxgb4",
    {
        **_without("providers/cxgb4/qp.c: c4iw_post_send", "atomics", "immediate_data"),
        **_without("providers/cxgb4/dev.c: c4iw_ctx_common_ops", *_BEYOND_REGISTRATION),
        **_without(f"{_HW}/cxgb4/qp.c: c4iw_create_qp", "uc", "ud", "xrc"),
        **_without(f"{_HW}/cxgb4/provider.c: c4iw_query_device", *_FLUSHING, "read_lists"),
        **_without(f"{_HW}/cxgb4/provider.c: c4iw_port_immutable", "iba_statuses", "read_sinks"),
    },
    {
        "negative-errno-when-posted": "providers/cxgb4/qp.c: c4iw_post_send",
        "reads-have-one-element": "providers/cxgb4/qp.c: build_rdma_read",
        "read-sinks-need-remote-write": _SINKS,
        "own-errors-are-access-errors": "providers/cxgb4/cq.c: c4iw_poll_cq_one",
        "negative-errno-in-error": "providers/cxgb4/qp.c: c4iw_post_send, c4iw_post_receive",
        "terminated-is-another-state": f"{_HW}/cxgb4/iw_cxgb4.h: to_ib_qp_state, after ev.c: post_qp_event",
        "pinning-faults-are-enomem": f"{_HW}/cxgb4/mem.c: c4iw_reg_user_mr, which leaves err as it was",
        "no-bytes-within-a-page": f"{_HW}/cxgb4/mem.c: register_mem, without rights",
        "relaxed-ordering-ignored": f"{_HW}/cxgb4/iw_cxgb4.h: c4iw_ib_to_tpt_access",
        **_dropping(f"{_HW}/cxgb4/mem.c: c4iw_reg_user_mr"),
    },
    mistakes={"REG-11": f"{_HW}/cxgb4/mem.c: c4iw_reg_user_mr"},
    claims=_without(f"{_HW}/cxgb4/provider.c: c4iw_query_device", "mw_type_1"),
    port=IWARP,
)

_QEDR_COMMON: Mapping[str, str] = {
    "no-remote-key-without-rights": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr",
    "keys-have-tag-zero": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr",
    "no-bytes-within-a-page": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr, which does not check the length",
    "pinning-faults-are-efault": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr",
    "relaxed-ordering-ignored": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr",
    "negative-errno-when-posted": "providers/qedr/qelr_verbs.c: qelr_post_send",
    **_dropping(f"{_HW}/qedr/verbs.c: qedr_reg_user_mr"),
}
_QEDR_MISTAKES = {"REG-11": f"{_HW}/qedr/verbs.c: qedr_reg_user_mr"}
_QEDR = Persona(
    "qedr",
    {
        **_without(f"{_HW}/qedr/verbs.c: qedr_check_qp_attrs", "uc", "ud"),
        **_without("providers/qedr/qelr_main.c: qelr_ctx_ops", *_BEYOND_REGISTRATION),
        **_without(f"{_HW}/qedr/verbs.c: qedr_query_device", *_FLUSHING),
    },
    _QEDR_COMMON,
    mistakes=_QEDR_MISTAKES,
)
_QEDR_IWARP = Persona(
    "qedr-iwarp",
    {**_QEDR.lacks, **_without(f"{_HW}/qedr/main.c: qedr_iw_port_immutable", "xrc", "atomics", *_NOT_OF_IWARP)},
    {**_QEDR_COMMON, "read-sinks-need-remote-write": _SINKS},
    mistakes=_QEDR_MISTAKES,
    port=IWARP,
)

_IONIC_BIND = "providers/ionic/ionic_verbs.c: ionic_v1_prep_bind"
_IONIC_KEY = f"{_IONIC_BIND}, whose request has one byte for the key"
_IONIC = Persona(
    "ionic",
    {
        **_without("providers/ionic/ionic_verbs.c: ionic_ctx_ops", *_PAGING, *_CHANGING, *_FLUSHING, "rc_srq", "xrc"),
        **_without("providers/ionic/ionic_verbs.c: ionic_create_qp_ex", "uc"),
    },
    {
        "lowest-free-index": f"{_HW}/ionic/ionic_controlpath.c: ionic_get_mrid, by ida_alloc_range",
        "index-of-a-key-is-ignored": _IONIC_KEY,
        "unbinding-keeps-the-key": "providers/ionic/ionic_verbs.c: ionic_bind_mw",
        "no-empty-type-two": _IONIC_BIND,
        "bind-faults-are-found-in-completions": f"{_IONIC_BIND}, which compares no domains",
        "relaxed-ordering-ignored": f"{_HW}/ionic/ionic_controlpath.c: ionic_reg_user_mr, by to_ionic_mr_flags",
    },
    mistakes={"BIND-20": _IONIC_KEY},
)

_SIW_RIGHTS = "drivers/infiniband/sw/siw/siw_qp.c: siw_qp_modify_nonstate, whose flags nothing reads"
_SIW_VA = "drivers/infiniband/sw/siw/siw_verbs.c: siw_reg_user_mr, which drops rnic_va"
_SIW = Persona(
    "siw",
    {
        **_without("providers/siw/siw.c: push_send_wqe", "atomics", "immediate_data"),
        **_without("providers/siw/siw.c: siw_context_ops", *_BEYOND_REGISTRATION),
        **_without("drivers/infiniband/sw/siw/siw_verbs.c: siw_create_qp", "uc", "ud", "xrc"),
        **_without("drivers/infiniband/sw/siw/siw_verbs.c: siw_query_device", *_FLUSHING, "read_lists"),
        **_without("drivers/infiniband/sw/siw/siw_verbs.c: siw_get_port_immutable", "iba_statuses", "read_sinks"),
    },
    {
        "receives-need-an-element": "providers/siw/siw.c: push_recv_wqe",
        "reads-have-one-element": "drivers/infiniband/sw/siw/siw_verbs.c: siw_post_send",
        "negative-errno-when-posted": "providers/siw/siw.c: push_send_wqe",
        "terminated-is-another-state": "drivers/infiniband/sw/siw/siw_verbs.c: siw_qp_state_to_ib_qp_state",
        "queue-pairs-have-all-rights": _SIW_RIGHTS,
        "hca-va-is-dropped": _SIW_VA,
        "relaxed-ordering-ignored": "drivers/infiniband/sw/siw/siw_verbs.c: siw_post_send, IWARP_ACCESS_MASK",
        "library-ignores-unselected-access": "providers/siw/siw.c: siw_context_ops, which has no verb that uses it",
        **_dropping("drivers/infiniband/sw/siw/siw_mem.c: siw_mr_add_mem"),
    },
    mistakes={
        "REG-11": "drivers/infiniband/sw/siw/siw_mem.c: siw_mr_add_mem",
        "REG-28": _SIW_RIGHTS,
        **dict.fromkeys(("IOVA-02", "IOVA-03", "IOVA-06", "EX-02", "BUF-06"), _SIW_VA),
    },
    raw_registration="providers/siw/siw.c: siw_reg_mr, whose part of the command has the key's tag",
    port=IWARP,
)

# The behaviour of the kernel's RDMA core before it calls any driver, and the library's handles.
_OF_ALL: Mapping[str, str] = {
    "handles-are-reused": "drivers/infiniband/core/uverbs_cmd.c: ib_uverbs_reg_mr, by uobj_alloc"
}
_DRIVERS = (
    _MLX5,
    _MLX4,
    _IRDMA_THIRD,
    _IRDMA_SECOND,
    _IRDMA_IWARP,
    _BNXT_RE,
    _HNS,
    _EFA,
    _MANA,
    _ERDMA,
    _CXGB4,
    _QEDR,
    _QEDR_IWARP,
    _IONIC,
    _SIW,
)
_MADE_OTHERWISE = {
    "libibverbs/dummy_ops.c: alloc_null_mr": ("alloc_null_mr", (_MLX5,)),
    "libibverbs/dummy_ops.c: import_mr": ("import_mr", (_MLX5,)),
    "libibverbs/dummy_ops.c: import_pd": ("import_pd", (_MLX5,)),
    "libibverbs/dummy_ops.c: alloc_dm": ("alloc_dm", (_MLX5, _MANA)),
    "libibverbs/dummy_ops.c: alloc_dmah": ("dmah", (_MLX5,)),
    "libibverbs/dummy_ops.c: import_dm": ("import_dm", (_MLX5,)),
    "libibverbs/dummy_ops.c: alloc_td": ("alloc_td", (_MLX5, _EFA, _HNS)),
    "libibverbs/dummy_ops.c: alloc_buf": ("dmabuf_buffers", (_MLX5,)),
    "libibverbs/dummy_ops.c: alloc_parent_domain": ("alloc_parent_domain", (_MLX5, _EFA, _HNS, _MANA)),
}


def _absent(driver: Persona) -> dict[str, str]:
    """Returns the verbs that a provider lacks, so that the library refuses them."""
    return {name: where for where, (name, having) in _MADE_OTHERWISE.items() if driver not in having}


_TAKING: Mapping[str, str] = {
    "unusable-rights-are-taken": "include/rdma/ib_verbs.h: ib_check_mr_access, and the driver compares no more"
}
PERSONAS = tuple(
    replace(
        each,
        behaves={**_OF_ALL, **({} if each is _EFA else _TAKING), **each.behaves},
        lacks={**_absent(each), **each.lacks},
    )
    for each in _DRIVERS
)
