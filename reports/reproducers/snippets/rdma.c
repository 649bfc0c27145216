// needs: next
/* Posts an operation of the peer on the range, then a SEND. When the
 * SEND is received, the operation is done. Then checks the bytes. */
static int rdma(struct ibv_qp **two, const char *call, int wanted,
                int opcode, uint32_t rkey, uint64_t addr,
                unsigned char *range, size_t count)
{
    struct ibv_sge sge = { (uintptr_t)own, count, own_mr->lkey };
    struct ibv_send_wr last = { .opcode = IBV_WR_SEND }, *bad, wr = {
        .next = &last, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { addr, rkey } };
    struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
@read     int read = opcode == IBV_WR_RDMA_READ, status = NONE;
@!read     int status = NONE;
    size_t came = 0, changed = 0;
@atomic     uint64_t before, after;

@large     memset(area = range, 0x77, size = count);
@!large     memset(area, 0x77, size);
    for (size_t i = 0; i < count; i++)
@read         (read ? range : own)[i] = DATA(i), (read ? own : range)[i] = 0xfe;
@!read         range[i] = 0xfe, own[i] = DATA(i);
@atomic     memcpy(&before, range, sizeof(before));
@atomic     memcpy(&after, own, sizeof(after));
@atomic     if (opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
@atomic         wr.wr.atomic.swap = after;
@atomic         wr.wr.atomic.compare_add = before;
@atomic         if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
@atomic             wr.wr.atomic.compare_add = after - before;
@atomic         wr.wr.atomic.rkey = rkey;
@atomic     }
@imm     SET_UP(!ibv_post_recv(two[0], &receive, &bad_receive));
    SET_UP(!ibv_post_recv(two[0], &receive, &bad_receive));
    if (!ibv_post_send(two[1], &wr, &bad))
        status = next(two[1]->send_cq);
    if (status == IBV_WC_SUCCESS)
        next(two[0]->recv_cq);
    for (size_t i = 0, at; i < size; i++) {
        at = area + i - range;
@read         came += at < count && (read ? own : range)[at] == DATA(at);
@read         changed += area[i] != (at >= count ? 0x77 : read ? DATA(at) : 0xfe);
@!read         came += at < count && range[at] == DATA(at);
@!read         changed += area[i] != (at < count ? 0xfe : 0x77);
    }
@atomic     memcpy(&after, own, sizeof(after));
@open     if (wanted >= 0)
    CHECK(wanted ? status == IBV_WC_SUCCESS && came == count &&
@atomic           (opcode < IBV_WR_ATOMIC_CMP_AND_SWP || after == before) &&
@read           changed == (read ? 0 : count) :
@!read           changed == count :
@rc           status != IBV_WC_SUCCESS && !came && !changed,
@uc           !came && !changed, /* SUCCESS means only that it was sent */
@mixed           (two[0]->qp_type == IBV_QPT_UC || status != IBV_WC_SUCCESS) &&
@mixed           !came && !changed,
          "%s should %s: status %d, %s; %zu of %zu bytes moved, %zu changed",
          call, wanted ? "succeed" : "be refused", status,
          ibv_wc_status_str(status), came, count, changed);
    return status;
}
