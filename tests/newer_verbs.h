/* Declarations that the header of an older rdma-core does not have. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
enum {
    IBV_REG_MR_MASK_IOVA = 1, IBV_REG_MR_MASK_ADDR = 2, IBV_REG_MR_MASK_FD = 4, IBV_REG_MR_MASK_FD_OFFSET = 8,
    IBV_REG_MR_MASK_DMAH = 16, IBV_REG_MR_MASK_BUF = 32,
};
struct ibv_mr_init_attr {
    size_t length; int access; uint64_t comp_mask, iova; void *addr; int fd; uint64_t fd_offset; void *dmah, *buf;
};
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *mr_init_attr);
