// needs: next
/* A SEND or RDMA_WRITE from the range; or an RDMA_READ or, with
 * `receives`, a SEND of the peer into the range. Then another SEND. */
static int local(struct ibv_qp **two, const char *call, int wanted,
                 int opcode, int receives, struct ibv_sge there,
                 unsigned char *range)
{
    struct ibv_sge here = { (uintptr_t)own, there.length,
                            own_mr->lkey };
    struct ibv_send_wr last = { .opcode = IBV_WR_SEND }, *bad, wr = {
        .next = &last, .sg_list = receives ? &here : &there,
        .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)own, own_mr->rkey } };
    struct ibv_recv_wr second = { .num_sge = 0 }, *bad_receive,
        first = { .sg_list = receives ? &there : &here,
            .num_sge = opcode == IBV_WR_SEND, .next = &second };
    struct ibv_qp *from = two[receives], *to = two[!receives];
    int into = receives || opcode == IBV_WR_RDMA_READ, status = NONE;
    size_t count = there.length, came = 0, changed = 0;

@large     memset(area = range, 0x77, size = count);
@!large     memset(area, 0x77, size);
    for (size_t i = 0; i < count; i++)
        (into ? own : range)[i] = DATA(i), (into ? range : own)[i] = 0xfe;
    SET_UP(!ibv_post_recv(to, &first, &bad_receive));
    if (!ibv_post_send(from, &wr, &bad))
        status = next(from->send_cq);
    if (status == IBV_WC_SUCCESS)
        next(to->recv_cq);
    for (size_t i = 0, at; i < size; i++) {
        at = area + i - range;
        came += at < count && (into ? range : own)[at] == DATA(at);
        changed += area[i] != (at >= count ? 0x77 : into ? 0xfe : DATA(at));
    }
@open     if (wanted >= 0)
    CHECK(wanted ? status == IBV_WC_SUCCESS && came == count &&
          changed == (into ? count : 0) :
@rc           status != IBV_WC_SUCCESS && !came && !changed,
@uc           !came && !changed, /* SUCCESS means only that it was sent */
@mixed           (two[0]->qp_type == IBV_QPT_UC || status != IBV_WC_SUCCESS) &&
@mixed           !came && !changed,
          "%s should %s: status %d, %s; %zu of %zu bytes moved, %zu changed",
          call, wanted ? "succeed" : "be refused", status,
          ibv_wc_status_str(status), came, count, changed);
    return status;
}
