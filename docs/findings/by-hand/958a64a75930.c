/* BIND-15, ibv_alloc_mw(3), DESCRIPTION: "Once bound, the memory window allows
 * RDMA (remote) access to a subset of the MR to which it was bound, until
 * invalidated by: [...] IBV_WR_LOCAL_INV". READs in flight are answered with
 * bytes that were written after the invalidation has completed. This is a race,
 * which is tried for a minute.
 * cc FILE -libverbs; 0: not seen, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))
enum { READS = 12, SIZE = 65536, SECONDS = 60 };
static unsigned char buf[SIZE], sink[READS][SIZE];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr, *to;
static struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
    .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1, .port_num = 1,
    .ah_attr = { .is_global = 1, .port_num = 1 },
    .qp_access_flags = IBV_ACCESS_REMOTE_READ };

/* The status of the next completion. */
static int next(struct ibv_cq *cq)
{
    struct ibv_wc wc;

    for (int i = 0; i < 10000; i++, usleep(1000))
        if (ibv_poll_cq(cq, 1, &wc) == 1)
            return wc.status;
    errx(2, "no completion");
}

/* One try: how many bytes were read that were written after the window's end. */
static int stale(void)
{
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp_init_attr init = { .cap = { 16, 1, 1, 1 },
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
    struct ibv_send_wr *bad;
    struct ibv_qp *qp[2];
    struct ibv_mw *mw;
    int found = 0;

    for (int i = 0; i < 2; i++) {
        SET_UP(init.send_cq = ibv_create_cq(context, 32, NULL, NULL, 0));
        init.recv_cq = init.send_cq;
        SET_UP(qp[i] = ibv_create_qp(pd, &init));
    }
    for (int i = 0; i < 6; i++) {
        attr.qp_state = IBV_QPS_INIT + i / 2;
        attr.dest_qp_num = qp[!(i % 2)]->qp_num;
        SET_UP(!ibv_modify_qp(qp[i % 2], &attr, IBV_QP_STATE | masks[i / 2]));
    }
    if (!(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
        err(77, "no window of type 2");
    struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW, .bind_mw = { mw,
        ibv_inc_rkey(mw->rkey), { mr, (uintptr_t)buf, SIZE,
        IBV_ACCESS_REMOTE_READ } } };
    struct ibv_send_wr end = { .opcode = IBV_WR_LOCAL_INV,
        .invalidate_rkey = bind.bind_mw.rkey };
    SET_UP(!ibv_post_send(qp[0], &bind, &bad) && !next(qp[0]->send_cq));
    memset(buf, 0x80, SIZE);
    memset(sink, 0, sizeof(sink));
    for (int i = 0; i < READS; i++) {
        struct ibv_sge sge = { (uintptr_t)sink[i], SIZE, to->lkey };
        struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ, .wr.rdma = { (uintptr_t)buf, end.invalidate_rkey } };
        SET_UP(!ibv_post_send(qp[1], &wr, &bad));
    }
#ifdef DEALLOCATED
    SET_UP(!ibv_dealloc_mw(mw));
    memset(buf, 0x77, SIZE);
#else
    SET_UP(!ibv_post_send(qp[0], &end, &bad));
    if (!next(qp[0]->send_cq)) /* else flushed, because a READ was refused */
        memset(buf, 0x77, SIZE);
#endif
    for (int i = 0; i < READS; i++)
        next(qp[1]->send_cq);
    for (size_t i = 0; i < sizeof(sink); i++)
        found += ((unsigned char *)sink)[i] == 0x77;
#ifndef DEALLOCATED
    SET_UP(!ibv_dealloc_mw(mw));
#endif
    for (int i = 0; i < 2; i++) {
        struct ibv_cq *cq = qp[i]->send_cq;

        SET_UP(!ibv_destroy_qp(qp[i]) && !ibv_destroy_cq(cq));
    }
    return found;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    time_t end = time(NULL) + SECONDS;
    int found = 0, tries = 0;
    union ibv_gid gid;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    SET_UP(mr = ibv_reg_mr(pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    SET_UP(to = ibv_reg_mr(pd, sink, sizeof(sink), IBV_ACCESS_LOCAL_WRITE));
    for (int i = 0; i < 16; i++) /* the last GID that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = i };
    for (; !found && time(NULL) < end; tries++)
        found = stale();
    printf("%s: after %d tries, %d bytes written after the window's end were read\n",
           found ? "VIOLATED" : "not seen", tries, found);
    return found > 0;
}
