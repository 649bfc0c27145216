// needs: next
/* The status of a SEND or an RDMA_WRITE from a range. */
static int refused(struct ibv_qp **two, int opcode, struct ibv_sge sge)
{
    struct ibv_sge sink = { (uintptr_t)own, sge.length, own_mr->lkey };
    struct ibv_send_wr *bad, wr = { .opcode = opcode, .num_sge = 1,
        .sg_list = &sge, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)own, own_mr->rkey } };
    struct ibv_recv_wr *bad_receive, receive = { .num_sge = 1,
        .sg_list = &sink };

    SET_UP(!ibv_post_recv(two[1], &receive, &bad_receive));
    return ibv_post_send(two[0], &wr, &bad) ? NONE :
        next(two[0]->send_cq);
}
