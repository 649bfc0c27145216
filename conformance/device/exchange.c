/* Posts requests one after the other and records what comes of each. native_exchange.py says when this is used instead
 * of execution/connection.py, which does the same in steps. */
#include <infiniband/verbs.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { AREAS = 2, HEARD = 2, REQUESTER = 0, RESPONDER = 1, ENDS = 2 };
enum { UNTOUCHED, REPLACED, OTHER }; /* as in bench/memory_areas.py */
enum { NOT_ASKED = -1 };             /* as in native_exchange.py */

/* Memory with known contents: memory_areas.Area. */
struct area {
    uint8_t *memory, *place;
    uint64_t size, length;
    const uint8_t *before, *wanted;
    uint32_t around, made;
};

struct end {
    struct ibv_qp *qp;
    struct ibv_qp_attr *attributes; /* of the connection */
    uint64_t receives;              /* posted, each of no bytes, and not yet used */
};

/* A step from RESET to a queue pair in use: ibv_modify_qp's state and mask. */
struct move {
    uint32_t state, mask;
};

/* A pair of queue pairs: native_exchange.NativeConnection. */
struct connection {
    struct end ends[ENDS];
    const struct move *moves; /* how it is made new; none if it is to be used as it is */
    uint32_t number_of_moves, stale;
    uint64_t patience, hearing, silence; /* nanoseconds: for the asker's answer, the other's, and one that may not come */
};

struct exchange {
    struct connection *connection;
    uint32_t asker, receives; /* the other side is to have so many posted */
    struct ibv_send_wr request;
    struct ibv_sge sge;
    struct area areas[AREAS];
    int32_t returned;      /* by the posting that failed, else 0 */
    uint32_t found, heard; /* completions in `wc`: the request's own first, then the other side's */
    int32_t rested;        /* the responder's state once it has come to rest, or NOT_ASKED */
    uint32_t seen[AREAS];
    uint32_t late; /* what a completion spoke of came after it */
    struct ibv_wc wc[1 + HEARD];
};

