// needs: command
/* Registers a region with the kernel's command. */
static struct ibv_mr *uverbs_reg_mr(struct ibv_pd *domain,
    uint64_t addr, uint64_t bytes, uint64_t iova, int access)
{
    struct ib_uverbs_reg_mr_resp made = { 0 };
    struct { struct ib_uverbs_cmd_hdr header;
             struct ib_uverbs_reg_mr body; } request = {
        .body = { (uintptr_t)&made, addr, bytes, iova, domain->handle,
                  access } };
    struct ibv_mr *mr = calloc(1, sizeof(*mr));

    errno = command(IB_USER_VERBS_CMD_REG_MR, sizeof(request),
                    sizeof(made), &request);
    *mr = (struct ibv_mr){ context, domain, (void *)addr, bytes,
                           made.mr_handle, made.lkey, made.rkey };
    return errno ? NULL : mr;
}
