// needs: next
/* A FLUSH of the peer, which transfers no bytes. wr_flush (rdma-core 46) is
   called by its offset from wr_abort, because older headers lack it. */
static void flush(struct ibv_qp **two, const char *call, int wanted, int type,
                  uint32_t rkey, uint64_t addr, size_t count)
{
    struct ibv_qp_ex *poster = ibv_qp_to_qp_ex(two[1]);
    void (**wr_flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t,
                      uint8_t) = (void *)(&poster->wr_abort + 2);
    int status;

    ibv_wr_start(poster);
    poster->wr_flags = IBV_SEND_SIGNALED;
    (*wr_flush)(poster, rkey, addr, count, type, IBV_FLUSH_RANGE);
    status = ibv_wr_complete(poster) ? NONE : next(two[1]->send_cq);
    CHECK(wanted < 0 || wanted == (status == IBV_WC_SUCCESS),
          "%s should %s: status %d, %s", call,
          wanted ? "succeed" : "be refused", status, ibv_wc_status_str(status));
}
