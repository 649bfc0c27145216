// needs: next
static int ended; /* the status of the first completion in earlier() */

/* The number of requests that complete before a request posted now. */
static int earlier(struct ibv_qp *qp)
{
    struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_WRITE,
        .wr_id = 2, .send_flags = IBV_SEND_SIGNALED };
    int count = 0;

    SET_UP(!ibv_post_send(qp, &wr, &bad));
    while (next(qp->send_cq) != NONE && wc.wr_id != 2)
        ended = count++ ? ended : (int)wc.status;
    return count;
}
