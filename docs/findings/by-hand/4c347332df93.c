/* PAR-01, ibv_alloc_parent_domain(3): a parent domain can be used in place of
 * the domain that it is made of. <infiniband/verbs.h> compares the pointers of
 * the domains of a window and a region, so that ibv_bind_mw refuses the bind.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    static char buf[4096];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_parent_domain_init_attr of = { 0 };
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
    struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1 },
        .qp_type = IBV_QPT_RC };
    struct ibv_context *context;
    struct ibv_pd *parent;
    struct ibv_mw *mw;
    struct ibv_qp *qp;
    union ibv_gid gid;
    int error;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(of.pd = ibv_alloc_pd(context));
    if (!(parent = ibv_alloc_parent_domain(context, &of)))
        err(77, "no parent domain");
    if (!(mw = ibv_alloc_mw(of.pd, IBV_MW_TYPE_1)))
        err(77, "no window of type 1");
    SET_UP(init.send_cq = ibv_create_cq(context, 8, NULL, NULL, 0));
    init.recv_cq = init.send_cq;
    SET_UP(qp = ibv_create_qp(of.pd, &init));
    for (int i = 0; i < 16; i++) /* the last one that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = i };
    attr.dest_qp_num = qp->qp_num; /* connected to itself */
    for (int i = 0; i < 3; i++) {
        attr.qp_state = IBV_QPS_INIT + i;
        SET_UP(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | masks[i]));
    }
    struct ibv_mw_bind bind = { .bind_info = { .addr = (uintptr_t)buf,
        .length = sizeof(buf), .mw_access_flags = IBV_ACCESS_REMOTE_READ } };
    SET_UP(bind.bind_info.mr = ibv_reg_mr(of.pd, buf, sizeof(buf), IBV_ACCESS_MW_BIND));
    SET_UP(!(errno = ibv_bind_mw(qp, mw, &bind)));
    SET_UP(bind.bind_info.mr = ibv_reg_mr(parent, buf, sizeof(buf), IBV_ACCESS_MW_BIND));
    error = ibv_bind_mw(qp, mw, &bind);
    printf("%s: a bind to a region of the domain gave 0, to one of its parent "
           "domain %d, %s\n", error ? "VIOLATED" : "kept", error, strerror(error));
    return !!error;
}
