"""The values of each model that the code in combinations/ can carry out. A model may have fewer."""

from collections.abc import Mapping

FILE = "conformance/model/combination_values.py"
_OF_AN_ACCESS = {
    "region": """
        reg_mr iova zero_based ex uverbs on_demand implicit dmabuf rereg_access rereg_pd rereg_translation rereg_all
        null device_memory imported
    """,
    "memory": "anonymous file shared huge untouched dropped no_access read_only forked",
    "bounds": "aligned odd",
    "rights": "all without_write without_read without_atomic without_flush without_local_write",
    "queue_rights": """
        all without_write without_read without_atomic revoked_write revoked_read revoked_atomic granted
        without_flush revoked_flush
    """,
    "key": """
        region window_1 window_2 rebound_1 rebound_2 window_2_zero other_domain other_process ended invented unbound other_queue earlier
    """,
    "window_rights": "all without_write without_read without_atomic",
    "transport": "RC RC_SRQ UC UD XRC",
    "posting": "post_send wr_post",
    "polling": "poll_cq start_poll",
    "path_mtu": "usual least",
    "operation": """
        RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD ATOMIC_WRITE SEND
        SEND_WITH_IMM SEND_WITH_INV FLUSH_GLOBAL
    """,
    "side": "remote local receive",
    "size": "word no_bytes byte below_packet packet above_packet several pages",
    "place": """
        first inner odd page last one_beyond one_before across_start across_end behind wrap
    """,
    "elements": "only first_of_2 last_of_2 first_of_3 middle_of_3 last_of_3",
    "split": "half packet one",
    "capacity": "exact longer shorter",
    "flags": "signaled unsignaled fence solicited inline",
    "before": "nothing other_key long_message read zero_window refused expired cut_read in_flight not_ready late_receive",
}
_OF_A_BIND = {
    "window": "type_1 type_2",
    "posting": "bind_mw post_send wr_post",
    "queue": "RC UC",
    "state": "fresh bound ended moved over_second",
    "region": "reg_mr iova ex on_demand rereg_access rereg_pd rereg_translation rereg_all",
    "region_rights": "all windows_only read_and_windows without_windows",
    "lkey": "own other_domain other_process ended invented of_window",
    "domain": "same window region both",
    "range": "part whole start end odd pages one_beyond one_before across_end behind wrap",
    "rights": "all none write read atomic",
    "addresses": "own offsets",
    "flags": "signaled unsignaled fence",
    "new_key": "next far",
    "operation": """
        RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD ATOMIC_WRITE
    """,
    "size": "word byte packet several",
    "place": "first inner last one_beyond one_before behind",
    "key": "new earlier ended deallocated other_queue",
}
_OF_A_CHANGE = {
    "entry": "libibverbs kernel",
    "region": "reg_mr iova ex",
    "old_rights": "all windows_only without_local_write",
    "before": "nothing moved revoked",
    "change": "access pd translation access_pd access_translation pd_translation all",
    "new_rights": """
        all without_write without_read without_atomic without_local_write windows_only write_alone
    """,
    "range": "elsewhere same longer shorter odd",
    "domain": "own other",
    "side": "remote local receive",
    "operation": """
        RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD ATOMIC_WRITE SEND
    """,
    "size": "word byte several",
    "place": "first inner last one_beyond one_before behind old",
}
_OF_ADVICE = {
    "entry": "libibverbs kernel",
    "region": "on_demand implicit",
    "bounds": "aligned odd",
    "rights": "all local_write without_local_write",
    "memory": "shared dropped no_access read_only",
    "advice": "PREFETCH PREFETCH_WRITE PREFETCH_NO_FAULT unknown",
    "flags": "flush none unknown flush_unknown",
    "elements": "only first_of_2 last_of_2 first_of_3 middle_of_3 last_of_3",
    "others": "same another",
    "lkey": "own other_domain other_process ended invented other_tag of_window",
    "domain": "own other",
    "range": """
        whole first last inner boundary pages one_beyond one_before across_end behind wrap long
    """,
    "before": "nothing refused read write no_fault beside",
    "operation": "RDMA_WRITE RDMA_READ SEND",
    "side": "remote local receive",
    "size": "word several",
    "place": "first page last",
}
_OF_A_REGISTRATION = {
    "entry": "libibverbs ex kernel",
    "call": "reg_mr reg_mr_iova reg_dmabuf_mr rereg_mr",
    "memory": "anonymous shared file huge untouched",
    "pages": """
        whole read_only no_access unmapped last_read_only last_no_access last_unmapped
    """,
    "rights": "local none write read atomic all write_alone atomic_alone",
    "flag": """
        none windows zero_based on_demand huge relaxed flush optional unknown high both
    """,
    "start": "page line odd last boundary",
    "length": """
        page byte below_page above_page several to_boundary to_end one_beyond page_beyond far_beyond wrap space
    """,
    "iova": "same far zero top line odd",
    "before": "nothing refusal ended beside",
    "limit": "none exact page_less",
    "operation": "RDMA_WRITE RDMA_READ ATOMIC_FETCH_AND_ADD SEND",
    "side": "remote local receive",
    "size": "several byte",
    "place": "first last one_beyond one_before",
}
# By the table of the model.
VALUES: Mapping[str, Mapping[str, str]] = {
    "model": _OF_AN_ACCESS,
    "binds": _OF_A_BIND,
    "changes": _OF_A_CHANGE,
    "advice": _OF_ADVICE,
    "registrations": _OF_A_REGISTRATION,
}
# By the values of the parameter `entry`.
ENTRIES = {"libibverbs": "libibverbs", "ex": "reg_mr_ex", "kernel": "uverbs"}
