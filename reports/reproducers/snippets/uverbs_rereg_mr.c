// needs: command
static int uverbs_rereg_mr(struct ibv_mr *mr, int flags,
    struct ibv_pd *domain, void *addr, size_t bytes, int access)
{
    struct ib_uverbs_rereg_mr_resp made;
    struct { struct ib_uverbs_cmd_hdr header;
             struct ib_uverbs_rereg_mr body; } request = { .body = {
        (uintptr_t)&made, mr->handle, flags, (uintptr_t)addr, bytes,
        (uintptr_t)addr, domain ? domain->handle : 0, access } };
    int error = command(IB_USER_VERBS_CMD_REREG_MR, sizeof(request),
                        sizeof(made), &request);

    if (error)
        return error;
    mr->lkey = made.lkey, mr->rkey = made.rkey;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        mr->addr = addr, mr->length = bytes;
    if (flags & IBV_REREG_MR_CHANGE_PD)
        mr->pd = domain;
    return 0;
}
