/* BIND-19, InfiniBand Architecture Specification, volume 1, memory windows
 * of type 2, o10-37.2.26; ibv_alloc_mw(3), the types 2A and 2B: A window of
 * type 2 belongs to the queue pair on which it was bound: it is opened and
 * invalidated over no other. Invalidating by another queue pair, an unknown
 * key, the key of a registered region or of a type 1 window, or a key that
 * is invalid already, fails and changes nothing.
 * Case bind_mw/invalidation/local-inv-over-second of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define NONE -1 /* the status where nothing completes */
static const int REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \
    violations += !(kept), printf(__VA_ARGS__), puts(""))
#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

static struct ibv_context *context;
static struct ibv_pd *pd;
static int violations;

/* Two queue pairs in loopback: the tested one, and its peer. */
static struct ibv_qp **pair(struct ibv_pd *domain, int access)
{
    struct ibv_qp_init_attr init = { .cap = { 16, 16, 3, 3, 0 },
                                     .qp_type = IBV_QPT_RC };
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp **two = calloc(2, sizeof(*two));
    union ibv_gid gid;

    for (int i = 0; i < 16; i++) /* the last one that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ gid, 0, i };
    for (int i = 0; i < 2; i++) {
        init.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
        init.recv_cq = init.send_cq;
        SET_UP(two[i] = ibv_create_qp(i ? pd : domain, &init));
    }
    for (int i = 0; i < 6; i++) {
        attr.qp_state = IBV_QPS_INIT + i / 2;
        attr.qp_access_flags = i % 2 ? REMOTE : access;
        attr.dest_qp_num = two[!(i % 2)]->qp_num;
        SET_UP(!ibv_modify_qp(two[i % 2], &attr,
                              IBV_QP_STATE | masks[i / 2]));
    }
    return two;
}

/* The status of the next completion; NONE if none comes in 10 s. */
static int next(struct ibv_cq *cq)
{
    struct ibv_wc wc = { .status = NONE };

    for (int i = 0; i < 10000 && !ibv_poll_cq(cq, 1, &wc); i++)
        usleep(1000);
    return wc.status;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all),
        argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    struct ibv_device_attr_ex device;
    SET_UP(!ibv_query_device_ex(context, NULL, &device));
    if (!(device.orig_attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
        IBV_DEVICE_MEM_WINDOW_TYPE_2B)))
        errx(77, "not declared: mw_type_2");
    size_t buf_size = 4 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    struct ibv_qp **qp = pair(pd, REMOTE);
    struct ibv_qp **second = pair(pd, REMOTE);
    struct ibv_mr *mr = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_LOCAL_WRITE |
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    SET_UP(mr);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    SET_UP(mw);
    struct ibv_send_wr *bad_bind, bind = { .opcode = IBV_WR_BIND_MW, .wr_id = 1,
        .send_flags = IBV_SEND_SIGNALED, .bind_mw = { mw,
        ibv_inc_rkey(mw->rkey), { mr, (uintptr_t)buf, buf_size,
        IBV_ACCESS_REMOTE_WRITE } } };
    SET_UP(!ibv_post_send(qp[0], &bind, &bad_bind));
    mw->rkey = bind.bind_mw.rkey;
    SET_UP(next(qp[0]->send_cq) == IBV_WC_SUCCESS);
    struct ibv_send_wr *bad_wr, wr = { .opcode = IBV_WR_LOCAL_INV, .wr_id = 1,
        .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey };
    int error = ibv_post_send(second[0], &wr, &bad_wr);
    int status = error ? NONE : next(second[0]->send_cq);
    CHECK(error >= 0 && !(!error && status == IBV_WC_SUCCESS),
        "post_local_inv should fail, gave %d and completed with %d, %s", error,
        status, ibv_wc_status_str(status));
    return violations != 0;
}
