/* The same probes as benchmarks/data_path/inside.py, with only libibverbs: floor DEVICE GID_INDEX PROBES.

   A probe fills the memory and the local buffer, writes by RDMA into a region that allows it or not, waits for what
   the suite waits for, and looks at every byte. A pair that has refused is asked for its state and taken through RESET.
   Prints probes a second, one line each: allowed, refused. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEMORY = 4 * 4096, LENGTH = 200, GUARD = 64, LOCAL = LENGTH + 2 * GUARD, PLACE = 4096 + 100 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int gid_index;
static enum ibv_mtu mtu;
static unsigned char pattern[LENGTH], expected[MEMORY], *memory, *local;

struct queue { struct ibv_cq *cq; struct ibv_qp *qp; };

static void must(int done, const char *what)
{
	if (!done) { perror(what); exit(1); }
}

static struct queue make(void)
{
	struct queue queue = {.cq = ibv_create_cq(context, 64, NULL, NULL, 0)};
	must(queue.cq != NULL, "ibv_create_cq");
	struct ibv_qp_init_attr attr = {.send_cq = queue.cq, .recv_cq = queue.cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
	queue.qp = ibv_create_qp(pd, &attr);
	must(queue.qp != NULL, "ibv_create_qp");
	return queue;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, .path_mtu = mtu, .dest_qp_num = peer,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index}}};
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static int state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	must(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	return attr.qp_state;
}

static void reset(struct queue *queue)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;
	must(!ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE), "RESET");
	while (ibv_poll_cq(queue->cq, 1, &wc) > 0)
		;
}

static enum ibv_wc_status completion(struct queue *queue)
{
	struct ibv_wc wc;
	int found;
	do found = ibv_poll_cq(queue->cq, 1, &wc); while (!found);
	must(found > 0, "ibv_poll_cq");
	return wc.status;
}

/* Makes one probe; returns whether the pair must be reset before the next one. */
static int probe(struct queue *asker, struct queue *asked, uint32_t lkey, uint32_t rkey, int allowed)
{
	struct ibv_sge sge = {(uintptr_t)local + GUARD, LENGTH, lkey};
	struct ibv_send_wr last = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
		.num_sge = 1, .wr.rdma = {(uintptr_t)memory + PLACE, rkey}};
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;

	memset(memory, 0x77, MEMORY);
	memset(memory + PLACE, 0x3c, LENGTH);
	memset(local, 0x5a, LOCAL);
	memcpy(local + GUARD, pattern, LENGTH);
	must(!ibv_post_recv(asked->qp, &receive, &bad_receive), "ibv_post_recv");
	must(!ibv_post_send(asker->qp, &wr, &bad), "ibv_post_send");
	must(!ibv_post_send(asker->qp, &last, &bad), "ibv_post_send");
	enum ibv_wc_status status = completion(asker);
	enum ibv_wc_status heard = completion(asked);
	must((status == IBV_WC_SUCCESS) == allowed && (heard == IBV_WC_SUCCESS) == allowed, "as allowed");
	if (!allowed) {
		while (state(asker->qp) != IBV_QPS_ERR)
			;
		must(state(asked->qp) == IBV_QPS_ERR, "error state");
	}
	memset(expected, 0x77, MEMORY);
	if (allowed) memcpy(expected + PLACE, pattern, LENGTH); else memset(expected + PLACE, 0x3c, LENGTH);
	must(!memcmp(memory, expected, MEMORY), "memory");
	for (int i = 0; i < GUARD; i++) must(local[i] == 0x5a && local[LOCAL - 1 - i] == 0x5a, "guard");
	return !allowed;
}

int main(int argc, char **argv)
{
	if (argc != 4) return 2;
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1])) context = ibv_open_device(*list);
	must(context != NULL, "device");
	gid_index = atoi(argv[2]);
	must(!ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
	struct ibv_port_attr port;
	must(!ibv_query_port(context, 1, &port), "ibv_query_port");
	mtu = port.active_mtu;
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, MEMORY);
	local = aligned_alloc(4096, 4096);
	for (int i = 0; i < LENGTH; i++) pattern[i] = 0x80 + (i * 31 + 7) % 113;
	struct ibv_mr *own = ibv_reg_mr(pd, local, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *open_ = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mr *closed = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
	struct queue asker = make(), asked = make();
	connect_to(asker.qp, asked.qp->qp_num);
	connect_to(asked.qp, asker.qp->qp_num);
	int probes = atoi(argv[3]);
	for (int allowed = 1; allowed >= 0; allowed--) {
		struct timespec began, ended;
		int stale = 0;
		clock_gettime(CLOCK_MONOTONIC, &began);
		for (int i = 0; i < probes; i++) {
			if (stale) {
				reset(&asked);
				reset(&asker);
				connect_to(asker.qp, asked.qp->qp_num);
				connect_to(asked.qp, asker.qp->qp_num);
			}
			stale = probe(&asker, &asked, own->lkey, allowed ? open_->rkey : closed->rkey, allowed);
		}
		clock_gettime(CLOCK_MONOTONIC, &ended);
		double seconds = ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9;
		printf("floor %s %.1f\n", allowed ? "allowed" : "refused", probes / seconds);
	}
	return 0;
}
