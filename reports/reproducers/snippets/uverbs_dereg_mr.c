// needs: command
static int uverbs_dereg_mr(struct ibv_mr *mr)
{
    struct { struct ib_uverbs_cmd_hdr header;
             struct ib_uverbs_dereg_mr body; } request = {
        .body.mr_handle = mr->handle };

    return command(IB_USER_VERBS_CMD_DEREG_MR, sizeof(request), 0,
                   &request);
}
