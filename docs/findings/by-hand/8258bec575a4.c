/* KREG-01, rdma/ib_user_ioctl_cmds.h: UVERBS_METHOD_REG_MR registers as the
 * command REG_MR does. A peer cannot use the region: the driver checks requests
 * against the region's length and iova, which the kernel leaves at 0. The
 * program is for rxe, because the command contains the number of the driver.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

/* An attribute of a command: a number or an address, or a handle. */
static struct ib_uverbs_attr attr(int id, int length, uint64_t data)
{
    return (struct ib_uverbs_attr){ .attr_id = id, .len = length,
        .flags = UVERBS_ATTR_F_MANDATORY, .data = data };
}

/* UVERBS_METHOD_REG_MR, with the address as the iova; 0, or errno. */
static int reg_mr(struct ibv_pd *pd, void *addr, uint64_t length, int access,
                  uint32_t *handle, uint32_t *lkey, uint32_t *rkey)
{
    uint64_t at = (uintptr_t)addr;
    struct { struct ib_uverbs_ioctl_hdr head; struct ib_uverbs_attr a[8]; }
    command = { { .length = sizeof(command), .object_id = UVERBS_OBJECT_MR,
                  .method_id = 5 /* UVERBS_METHOD_REG_MR */, .num_attrs = 8,
                  .driver_id = RDMA_DRIVER_RXE },
                { attr(0, 0, 0), attr(1, 0, pd->handle), attr(3, 8, at),
                  attr(4, 8, at), attr(5, 8, length), attr(6, 4, access),
                  attr(9, 4, (uintptr_t)lkey), attr(10, 4, (uintptr_t)rkey) } };

    if (ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &command))
        return errno;
    *handle = command.a[0].data;
    return 0;
}

int main(int argc, char **argv)
{
    static unsigned char buf[64], data[64];
    uint32_t handle, lkey, rkey;
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_qp_attr to = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 },
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 },
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
    struct ibv_send_wr *bad, wr = { .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE };
    struct ibv_sge sge = { (uintptr_t)data, sizeof(data), 0 };
    struct ibv_pd *pd;
    struct ibv_wc wc = { .status = -1 };
    struct ibv_context *context;
    struct ibv_qp *two[2];
    struct ibv_mr *mr;
    union ibv_gid gid;
    int error, came = 0, kept;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    SET_UP(mr = ibv_reg_mr(pd, data, sizeof(data), IBV_ACCESS_LOCAL_WRITE));
    if ((errno = reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE |
                        IBV_ACCESS_REMOTE_WRITE, &handle, &lkey, &rkey)))
        err(77, "no UVERBS_METHOD_REG_MR");
    for (int i = 0; i < 16; i++) /* the last one that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            to.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = i };
    for (int i = 0; i < 2; i++) {
        SET_UP(init.send_cq = ibv_create_cq(context, 8, NULL, NULL, 0));
        init.recv_cq = init.send_cq;
        SET_UP(two[i] = ibv_create_qp(pd, &init));
    }
    for (int i = 0; i < 6; i++) {
        to.qp_state = IBV_QPS_INIT + i / 2;
        to.dest_qp_num = two[!(i % 2)]->qp_num;
        SET_UP(!ibv_modify_qp(two[i % 2], &to, IBV_QP_STATE | masks[i / 2]));
    }
    memset(buf, 0x77, sizeof(buf));
    memset(data, 0x80, sizeof(data));
    sge.lkey = mr->lkey;
    wr.sg_list = &sge;
    wr.wr.rdma.remote_addr = (uintptr_t)buf;
    wr.wr.rdma.rkey = rkey;
    error = ibv_post_send(two[1], &wr, &bad);
    for (int i = 0; i < 10000 && !error && !ibv_poll_cq(two[1]->send_cq, 1, &wc);
         i++)
        usleep(1000);
    for (size_t i = 0; i < sizeof(buf); i++)
        came += buf[i] == 0x80;
    kept = !error && wc.status == IBV_WC_SUCCESS && came == sizeof(buf);
    printf("%s: ibv_post_send gave %d, status %d, %s; %d of %zu bytes came\n",
           kept ? "kept" : "VIOLATED", error, wc.status,
           ibv_wc_status_str(wc.status), came, sizeof(buf));
    return !kept;
}
