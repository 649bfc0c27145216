"""All enumerations that the manual pages of the memory-region verbs use, with their numbers.

The names are from the pages; the numbers are from the verbs.h of rdma-core 65.
"""

from conformance.verbs.types import EXPERIMENTAL, Constant, Enum, EnumValue

V = EnumValue

NODE_TYPE = Enum(
    "ibv_node_type",
    "IBV_NODE_",
    "The kind of node that an RDMA device is.",
    (
        V("IBV_NODE_UNKNOWN", -1, "not known to the library"),
        V("IBV_NODE_CA", 1, "InfiniBand channel adapter, RoCE included"),
        V("IBV_NODE_SWITCH", 2, "InfiniBand switch"),
        V("IBV_NODE_ROUTER", 3, "InfiniBand router"),
        V("IBV_NODE_RNIC", 4, "iWARP adapter"),
        V("IBV_NODE_USNIC", 5, "usNIC adapter"),
        V("IBV_NODE_USNIC_UDP", 6, "usNIC adapter over UDP"),
        V("IBV_NODE_UNSPECIFIED", 7, "a node that follows none of these standards", since="26"),
    ),
)

TRANSPORT_TYPE = Enum(
    "ibv_transport_type",
    "IBV_TRANSPORT_",
    "The transport of a device.",
    (
        V("IBV_TRANSPORT_UNKNOWN", -1, "not known to the library"),
        V("IBV_TRANSPORT_IB", 0, "InfiniBand transport, over InfiniBand or Ethernet"),
        V("IBV_TRANSPORT_IWARP", 1, "iWARP"),
        V("IBV_TRANSPORT_USNIC", 2, "usNIC"),
        V("IBV_TRANSPORT_USNIC_UDP", 3, "usNIC over UDP"),
        V("IBV_TRANSPORT_UNSPECIFIED", 4, "a transport that follows none of these standards", since="26"),
    ),
)

QP_STATE = Enum(
    "ibv_qp_state",
    "IBV_QPS_",
    "The state of a queue pair.",
    (
        V("IBV_QPS_RESET", 0, "newly created"),
        V("IBV_QPS_INIT", 1, "initialised; receives may be posted"),
        V("IBV_QPS_RTR", 2, "ready to receive"),
        V("IBV_QPS_RTS", 3, "ready to send; a bind needs this state"),
        V("IBV_QPS_SQD", 4, "the send queue drains"),
        V("IBV_QPS_SQE", 5, "the send queue failed"),
        V("IBV_QPS_ERR", 6, "failed; posted requests are flushed"),
        V("IBV_QPS_UNKNOWN", 7, "not known to the library"),
    ),
)

QP_TYPE = Enum(
    "ibv_qp_type",
    "IBV_QPT_",
    "The transport service of a queue pair.",
    (
        V("IBV_QPT_RC", 2, "reliable connected; may bind windows"),
        V("IBV_QPT_UC", 3, "unreliable connected; may bind windows"),
        V("IBV_QPT_UD", 4, "unreliable datagram"),
        V("IBV_QPT_RAW_PACKET", 8, "raw packets"),
        V("IBV_QPT_XRC_SEND", 9, "sending half of an extended reliable connection; may bind windows"),
        V("IBV_QPT_XRC_RECV", 10, "receiving half of an extended reliable connection"),
        V("IBV_QPT_DRIVER", 255, "the provider's own service", since="17"),
    ),
)

MW_TYPE = Enum(
    "ibv_mw_type",
    "IBV_MW_TYPE_",
    "The type of a memory window.",
    (
        V("IBV_MW_TYPE_1", 1, "bound by ibv_bind_mw; the library chooses the new rkey"),
        V("IBV_MW_TYPE_2", 2, "bound by a posted bind request, which names the new rkey (2A or 2B)"),
    ),
    document="ibv_alloc_mw(3)",
)

