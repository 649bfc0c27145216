/* REG-17, ibv_reg_mr(3), DESCRIPTION: "The argument access describes the
 * desired memory protection attributes; it is either 0 or the bitwise OR of
 * one or more of the following flags:"
 * Case reg_mr/access_flags/local-write-alone of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define NONE -1 /* the status without a completion */
#define DATA(i) (0x80 + (i) % 113) /* the transferred bytes */
static const int REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \
    violations += !(kept), printf(__VA_ARGS__), puts(""))
#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

static struct ibv_context *context;
static struct ibv_pd *pd;
static int violations;
static unsigned char own[64], *area; /* of the peer; of the case */
static struct ibv_mr *own_mr;
static size_t size;

/* Two queue pairs in loopback: the tested queue pair and its peer. */
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

    for (int i = 0; i < 16; i++) /* the last GID that is set */
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

/* The status of the next completion; NONE if there is none in 10 s. */
static int next(struct ibv_cq *cq)
{
    struct ibv_wc wc = { .status = NONE };

    for (int i = 0; i < 10000 && !ibv_poll_cq(cq, 1, &wc); i++)
        usleep(1000);
    return wc.status;
}

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

    memset(area, 0x77, size);
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
    CHECK(wanted ? status == IBV_WC_SUCCESS && came == count &&
          changed == (into ? count : 0) :
          status != IBV_WC_SUCCESS && !came && !changed,
          "%s should %s: status %d, %s; %zu of %zu bytes moved, %zu changed",
          call, wanted ? "succeed" : "be refused", status,
          ibv_wc_status_str(status), came, count, changed);
    return status;
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
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_LOCAL_WRITE);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(new && new->addr == buf && new->length == buf_size && new->pd == pd &&
        new->context == context && (new->lkey || new->rkey || new->handle),
        "ibv_reg_mr should register the requested range, returned %d, %s",
        error, strerror(error));
    if (!new)
        return violations != 0;
    area = buf, size = buf_size;
    local(pair(pd, REMOTE), "SEND at buf", 1, IBV_WR_SEND, 0, (struct ibv_sge){
        (uintptr_t)buf, 64, new->lkey }, buf);
    return violations != 0;
}
