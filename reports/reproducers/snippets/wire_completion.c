// needs: script
/* Prints the next completion, and the fields of a successful one, which the
 * script judges. */
static void completion(struct ibv_qp *qp)
{
    static const char *names[] = { "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
        "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
        "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR",
        "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR" };
    struct ibv_wc wc = { 0 };
    int count = 0;

    for (int i = 0; i < 1000 && !(count = ibv_poll_cq(qp->recv_cq, 1, &wc)); i++)
        usleep(1000);
    printf("done %s", !count ? "nothing" : wc.status < 22 ? names[wc.status] : "another");
    if (count && wc.status == IBV_WC_SUCCESS)
        printf(" length=%u", wc.byte_len);
    if (wc.wc_flags & IBV_WC_WITH_IMM)
        printf(" imm=%u", ntohl(wc.imm_data));
    if (wc.wc_flags & IBV_WC_WITH_INV)
        printf(" inv=%u", wc.invalidated_rkey);
    puts("");
}