/* What native_exchange.py assumes: how many numbers follow, and these in the order of its _LAYOUT. */
const uint32_t rdma_cts_layout[] = {
    13,
    sizeof(struct exchange),
    offsetof(struct exchange, request),
    offsetof(struct exchange, sge),
    offsetof(struct exchange, areas),
    offsetof(struct exchange, returned),
    offsetof(struct exchange, wc),
    sizeof(struct area),
    sizeof(struct ibv_wc),
    AREAS,
    1 + HEARD,
    sizeof(struct connection),
    sizeof(struct end),
    sizeof(struct move),
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

/* Whether what is wanted stands there. */
static int come(const struct area *area)
{
    return !memcmp(area->place, area->wanted, area->length);
}

static int as_wanted(const struct area *area, uint32_t seen)
{
    return seen == REPLACED || (seen == UNTOUCHED && come(area));
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

/* The state of a queue pair, or the negative of what ibv_query_qp answers. */
static int state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr made_of;
    int failed = ibv_query_qp(qp, &attributes, IBV_QP_STATE, &made_of);

    return failed ? -failed : (int)attributes.qp_state;
}

/* Waits until a queue pair on which a request has failed has come to rest. */
static void settle(struct ibv_qp *qp, uint64_t patience)
{
    uint64_t began = now();

    while (state(qp) != IBV_QPS_ERR && now() - began < patience)
        sched_yield();
}

static int reset(struct end *end)
{
    struct ibv_wc wc;
    int failed;

    end->attributes->qp_state = IBV_QPS_RESET;
    failed = ibv_modify_qp(end->qp, end->attributes, IBV_QP_STATE);
    end->receives = 0;
    while (!failed && ibv_poll_cq(end->qp->recv_cq, 1, &wc) > 0)
        ;
    return failed;
}

/* As after creation: 0, or the errno of the move that failed. */
static int renew(struct connection *connection)
{
    int failed = reset(&connection->ends[RESPONDER]);

    if (!failed)
        failed = reset(&connection->ends[REQUESTER]);
    for (int i = 0; i < ENDS; i++)
        for (uint32_t move = 0; !failed && move < connection->number_of_moves; move++) {
            connection->ends[i].attributes->qp_state = connection->moves[move].state;
            failed = ibv_modify_qp(connection->ends[i].qp, connection->ends[i].attributes, connection->moves[move].mask);
        }
    connection->stale = failed != 0;
    return failed;
}

/* Whether the other side has found the error, which ends its queue pair too. */
static int found_there(enum ibv_wc_status status)
{
    return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
           status == IBV_WC_REM_INV_RD_REQ_ERR || status == IBV_WC_REM_ABORT_ERR;
}

/* Posts the request and a SEND behind it and waits for both; 0, or the negative answer of a failed ibv_poll_cq. */
static int made(struct exchange *this)
{
    struct end *asker = &this->connection->ends[this->asker], *other = &this->connection->ends[!this->asker];
    struct ibv_send_wr behind = {.opcode = IBV_WR_SEND}, *bad;
    struct ibv_recv_wr receive = {0}, *bad_receive;
    int found;

    for (; other->receives < this->receives && !this->returned; other->receives += !this->returned)
        this->returned = ibv_post_recv(other->qp, &receive, &bad_receive);
    if (!this->returned)
        this->returned = ibv_post_send(asker->qp, &this->request, &bad);
    if (this->returned)
        return 0;
    ibv_post_send(asker->qp, &behind, &bad);
    found = completion(asker->qp->send_cq, &this->wc[0], this->connection->patience);
    if (found <= 0)
        return found;
    this->found = 1;
    if (this->wc[0].status != IBV_WC_SUCCESS) {
        if (!found_there(this->wc[0].status))
            return 0;
        found = completion(other->qp->recv_cq, &this->wc[1], this->connection->silence);
        this->heard = found > 0;
    } else {
        /* The asker's own memory is visible to it when it is told, the other's when it is told of immediate data. */
        this->late = !come(&this->areas[!this->asker]);
        /* What was sent behind is received behind; a write with immediate is received before that. */
        do {
            found = completion(other->qp->recv_cq, &this->wc[1 + this->heard], this->connection->hearing);
            this->heard += found > 0;
            if (found > 0 && this->wc[this->heard].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                this->late |= !come(&this->areas[this->asker]);
        } while (found > 0 && this->heard < HEARD && this->wc[this->heard].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    }
    other->receives -= this->heard;
    return found < 0 ? found : 0;
}

/* Lets what has failed come to rest, looks at the memory then, since a refused write may still land, and marks the
 * connection as stale if it has to be renewed; 0, or the negative answer of ibv_query_qp. */
static int rest(struct exchange *this)
{
    struct connection *connection = this->connection;
    int done = this->found && this->wc[0].status == IBV_WC_SUCCESS;
    uint32_t wanted = this->heard && this->wc[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM ? 2 : 1;

    if (!done && !this->returned) {
        settle(connection->ends[this->asker].qp, connection->silence);
        if (this->found && found_there(this->wc[0].status))
            settle(connection->ends[!this->asker].qp, connection->silence);
    }
    for (int i = 0; i < AREAS; i++) {
        this->seen[i] = seen(&this->areas[i]);
        done = done && as_wanted(&this->areas[i], this->seen[i]);
    }
    for (uint32_t i = 0; i < this->heard; i++)
        done = done && this->wc[1 + i].status == IBV_WC_SUCCESS;
    if (done && this->heard >= wanted)
        return 0;
    connection->stale = 1;
    this->rested = state(connection->ends[RESPONDER].qp);
    return this->rested < 0 ? this->rested : 0;
}

/* Fills the areas, makes the exchange and looks at them; 0, or a negative errno. */
static int exchange(struct exchange *this)
{
    int failed;

    for (int i = 0; i < AREAS; i++)
        fill(&this->areas[i]);
    failed = made(this);
    return failed ? failed : rest(this);
}

/* Whether Python has to look at it before the next one is made: it was not posted, not answered, or something has come that
 * should not have, or not all that should. */
static int odd(const struct exchange *this)
{
    return this->returned || !this->found || this->seen[0] == OTHER || this->seen[1] == OTHER ||
           (this->wc[0].status == IBV_WC_SUCCESS && this->rested != NOT_ASKED);
}

/* Whether something has changed in the memory of a refused exchange since it was looked at. */
static int late(struct exchange *this)
{
    int changed = 0;

    for (int i = 0; this->rested != NOT_ASKED && i < AREAS; i++)
        if (seen(&this->areas[i]) != this->seen[i]) {
            this->seen[i] = OTHER;
            changed = 1;
        }
    return changed;
}

/* Makes the exchanges up to one that is odd, or before one whose connection cannot be made new: how many, or the negative
 * answer of the ibv_poll_cq or ibv_query_qp that has failed. */
int rdma_cts_exchanges(struct exchange *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int failed = all[i].connection->stale && all[i].connection->number_of_moves && renew(all[i].connection);

        if (failed || (i && late(&all[i - 1])))
            return i;
        failed = exchange(&all[i]);
        if (failed)
            return failed;
        if (odd(&all[i]))
            return i + 1;
    }
    return count;
}
