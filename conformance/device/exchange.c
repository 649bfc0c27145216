/* Executes requests one after the other and records the results. native_exchange.py decides when this code replaces
 * execution/connection.py, which does the same in Python. */
#include <infiniband/verbs.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { AREAS = 2, RECEIVED = 2, REQUESTER = 0, RESPONDER = 1, ENDS = 2 };
enum { UNTOUCHED, REPLACED, OTHER }; /* the same values as in bench/memory_areas.py */
enum { NOT_QUERIED = -1 };             /* the same value as in native_exchange.py */
enum { NOT_PREPARED = 1 };             /* a receive of the harness was refused, so the exchange has no result */
static const uint64_t BEHIND = 1ull << 63; /* the same bit as in bench/work_requests.py */
/* The compiler's command line defines TURNS_PER_S, a constant of model/deadline.py. */

/* The value of `silence`, in nanoseconds, after a queue pair has not entered the error state in time, and of `flush`
 * after a receive was not flushed in time. */
enum { SHORT_SILENCE = 1000000 };

/* Memory with known contents: memory_areas.Area. */
struct area {
    uint8_t *memory, *start;
    uint64_t size, length;
    const uint8_t *before, *wanted;
    uint32_t around, prefill;
};

struct end {
    struct ibv_qp *qp;
    struct ibv_qp_attr *attributes; /* for the connection of the queue pair to its peer */
    uint64_t receives;              /* number of receives of zero bytes that are posted but not consumed */
};

/* One of the transitions from RESET to RTS: state and attribute mask of ibv_modify_qp. */
struct transition {
    uint32_t state, mask;
};

/* A pair of queue pairs: native_exchange.NativeConnection. */
struct connection {
    struct end ends[ENDS];
    const struct transition *transitions; /* renew the pair after a reset; none if Python renews the pair */
    uint32_t transition_count, stale;
    /* `renewable`: the pair may be renewed. `by_reset`: RESET renews the pair; else Python creates a new pair. */
    uint32_t renewable, by_reset;
    /* Nanoseconds. `silence` limits the wait for the error state of a queue pair, and `flush` for flushed receives. */
    uint64_t send_timeout, receive_timeout, silence, flush;
};

struct exchange {
    struct connection *connection;
    uint32_t initiator, receives; /* the end that posts the request; how many receives the peer must have posted */
    struct ibv_send_wr request;
    struct ibv_sge sge;
    struct area areas[AREAS]; /* at the responder and at the requester */
    int32_t returned;         /* the value that a failed ibv_post_send returned, else 0 */
    uint32_t found, received; /* numbers of completions in `wc`: of the request, then of the peer */
    int32_t responder_state;  /* the responder's final state, or NOT_QUERIED after a success */
    uint32_t area_states[AREAS];
    uint32_t late; /* whether the completion was reported before all data were in memory */
    struct ibv_wc wc[1 + RECEIVED];
};

/* The layout, for comparison with native_exchange.py: the number of values, then the values in the order of _LAYOUT. */
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
    1 + RECEIVED,
    sizeof(struct connection),
    sizeof(struct end),
    sizeof(struct transition),
};

static void fill(const struct area *area)
{
    if (!area->prefill)
        return;
    memset(area->memory, area->around, area->size);
    memcpy(area->start, area->before, area->length);
}

/* Whether all `size` bytes have the same value. */
static int only(const uint8_t *bytes, uint64_t size, uint8_t value)
{
    return !size || (*bytes == value && !memcmp(bytes, bytes + 1, size - 1));
}

static uint32_t area_state(const struct area *area)
{
    const uint8_t *start = area->start, *end = start + area->length;

    if (!only(area->memory, start - area->memory, area->around) ||
        !only(end, area->memory + area->size - end, area->around))
        return OTHER;
    if (!memcmp(start, area->before, area->length))
        return UNTOUCHED;
    if (memcmp(start, area->wanted, area->length))
        return OTHER;
    for (uint64_t i = 0; i < area->length; i++)
        if (start[i] == area->before[i])
            return OTHER;
    return REPLACED;
}

static int has_wanted(const struct area *area)
{
    return !memcmp(area->start, area->wanted, area->length);
}

