// needs: script
/* A queue pair whose other end is the script. */
static struct ibv_qp **wire(struct ibv_pd *domain, int type, int access, int reads,
    enum ibv_mtu mtu, int peer_psn, int own_psn)
{
    static struct ibv_qp *qp[1];
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq,
        .cap = { 16, 16, 3, 3, 0 }, .qp_type = type };
    struct ibv_qp_attr attr = { .path_mtu = mtu, .port_num = 1,
        .qp_access_flags = access, .dest_qp_num = 0x100001,
        .rq_psn = peer_psn, .sq_psn = own_psn, .max_rd_atomic = 1,
        .max_dest_rd_atomic = reads, .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1 } };
    int reliable = type == IBV_QPT_RC;
    const int masks[] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        reliable * (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        reliable * (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_MAX_QP_RD_ATOMIC) | IBV_QP_SQ_PSN };
    unsigned char *to = attr.ah_attr.grh.dgid.raw;
    union ibv_gid gid;
    uint32_t address = 0;

    to[10] = to[11] = 0xff;
    SET_UP(inet_pton(AF_INET, peer_address, to + 12) == 1);
    for (int i = 0; i < 32; i++) /* the last GID with an IPv4 address is of RoCE v2 */
        if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(gid.raw, to, 12)) {
            attr.ah_attr.grh.sgid_index = i;
            memcpy(&address, gid.raw + 12, 4);
        }
    SET_UP(address);
    printf("device %#x\nmtu %d\n", ntohl(address), 128 << mtu);
    SET_UP(cq && (qp[0] = ibv_create_qp(domain, &init)));
    for (int i = 0; i < 3; i++) {
        attr.qp_state = IBV_QPS_INIT + i;
        SET_UP(!ibv_modify_qp(qp[0], &attr, IBV_QP_STATE | masks[i]));
    }
    return qp;
}
