// needs: script
/* The state of a queue pair. */
static const char *state_of(struct ibv_qp *qp)
{
    static const char *names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    SET_UP(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return names[attr.qp_state];
}