static int is_complete(const struct area *area, uint32_t state)
{
    return state == REPLACED || (state == UNTOUCHED && has_wanted(area));
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Like class Wait of model/deadline.py: whether a wait since `began` is over after `turns` calls. If not, yields. */
static int over(uint64_t began, uint64_t timeout, uint64_t *turns)
{
    if (++*turns >= timeout / (1000000000 / TURNS_PER_S) && now() - began >= timeout)
        return 1;
    sched_yield();
    return 0;
}

/* Waits for the next completion, at most `timeout` nanoseconds. Returns 1, 0 after the timeout, or the negative value
 * that ibv_poll_cq returned. */
static int completion(struct ibv_cq *cq, struct ibv_wc *wc, uint64_t timeout)
{
    uint64_t began = now(), turns = 0;
    int found;

    while (!(found = ibv_poll_cq(cq, 1, wc)) && !over(began, timeout, &turns))
        ;
    return found;
}

/* Returns the state of a queue pair, or a negative errno of ibv_query_qp. */
static int state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init_attributes;
    int failed = ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init_attributes);

    return failed ? -failed : (int)attributes.qp_state;
}

/* After a failed request, waits at most `silence` until the queue pair of an end is in the error state. */
static void settle(struct connection *connection, int end)
{
    uint64_t began = now(), turns = 0;

    while (state(connection->ends[end].qp) != IBV_QPS_ERR) {
        if (over(began, connection->silence, &turns)) {
            connection->silence = SHORT_SILENCE;
            return;
        }
    }
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

/* Restores the initial states of the pair. Returns 0, or the errno of the transition that failed. The first PSN becomes
 * another, like that of renewed_psn in qp_states.py. */
static int renew(struct connection *connection)
{
    int failed = reset(&connection->ends[RESPONDER]);
    uint32_t psn = (connection->ends[RESPONDER].attributes->sq_psn + RENEWAL_PSNS) & 0xffffff;

    if (!failed)
        failed = reset(&connection->ends[REQUESTER]);
    for (int i = 0; i < ENDS; i++)
        connection->ends[i].attributes->sq_psn = connection->ends[i].attributes->rq_psn = psn;
    for (int i = 0; i < ENDS; i++)
        for (uint32_t n = 0; !failed && n < connection->transition_count; n++) {
            connection->ends[i].attributes->qp_state = connection->transitions[n].state;
            failed = ibv_modify_qp(connection->ends[i].qp, connection->ends[i].attributes, connection->transitions[n].mask);
        }
    connection->stale = failed != 0;
    return failed;
}

/* Renews a pair outside of exchanges. Returns 0, or an errno; then the caller renews the pair. */
int rdma_cts_renew(struct connection *connection)
{
    return renew(connection);
}

/* Whether the peer has detected the error. The peer's queue pair is then also in the error state. */
static int detected_by_peer(enum ibv_wc_status status)
{
    return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
           status == IBV_WC_REM_INV_RD_REQ_ERR || status == IBV_WC_REM_ABORT_ERR;
}

/* Posts the request and then a SEND, and waits for the completions. Returns 0, NOT_PREPARED, or a negative errno of
 * ibv_poll_cq. */
static int post_and_wait(struct exchange *this)
{
    struct end *initiator = &this->connection->ends[this->initiator], *peer = &this->connection->ends[!this->initiator];
    struct ibv_send_wr behind = {.wr_id = this->request.wr_id | BEHIND, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_sge no_bytes = {0}; /* like NO_BYTES of bench/work_requests.py */
    struct ibv_recv_wr receive = {.sg_list = &no_bytes, .num_sge = 1}, *bad_receive;
    int found;

    for (; peer->receives < this->receives; peer->receives++)
        if (ibv_post_recv(peer->qp, &receive, &bad_receive))
            return NOT_PREPARED;
    this->returned = ibv_post_send(initiator->qp, &this->request, &bad);
    if (this->returned)
        return 0;
    ibv_post_send(initiator->qp, &behind, &bad);
    do /* The SEND after an earlier request may complete first, if it was flushed without an acknowledgement. */
        found = completion(initiator->qp->send_cq, &this->wc[0], this->connection->send_timeout);
    while (found > 0 && this->wc[0].wr_id & BEHIND && this->wc[0].wr_id != behind.wr_id);
    /* Requests complete in their order: if the SEND after the request completes first, the completion of the request is
     * lost. It is awaited a little longer, in case the device only mixes up the order. */
    if (found > 0 && this->wc[0].wr_id == behind.wr_id)
        found = completion(initiator->qp->send_cq, &this->wc[0], this->connection->silence);
    if (found <= 0)
        return found;
    this->found = 1;
    if (this->wc[0].status != IBV_WC_SUCCESS) {
        if (!detected_by_peer(this->wc[0].status))
            return 0;
        found = completion(peer->qp->recv_cq, &this->wc[1], this->connection->flush);
        this->received = found > 0;
        if (!found)
            this->connection->flush = SHORT_SILENCE;
    } else {
        /* After a send completion, the initiator's memory must be up to date. After a receive completion with immediate
         * data, the peer's memory must be up to date. */
        this->late = !has_wanted(&this->areas[!this->initiator]);
        /* A write with immediate data consumes the first receive; the SEND consumes the last receive. */
        do {
            found = completion(peer->qp->recv_cq, &this->wc[1 + this->received], this->connection->receive_timeout);
            this->received += found > 0;
            if (found > 0 && this->wc[this->received].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                this->late |= !has_wanted(&this->areas[this->initiator]);
        } while (found > 0 && this->received < RECEIVED && this->wc[this->received].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    }
    peer->receives -= this->received;
    return found < 0 ? found : 0;
}

/* Waits until failed queue pairs are in the error state, because data may be written until then. Then compares the
 * memory, and marks a connection that has to be renewed as stale. Leaves the wait and the comparison to Python if
 * Python renews the pair. Returns 0, or a negative errno of ibv_query_qp. */
static int settle_and_compare(struct exchange *this)
{
    struct connection *connection = this->connection;
    int done = this->found && this->wc[0].status == IBV_WC_SUCCESS;
    uint32_t expected = this->received && this->wc[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM ? 2 : 1;

    if (!done && !this->returned && !connection->by_reset) {
        connection->stale = 1;
        this->area_states[0] = this->area_states[1] = OTHER;
        return 0;
    }
    if (!done && !this->returned) {
        settle(connection, this->initiator);
        if (this->found && detected_by_peer(this->wc[0].status))
            settle(connection, !this->initiator);
    }
    for (int i = 0; i < AREAS; i++) {
        this->area_states[i] = area_state(&this->areas[i]);
        done = done && is_complete(&this->areas[i], this->area_states[i]);
    }
    for (uint32_t i = 0; i < this->received; i++)
        done = done && this->wc[1 + i].status == IBV_WC_SUCCESS;
    if (done && this->received >= expected)
        return 0;
    connection->stale = 1;
    this->responder_state = state(connection->ends[RESPONDER].qp);
    return this->responder_state < 0 ? this->responder_state : 0;
}

/* Fills the areas, executes the request and compares the areas. Returns 0, NOT_PREPARED, or a negative errno. */
static int exchange(struct exchange *this)
{
    int failed;

    for (int i = 0; i < AREAS; i++)
        fill(&this->areas[i]);
    failed = post_and_wait(this);
    return failed ? failed : settle_and_compare(this);
}

/* Whether Python has to examine the exchange before the next exchange: the request was not posted or has no completion,
 * memory has changed in an unexpected way, or a success is incomplete. */
static int needs_examination(const struct exchange *this)
{
    return this->returned || !this->found || this->area_states[0] == OTHER || this->area_states[1] == OTHER ||
           (this->wc[0].status == IBV_WC_SUCCESS && this->responder_state != NOT_QUERIED);
}

/* Whether the memory of a failed exchange has changed since it was compared. */
static int late(struct exchange *this)
{
    int changed = 0;

    for (int i = 0; this->responder_state != NOT_QUERIED && i < AREAS; i++)
        if (area_state(&this->areas[i]) != this->area_states[i]) {
            this->area_states[i] = OTHER;
            changed = 1;
        }
    return changed;
}

/* Executes exchanges. Stops after the first that needs examination, or before one whose connection this code cannot
 * renew or prepare. Returns the number of executed exchanges, or a negative errno of ibv_poll_cq or ibv_query_qp. */
int rdma_cts_exchanges(struct exchange *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct connection *connection = all[i].connection;
        int failed = 0;

        if (connection->stale && connection->renewable)
            failed = !connection->by_reset || renew(connection);
        if ((i && late(&all[i - 1])) || failed)
            return i;
        failed = exchange(&all[i]);
        if (failed)
            return failed == NOT_PREPARED ? (int)i : failed;
        if (needs_examination(&all[i]))
            return i + 1;
    }
    return count;
}