ACCESS_FLAGS = Enum(
    "ibv_access_flags",
    "IBV_ACCESS_",
    "The rights of a memory region or window.",
    (
        V("IBV_ACCESS_LOCAL_WRITE", 1 << 0, "the local device may write; reading is always allowed"),
        V("IBV_ACCESS_REMOTE_WRITE", 1 << 1, "peers may write; needs LOCAL_WRITE"),
        V("IBV_ACCESS_REMOTE_READ", 1 << 2, "peers may read"),
        V("IBV_ACCESS_REMOTE_ATOMIC", 1 << 3, "peers may do atomics, if supported; needs LOCAL_WRITE"),
        V("IBV_ACCESS_MW_BIND", 1 << 4, "memory windows may be bound to the region"),
        V("IBV_ACCESS_ZERO_BASED", 1 << 5, "addresses count bytes from the start of the region"),
        V("IBV_ACCESS_ON_DEMAND", 1 << 6, "pages are faulted in by the device, not pinned"),
        V("IBV_ACCESS_HUGETLB", 1 << 7, "all pages are huge pages; only with ON_DEMAND in explicit mode", since="28"),
        V("IBV_ACCESS_FLUSH_GLOBAL", 1 << 8, "peers may flush to global visibility, if supported", since="45"),
        V("IBV_ACCESS_FLUSH_PERSISTENT", 1 << 9, "peers may flush to persistence, if supported", since="45"),
        V("IBV_ACCESS_RELAXED_ORDERING", 1 << 20, "data may reach memory out of order; optional", since="28"),
    ),
    flags=True,
    document="ibv_reg_mr(3)",
)

REREG_FLAGS = Enum(
    "ibv_rereg_mr_flags",
    "IBV_REREG_MR_",
    "Which properties ibv_rereg_mr changes.",
    (
        V("IBV_REREG_MR_CHANGE_TRANSLATION", 1 << 0, "change address and length"),
        V("IBV_REREG_MR_CHANGE_PD", 1 << 1, "change the protection domain"),
        V("IBV_REREG_MR_CHANGE_ACCESS", 1 << 2, "change the access flags"),
        V("IBV_REREG_MR_FLAGS_SUPPORTED", 0b111, "every flag that the library accepts", mask=True),
    ),
    flags=True,
    document="ibv_rereg_mr(3)",
)

REREG_CODES = Enum(
    "ibv_rereg_mr_err_code",
    "IBV_REREG_MR_",
    "The reason why ibv_rereg_mr failed.",
    (
        V("IBV_REREG_MR_ERR_INPUT", -1, "the library refused the arguments"),
        V("IBV_REREG_MR_ERR_DONT_FORK_NEW", -2, "the new range could not be kept from children of fork"),
        V("IBV_REREG_MR_ERR_DO_FORK_OLD", -3, "the old range could not be given back to children of fork"),
        V("IBV_REREG_MR_ERR_CMD", -4, "the command failed"),
        V("IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW", -5, "the command failed, and so did undoing the fork mark"),
    ),
    document="ibv_rereg_mr(3)",
)


def _advice(prefix: str) -> tuple[EnumValue, ...]:
    return (
        V(f"{prefix}PREFETCH", 0, "make the pages present for reading", since="22"),
        V(f"{prefix}PREFETCH_WRITE", 1, "make the pages present for reading and writing", since="22"),
        V(f"{prefix}PREFETCH_NO_FAULT", 2, "give the device the present pages, fault none in", since="32"),
    )


UVERBS_ADVICE = Enum(
    "ib_uverbs_advise_mr_advice",
    "IB_UVERBS_ADVISE_MR_ADVICE_",
    "Advice in the kernel's spelling.",
    _advice("IB_UVERBS_ADVISE_MR_ADVICE_"),
    document="<rdma/ib_user_ioctl_verbs.h>",
)
ADVICE = Enum(
    "ibv_advise_mr_advice",
    "IBV_ADVISE_MR_ADVICE_",
    "The advice of ibv_advise_mr for a range.",
    _advice("IBV_ADVISE_MR_ADVICE_"),
    alias_of="ib_uverbs_advise_mr_advice",
    document="ibv_advise_mr(3)",
)

