/* STAT-03, InfiniBand Architecture Specification, volume 1, completion
 * statuses, 11.6.2; errors that the requester detects: A request of a
 * connection whose local buffer cannot be read, because of its key, its
 * range or its protection domain, completes with a local protection error,
 * and its queue pair goes to the error state.
 * Case reg_mr/completion_status/send-by-a-stale-key of rdma-cts.
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
static unsigned char own[8], *area; /* the peer's, the case's memory */
static struct ibv_mr *own_mr;
static size_t size;

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

/* The status of a SEND out of a range, or of an RDMA_WRITE. */
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

/* Whether a queue pair comes into the error state within a second. */
static int in_error(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    struct ibv_qp_init_attr init;

    for (int i = 0; i < 1000 && attr.qp_state != IBV_QPS_ERR; i++) {
        usleep(1000);
        ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
    }
    return attr.qp_state == IBV_QPS_ERR;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all),
        argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    SET_UP(own_mr = ibv_reg_mr(pd, own, sizeof(own), IBV_ACCESS_LOCAL_WRITE |
        REMOTE));
    size_t buf_size = 4 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    struct ibv_mr *stale = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    SET_UP(stale);
    struct ibv_mr stale_was = *stale;
    SET_UP(!ibv_dereg_mr(stale));
    area = buf, size = buf_size;
    struct ibv_qp **pair_ = pair(pd, REMOTE);
    int status = refused(pair_, IBV_WR_SEND, (struct ibv_sge){ (uintptr_t)buf,
        8, stale_was.lkey });
    if (status == NONE || status == IBV_WC_SUCCESS)
        errx(77, "nothing was refused");
    CHECK(status == IBV_WC_LOC_PROT_ERR,
        "its status should be IBV_WC_LOC_PROT_ERR, is %d, %s", status,
        ibv_wc_status_str(status));
    int stopped = in_error(pair_[0]);
    CHECK(stopped, "its queue pair should be in the error state");
    return violations != 0;
}
