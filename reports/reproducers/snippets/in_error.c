/* Whether a queue pair enters the error state within a second. */
static int in_error(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    struct ibv_qp_init_attr init;

    for (int i = 0; i < 1000 && attr.qp_state != IBV_QPS_ERR; i++) {
        usleep(1000);
        ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
    }
    return attr.qp_state == IBV_QPS_ERR;
}