UVERBS_ADVISE_FLAG = Enum(
    "ib_uverbs_advise_mr_flag",
    "IB_UVERBS_ADVISE_MR_FLAG_",
    "Flags of an advice in the kernel's spelling.",
    (V("IB_UVERBS_ADVISE_MR_FLAG_FLUSH", 1, "return only when the operation is complete", since="22"),),
    flags=True,
    document="<rdma/ib_user_ioctl_verbs.h>",
)
# verbs_api.h has an IBV name for the flag but not for the enumeration. The name below is formed like the name of the
# advice.
ADVISE_FLAG = Enum(
    "ibv_advise_mr_flag",
    "IBV_ADVISE_MR_FLAG_",
    "The flags of ibv_advise_mr.",
    (V("IBV_ADVISE_MR_FLAG_FLUSH", 1, "return only when the operation is complete", since="22"),),
    flags=True,
    alias_of="ib_uverbs_advise_mr_flag",
    document="ibv_advise_mr(3)",
)

SEND_FLAGS = Enum(
    "ibv_send_flags",
    "IBV_SEND_",
    "Properties of a work request on a send queue.",
    (
        V("IBV_SEND_FENCE", 1 << 0, "wait for earlier reads and atomics"),
        V("IBV_SEND_SIGNALED", 1 << 1, "ask for a completion; has an effect only if sq_sig_all is 0"),
        V("IBV_SEND_SOLICITED", 1 << 2, "raise a solicited event at the receiver"),
        V("IBV_SEND_INLINE", 1 << 3, "copy the data into the request itself"),
        V("IBV_SEND_IP_CSUM", 1 << 4, "let the device compute IP checksums"),
    ),
    flags=True,
    document="ibv_bind_mw(3), <infiniband/verbs.h>",
)

CREATE_SEND_OPS = Enum(
    "ibv_qp_create_send_ops_flags",
    "IBV_QP_EX_WITH_",
    "The operations that can be posted on a queue pair with the builders of ibv_wr_post(3).",
    (
        V("IBV_QP_EX_WITH_RDMA_WRITE", 1 << 0, "ibv_wr_rdma_write"),
        V("IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM", 1 << 1, "ibv_wr_rdma_write_imm"),
        V("IBV_QP_EX_WITH_SEND", 1 << 2, "ibv_wr_send"),
        V("IBV_QP_EX_WITH_SEND_WITH_IMM", 1 << 3, "ibv_wr_send_imm"),
        V("IBV_QP_EX_WITH_RDMA_READ", 1 << 4, "ibv_wr_rdma_read"),
        V("IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP", 1 << 5, "ibv_wr_atomic_cmp_swp"),
        V("IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD", 1 << 6, "ibv_wr_atomic_fetch_add"),
        V("IBV_QP_EX_WITH_LOCAL_INV", 1 << 7, "ibv_wr_local_inv"),
        V("IBV_QP_EX_WITH_BIND_MW", 1 << 8, "ibv_wr_bind_mw"),
        V("IBV_QP_EX_WITH_SEND_WITH_INV", 1 << 9, "ibv_wr_send_inv"),
        V("IBV_QP_EX_WITH_TSO", 1 << 10, "ibv_wr_send_tso"),
        V("IBV_QP_EX_WITH_FLUSH", 1 << 11, "ibv_wr_flush", since="46"),
        V("IBV_QP_EX_WITH_ATOMIC_WRITE", 1 << 12, "ibv_wr_atomic_write"),
    ),
    flags=True,
    document="ibv_create_qp_ex(3), <infiniband/verbs.h>",
)

# The vendor's page on its experimental verb adds one flag, without a number.
EXPERIMENTAL_ACCESS_FLAGS = Enum(
    "ibv_access_flags",
    "IBV_ACCESS_",
    "The rights of a region in the vendor's dialect.",
    (
        *ACCESS_FLAGS,
        V("IBV_ACCESS_ALLOCATE_MR", None, "the library allocates the memory and tries for contiguous pages"),
    ),
    flags=True,
    dialect=EXPERIMENTAL,
    document="the vendor's page on memory region re-registration",
)

