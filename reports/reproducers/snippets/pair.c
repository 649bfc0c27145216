// needs: <stdlib.h>
/* Two queue pairs in loopback: the tested queue pair and its peer. */
@!mixed static struct ibv_qp **pair(struct ibv_pd *domain, int access)
@mixed static struct ibv_qp **pair(struct ibv_pd *domain, int access, int type)
{
@flush     struct ibv_qp_init_attr_ex init = { .cap = { 16, 16, 3, 3, 0 },
@flush         .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
@flush         .send_ops_flags = IBV_QP_EX_WITH_FLUSH,
@!flush     struct ibv_qp_init_attr init = { .cap = { 16, 16, 3, 3, 0 },
@rc                                      .qp_type = IBV_QPT_RC };
@uc                                      .qp_type = IBV_QPT_UC };
@mixed                                      .qp_type = type };
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
@mixed     int reliable = type == IBV_QPT_RC;
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
@rc         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
@rc         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
@rc         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
@rc         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN };
@uc         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
@uc         IBV_QP_SQ_PSN };
@mixed         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
@mixed         reliable * (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
@mixed         reliable * (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
@mixed         IBV_QP_MAX_QP_RD_ATOMIC) | IBV_QP_SQ_PSN };
    struct ibv_qp **two = calloc(2, sizeof(*two));
    union ibv_gid gid;

    for (int i = 0; i < 16; i++) /* the last GID that is set */
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ gid, 0, i };
    for (int i = 0; i < 2; i++) {
        init.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
        init.recv_cq = init.send_cq;
@flush         init.pd = i ? pd : domain;
@flush         if (!(two[i] = ibv_create_qp_ex(context, &init)))
@flush             err(77, "device without FLUSH, or rdma-core before 46");
@!flush         SET_UP(two[i] = ibv_create_qp(i ? pd : domain, &init));
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
