/* BIND-23, ibv_req_notify_cq(3), DESCRIPTION: "A CQE is solicited if [...] the
 * status is not successful." A bind that fails gives no event to a program that
 * asked for solicited ones.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    static char buf[4096];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1 },
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
    struct ibv_comp_channel *channel;
    struct ibv_context *context;
    struct ibv_wc wc = { 0 };
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_mw *mw;
    struct ibv_qp *qp;
    union ibv_gid gid;
    int events;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    /* without IBV_ACCESS_MW_BIND */
    SET_UP(mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE));
    if (!(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)))
        err(77, "no window of type 1");
    for (int i = 0; i < 16; i++) /* the last one that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = i };
    SET_UP(channel = ibv_create_comp_channel(context));
    SET_UP(init.send_cq = ibv_create_cq(context, 8, NULL, channel, 0));
    init.recv_cq = init.send_cq;
    SET_UP(qp = ibv_create_qp(pd, &init));
    attr.dest_qp_num = qp->qp_num; /* connected to itself */
    for (int i = 0; i < 3; i++) {
        attr.qp_state = IBV_QPS_INIT + i;
        SET_UP(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | masks[i]));
    }
    struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = {
        .mr = mr, .addr = (uintptr_t)buf, .length = sizeof(buf),
        .mw_access_flags = IBV_ACCESS_REMOTE_READ } };
    SET_UP(!ibv_req_notify_cq(init.send_cq, 1));
    if (ibv_bind_mw(qp, mw, &bind))
        err(77, "the bind is refused when it is posted");
    for (int i = 0; i < 10000 && !ibv_poll_cq(init.send_cq, 1, &wc); i++)
        usleep(1000);
    if (!wc.status)
        errx(77, "the bind did not fail");
    events = poll(&(struct pollfd){ .fd = channel->fd, .events = POLLIN }, 1, 5000);
    printf("%s: the bind completed with %s, and the channel has %s event\n",
           events ? "kept" : "VIOLATED", ibv_wc_status_str(wc.status),
           events ? "an" : "no");
    return !events;
}