MR_INIT_ATTR_MASK = Enum(
    "ibv_mr_init_attr_mask",
    "IBV_REG_MR_MASK_",
    "Which fields of struct ibv_mr_init_attr apply.",
    (
        V("IBV_REG_MR_MASK_IOVA", 1 << 0, "iova", since="59"),
        V("IBV_REG_MR_MASK_ADDR", 1 << 1, "addr", since="59"),
        V("IBV_REG_MR_MASK_FD", 1 << 2, "fd", since="59"),
        V("IBV_REG_MR_MASK_FD_OFFSET", 1 << 3, "fd_offset", since="59"),
        V("IBV_REG_MR_MASK_DMAH", 1 << 4, "dmah", since="59"),
        V("IBV_REG_MR_MASK_BUF", 1 << 5, "buf, together with addr", since="64"),
    ),
    flags=True,
)

PARENT_DOMAIN_INIT_ATTR_MASK = Enum(
    "ibv_parent_domain_init_attr_mask",
    "IBV_PARENT_DOMAIN_INIT_ATTR_",
    "Which optional fields of struct ibv_parent_domain_init_attr apply.",
    (
        V("IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS", 1 << 0, "alloc and free"),
        V("IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT", 1 << 1, "pd_context"),
        V(
            "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
            1 << 2,
            "buffers may be of unprotected memory",
            since="64",
        ),
    ),
    flags=True,
)

DMAH_INIT_ATTR_MASK = Enum(
    "ibv_dmah_init_attr_mask",
    "IBV_DMAH_INIT_ATTR_MASK_",
    "Which fields of struct ibv_dmah_init_attr apply.",
    (
        V("IBV_DMAH_INIT_ATTR_MASK_CPU_ID", 1 << 0, "cpu_id", since="59"),
        V("IBV_DMAH_INIT_ATTR_MASK_PH", 1 << 1, "ph", since="59"),
        V("IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE", 1 << 2, "tph_mem_type", since="59"),
    ),
    flags=True,
)

TPH_MEM_TYPE = Enum(
    "ibv_tph_mem_type",
    "IBV_TPH_MEM_TYPE_",
    "The memory that a dma handle is for.",
    (
        V("IBV_TPH_MEM_TYPE_VM", 0, "volatile memory", since="59"),
        V("IBV_TPH_MEM_TYPE_PM", 1, "persistent memory", since="59"),
    ),
)

ALL = (
    MR_INIT_ATTR_MASK,
    PARENT_DOMAIN_INIT_ATTR_MASK,
    DMAH_INIT_ATTR_MASK,
    TPH_MEM_TYPE,
    NODE_TYPE,
    TRANSPORT_TYPE,
    QP_STATE,
    QP_TYPE,
    MW_TYPE,
    ACCESS_FLAGS,
    REREG_FLAGS,
    REREG_CODES,
    ADVICE,
    UVERBS_ADVICE,
    ADVISE_FLAG,
    UVERBS_ADVISE_FLAG,
    SEND_FLAGS,
    CREATE_SEND_OPS,
)

# From <infiniband/verbs.h>. The kernel and libibverbs ignore unknown bits in this range and refuse unknown bits
# outside it. Other modules take the number from here.
OPTIONAL_FIRST = Constant("IBV_ACCESS_OPTIONAL_FIRST", 1 << 20, "lowest optional access flag", since="28")
OPTIONAL_RANGE = Constant("IBV_ACCESS_OPTIONAL_RANGE", 0x3FF00000, "bits 20 to 29, all optional", since="28")

CONSTANTS = (
    OPTIONAL_FIRST,
    OPTIONAL_RANGE,
    Constant("IBV_SYSFS_NAME_MAX", 64, "size of a device name with its terminating zero, in bytes"),
    Constant("IBV_SYSFS_PATH_MAX", 256, "size of a sysfs path with its terminating zero, in bytes"),
)
