/* A request and what comes of it: quick.py says when this takes the place of lines.py, which does the same. */
#include <infiniband/verbs.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { AREAS = 2, HEARD = 2 };
enum { UNTOUCHED, REPLACED, OTHER }; /* as in targets.py */

/* Memory with known contents, as targets.Area has it. */
struct area {
    uint8_t *memory, *place;
    uint64_t size, length;
    const uint8_t *before, *wanted;
    uint32_t around, made;
};

struct exchange {
    struct ibv_qp *asker, *other;
    uint64_t patience, hearing, silence; /* nanoseconds: for the asker's answer, the other's, and one that may not come */
    struct ibv_send_wr *request;
    uint32_t receives; /* to be posted at the other side first, each of no bytes */
    struct area areas[AREAS];
    int32_t returned;      /* by the posting that failed, else 0 */
    uint32_t found, heard; /* completions in `wc`: the request's own first, then the other side's */
    uint32_t seen[AREAS];
    struct ibv_wc wc[1 + HEARD];
};

static void fill(const struct area *area)
{
    if (!area->made)
        return;
    memset(area->memory, area->around, area->size);
    memcpy(area->place, area->before, area->length);
}

/* Whether all of `size` bytes are the one. */
static int only(const uint8_t *bytes, uint64_t size, uint8_t one)
{
    return !size || (*bytes == one && !memcmp(bytes, bytes + 1, size - 1));
}

static uint32_t seen(const struct area *area)
{
    const uint8_t *place = area->place, *behind = place + area->length;

    if (!only(area->memory, place - area->memory, area->around) ||
        !only(behind, area->memory + area->size - behind, area->around))
        return OTHER;
    if (!memcmp(place, area->before, area->length))
        return UNTOUCHED;
    if (memcmp(place, area->wanted, area->length))
        return OTHER;
    for (uint64_t i = 0; i < area->length; i++)
        if (place[i] == area->before[i])
            return OTHER;
    return REPLACED;
}

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

/* Whether the other side has found the error, which ends its queue pair too. */
static int found_there(enum ibv_wc_status status)
{
    return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
           status == IBV_WC_REM_INV_RD_REQ_ERR || status == IBV_WC_REM_ABORT_ERR;
}

/* 0, or the negative answer of an ibv_poll_cq that has failed. */
static int made(struct exchange *this)
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
        if (!found_there(this->wc[0].status))
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

/* Fills the areas, makes the exchange and looks at them; 0, or the negative answer of a failed ibv_poll_cq. */
int rdma_cts_exchange(struct exchange *this)
{
    int failed;

    for (int i = 0; i < AREAS; i++)
        fill(&this->areas[i]);
    failed = made(this);
    for (int i = 0; i < AREAS; i++)
        this->seen[i] = seen(&this->areas[i]);
    return failed;
}

