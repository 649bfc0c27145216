/* Moves two queue pairs in loopback from one state to another. */
static void move(struct ibv_qp **two, int from, int to, int access)
{
    struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_1024, .timeout = 14,
        .retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .port_num = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
    const int masks[] = { 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
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
    union ibv_gid gid;

    for (int i = 0; i < 16; i++)
        if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[15])
            attr.ah_attr.grh = (struct ibv_global_route){ gid, 0, i };
    for (int i = 2 * from + 2; i < 2 * to + 2; i++) {
        attr.qp_state = i / 2;
        attr.qp_access_flags = i % 2 ? REMOTE : access;
        attr.dest_qp_num = two[!(i % 2)]->qp_num;
        SET_UP(!ibv_modify_qp(two[i % 2], &attr,
                              IBV_QP_STATE | masks[i / 2]));
    }
}
