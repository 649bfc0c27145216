static int bind_2(struct ibv_qp *qp, struct ibv_mw *mw, int flags,
                  uint32_t rkey, struct ibv_mw_bind_info info)
{
    struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW,
        .send_flags = flags, .wr_id = 1,
        .bind_mw = { mw, rkey, info } };
    int error = ibv_post_send(qp, &wr, &bad);

    if (!error)
        mw->rkey = rkey;
    return error;
}
