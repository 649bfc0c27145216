/* REG-09a, ibv_reg_mr(3), DESCRIPTION; InfiniBand Architecture
 * Specification, volume 1, memory placement extensions:
 * "IBV_ACCESS_FLUSH_PERSISTENT Enable Remote Flush Operation with
 * persistence placement type (if supported)"
 * Case reg_mr/flush_on_demand/ordinary-memory-+none of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define NONE -1 /* the status where nothing completes */
static const int REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT;
#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \
    violations += !(kept), printf(__VA_ARGS__), puts(""))
#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

static struct ibv_context *context;
static struct ibv_pd *pd;
static int violations;

/* Two queue pairs in loopback: the tested one, and its peer. */
static struct ibv_qp **pair(struct ibv_pd *domain, int access)
{
    struct ibv_qp_init_attr_ex init = { .cap = { 16, 16, 3, 3, 0 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_FLUSH,
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
        init.pd = i ? pd : domain;
        SET_UP(two[i] = ibv_create_qp_ex(context, &init));
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

/* A FLUSH of the peer, which moves no bytes. */
static void flush(struct ibv_qp **two, const char *call, int wanted, int type,
                  uint32_t rkey, uint64_t addr, size_t count)
{
    struct ibv_qp_ex *poster = ibv_qp_to_qp_ex(two[1]);
    int status;

    ibv_wr_start(poster);
    poster->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_flush(poster, rkey, addr, count, type, IBV_FLUSH_RANGE);
    status = ibv_wr_complete(poster) ? NONE : next(two[1]->send_cq);
    CHECK(wanted < 0 || wanted == (status == IBV_WC_SUCCESS),
          "%s should %s: status %d, %s", call,
          wanted ? "succeed" : "be refused", status, ibv_wc_status_str(status));
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
    if (!(device.device_cap_flags_ex >> 39 & 1) ||
        !(device.odp_caps.per_transport_caps.rc_odp_caps &
        IBV_ODP_SUPPORT_WRITE) ||
        !(device.odp_caps.per_transport_caps.rc_odp_caps & 0x40))
        errx(77, "not declared: flush_persistent, odp_write, odp_flush");
    size_t buf_size = 2 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_ON_DEMAND |
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | 512 /*
        IBV_ACCESS_FLUSH_PERSISTENT */);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(1, "ibv_reg_mr should do either, gave %d, %s", error,
        strerror(error));
    if (!new)
        return violations != 0;
    flush(pair(pd, REMOTE), "FLUSH_PERSISTENT at buf", 0, IBV_FLUSH_PERSISTENT,
        new->rkey, (uintptr_t)buf, 8);
    return violations != 0;
}
