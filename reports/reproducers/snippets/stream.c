// needs: script <fcntl.h> <rdma/rdma_user_cm.h> <sys/socket.h>
static int manager; /* the kernel's connection manager */

static int manage(int command, void *body, size_t size, size_t answer)
{
    unsigned char message[sizeof(struct rdma_ucm_cmd_hdr) + 512];
    struct rdma_ucm_cmd_hdr header = { command, size, answer };

    memcpy(message, &header, sizeof(header));
    memcpy(message + sizeof(header), body, size);
    return write(manager, message, sizeof(header) + size) < 0;
}

/* A queue pair whose other end is the script. It connects a TCP stream to the
 * listener, and reads from the probe to see whether the stream works. */
static struct ibv_qp **stream(struct ibv_pd *domain, int access)
{
    static struct ibv_qp *qp[1];
    static unsigned char probe[8];
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq,
        .cap = { 16, 16, 3, 3, 0 }, .qp_type = IBV_QPT_RC };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .qp_access_flags = access };
    struct ibv_mr *region = ibv_reg_mr(domain, probe, sizeof(probe),
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    struct sockaddr_in to = { AF_INET, htons(9) }, own = { AF_INET };
    socklen_t size = sizeof(own);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct rdma_ucm_create_id_resp id;
    struct rdma_ucm_create_id create = { .response = (uintptr_t)&id,
        .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC };
    struct rdma_ucm_bind_ip bind_ip = { 0 };
    struct rdma_ucm_listen listen = { .backlog = 1 };

    SET_UP(inet_pton(AF_INET, peer_address, &to.sin_addr) == 1);
    SET_UP(!connect(udp, (void *)&to, sizeof(to)));
    SET_UP(!getsockname(udp, (void *)&own, &size));
    own.sin_port = htons(20000 + getpid() % 20000);
    SET_UP((manager = open("/dev/infiniband/rdma_cm", O_RDWR)) >= 0);
    SET_UP(!manage(RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create), sizeof(id)));
    memcpy(&bind_ip.addr, &own, sizeof(own));
    bind_ip.id = listen.id = id.id;
    SET_UP(!manage(RDMA_USER_CM_CMD_BIND_IP, &bind_ip, sizeof(bind_ip), 0));
    SET_UP(!manage(RDMA_USER_CM_CMD_LISTEN, &listen, sizeof(listen), 0));
    SET_UP(region && cq && (qp[0] = ibv_create_qp(domain, &init)));
    SET_UP(!ibv_modify_qp(qp[0], &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
    printf("device %#x\nport %d\n", ntohl(own.sin_addr.s_addr), ntohs(own.sin_port));
    printf("probe.addr %#llx\n", (long long)(uintptr_t)probe);
    printf("probe.rkey %#x\n", region->rkey);
    return qp;
}

static void accept_stream(struct ibv_qp *qp)
{
    struct rdma_ucm_event_resp event = { 0 };
    struct rdma_ucm_get_event get = { .response = (uintptr_t)&event };
    struct rdma_ucm_accept accept = { .uid = 1, .conn_param = { .qp_num = qp->qp_num,
        .responder_resources = 1, .initiator_depth = 1, .valid = 1 } };

    SET_UP(!manage(RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(event)));
    SET_UP(event.event == 4); /* RDMA_CM_EVENT_CONNECT_REQUEST */
    accept.id = event.id;
    SET_UP(!manage(RDMA_USER_CM_CMD_ACCEPT, &accept, sizeof(accept), 0));
    SET_UP(!manage(RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(event)));
    SET_UP(event.event == 9); /* RDMA_CM_EVENT_ESTABLISHED */
}
