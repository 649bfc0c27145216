"""The values of a model that the code of this folder can carry out. A model may have fewer."""

from collections.abc import Mapping

VALUES: Mapping[str, frozenset[str]] = {
    name: frozenset(values.split())
    for name, values in {
        "region": """
            reg_mr iova zero_based ex uverbs on_demand implicit dmabuf rereg_access rereg_pd rereg_translation rereg_all
        """,
        "memory": "anonymous file shared huge untouched dropped no_access read_only",
        "bounds": "aligned odd",
        "rights": "all without_write without_read without_atomic without_local_write",
        "queue_rights": """
            all without_write without_read without_atomic revoked_write revoked_read revoked_atomic granted
        """,
        "key": """
            region window_1 window_2 rebound_1 rebound_2 window_2_zero other_domain other_process ended invented unbound other_queue earlier
        """,
        "window_rights": "all without_write without_read without_atomic",
        "transport": "RC RC_SRQ UC UD",
        "posting": "post_send wr_post",
        "polling": "poll_cq start_poll",
        "path_mtu": "usual least",
        "operation": """
            RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD ATOMIC_WRITE SEND
            SEND_WITH_IMM SEND_WITH_INV
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
    }.items()
}
