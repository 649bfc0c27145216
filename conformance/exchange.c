/* A request and what comes of it: quick.py says when this takes the place of lines.py, which does the same. */
#include <infiniband/verbs.h>
#include <sched.h>
#include <time.h>

enum { HEARD = 2 };

struct exchange {
    struct ibv_qp *asker, *other;
    struct ibv_send_wr *request;
    uint64_t patience, hearing, silence; /* nanoseconds: for the asker's answer, the other's, and one that may not come */
    uint32_t receives;          /* to be posted at the other side first, each of no bytes */
    int32_t returned;           /* by the posting that failed, else 0 */
    uint32_t found, heard;      /* completions in `wc`: the request's own first, then the other side's */
    struct ibv_wc wc[1 + HEARD];
};

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The next completion: 1, 0 when the time has passed, or what ibv_poll_cq says of its failure. */
static int completion(struct ibv_cq *cq, struct ibv_wc *wc, uint64_t patience)
{
    uint64_t began = now();
    int found;

    while (!(found = ibv_poll_cq(cq, 1, wc)) && now() - began < patience)
        sched_yield();
    return found;
}

/* 0, or the negative answer of an ibv_poll_cq that has failed. */
int rdma_cts_exchange(struct exchange *this)
{
    struct ibv_send_wr behind = {.opcode = IBV_WR_SEND}, *bad;
    struct ibv_recv_wr receive = {0}, *bad_receive;
    int found;

    this->found = this->heard = 0;
    for (this->returned = 0; this->receives && !this->returned; this->receives -= !this->returned)
        this->returned = ibv_post_recv(this->other, &receive, &bad_receive);
    if (!this->returned)
        this->returned = ibv_post_send(this->asker, this->request, &bad);
    if (this->returned)
        return 0;
    ibv_post_send(this->asker, &behind, &bad);
    found = completion(this->asker->send_cq, &this->wc[0], this->patience);
    if (found <= 0)
        return found;
    this->found = 1;
    if (this->wc[0].status != IBV_WC_SUCCESS) {
        if (this->wc[0].status < IBV_WC_REM_INV_REQ_ERR || this->wc[0].status > IBV_WC_REM_OP_ERR)
            return 0;
        found = completion(this->other->recv_cq, &this->wc[1], this->silence);
        this->heard = found > 0;
        return found < 0 ? found : 0;
    }
    /* What was sent behind is received behind; a write with immediate is received before that. */
    do {
        found = completion(this->other->recv_cq, &this->wc[1 + this->heard], this->hearing);
        this->heard += found > 0;
    } while (found > 0 && this->heard < HEARD && this->wc[this->heard].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    return found < 0 ? found : 0;
}
