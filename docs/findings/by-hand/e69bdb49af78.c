/* WRX-05, ibv_wr_post(3), WORK REQUESTS: "Inline setters will copy the send
 * data during the setter". No lkey is needed. The provider copies the data, but
 * does not set IBV_SEND_INLINE: the kernel reads them as a list of elements.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    static unsigned char buf[64], data[64];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 },
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp_init_attr_ex init = { .cap = { 4, 4, 1, 1, 64 },
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .send_ops_flags =
        IBV_QP_EX_WITH_RDMA_WRITE, .comp_mask = IBV_QP_INIT_ATTR_PD |
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
    struct ibv_wc wc = { .status = -1 };
    struct ibv_context *context;
    struct ibv_qp *two[2];
    struct ibv_qp_ex *qp;
    struct ibv_mr *mr;
    union ibv_gid gid;
    int error, came = 0, kept;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(init.pd = ibv_alloc_pd(context));
    SET_UP(mr = ibv_reg_mr(init.pd, buf, sizeof(buf),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    for (int i = 0; i < 16; i++) /* the last one that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = i };
    for (int i = 0; i < 2; i++) {
        SET_UP(init.send_cq = ibv_create_cq(context, 8, NULL, NULL, 0));
        init.recv_cq = init.send_cq;
        if (!(two[i] = ibv_create_qp_ex(context, &init)))
            err(77, "no queue pair for ibv_wr_rdma_write");
    }
    for (int i = 0; i < 6; i++) {
        attr.qp_state = IBV_QPS_INIT + i / 2;
        attr.dest_qp_num = two[!(i % 2)]->qp_num;
        SET_UP(!ibv_modify_qp(two[i % 2], &attr, IBV_QP_STATE | masks[i / 2]));
    }
    memset(buf, 0x77, sizeof(buf));
    memset(data, 0x80, sizeof(data));
    qp = ibv_qp_to_qp_ex(two[1]);
    ibv_wr_start(qp);
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)buf);
    ibv_wr_set_inline_data(qp, data, sizeof(data));
    memset(data, 0, sizeof(data)); /* it was copied: it may be used again */
    error = ibv_wr_complete(qp);
    for (int i = 0; i < 10000 && !error && !ibv_poll_cq(two[1]->send_cq, 1, &wc);
         i++)
        usleep(1000);
    for (size_t i = 0; i < sizeof(buf); i++)
        came += buf[i] == 0x80;
    kept = !error && wc.status == IBV_WC_SUCCESS && came == sizeof(buf);
    printf("%s: ibv_wr_complete gave %d, status %d, %s; %d of %zu bytes came\n",
           kept ? "kept" : "VIOLATED", error, wc.status,
           ibv_wc_status_str(wc.status), came, sizeof(buf));
    return !kept;
}
