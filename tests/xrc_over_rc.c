/* A library that offers XRC on a device that has only RC, so that the suite's code for XRC runs. An XRC_SEND queue pair
 * is an RC queue pair that receives nothing, and an XRC_RECV queue pair is an RC queue pair on the shared receive queue
 * that was created last in its XRC domain. Therefore requests reach that queue whatever number they name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#define MOST 4096

struct domain {
	struct ibv_xrcd of;
	struct domain *next;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

/* The queue pairs that stand for those of XRC, in the order of their creation. */
static struct ibv_qp *pairs[MOST];
static int count;

/* pyverbs loads libibverbs for itself alone, so RTLD_NEXT does not find it. */
static void *real(const char *name)
{
	return dlsym(dlopen("libibverbs.so.1", RTLD_NOW), name);
}

static struct ibv_qp *keep(struct ibv_qp *qp)
{
	if (qp)
		pairs[count++ % MOST] = qp;
	return qp;
}

static int stands_for_xrc(const struct ibv_qp *qp)
{
	for (int i = 0; i < MOST; i++)
		if (pairs[i] == qp)
			return 1;
	return 0;
}

static struct domain *domains;

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attributes)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct domain *domain;

	if (attributes->comp_mask != both) {
		errno = EINVAL;
		return NULL;
	}
	domain = calloc(1, sizeof(*domain));
	domain->of.context = context;
	domain->next = domains;
	domains = domain;
	return &domain->of;
}

static int close_xrcd(struct ibv_xrcd *closed)
{
	struct domain *domain = (struct domain *)closed;

	if (domain->srq)
		return EBUSY;
	for (struct domain **at = &domains; *at; at = &(*at)->next)
		if (*at == domain) {
			*at = domain->next;
			break;
		}
	free(domain);
	return 0;
}

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attributes)
{
	const uint32_t all = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	struct ibv_srq_init_attr plain = {.attr = attributes->attr};
	struct domain *domain = (struct domain *)attributes->xrcd;

	if (attributes->comp_mask != all || attributes->srq_type != IBV_SRQT_XRC || domain->of.context != context) {
		errno = EINVAL;
		return NULL;
	}
	domain->pd = attributes->pd;
	domain->cq = attributes->cq;
	domain->srq = ((struct ibv_srq * (*)(struct ibv_pd *, struct ibv_srq_init_attr *)) real("ibv_create_srq"))(domain->pd, &plain);
	return domain->srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	int failed = ((int (*)(struct ibv_srq *))real("ibv_destroy_srq"))(srq);

	for (struct domain *domain = domains; !failed && domain; domain = domain->next)
		if (domain->srq == srq)
			domain->srq = NULL;
	return failed;
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	*number = srq->handle;
	return 0;
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	return ((struct ibv_qp * (*)(struct ibv_pd *, struct ibv_qp_init_attr *)) real("ibv_create_qp"))(pd, attributes);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct ibv_qp_init_attr plain = *attributes;
	struct ibv_qp *qp;

	if (plain.qp_type != IBV_QPT_XRC_SEND)
		return create(pd, attributes);
	if (plain.srq || plain.cap.max_recv_wr || plain.cap.max_recv_sge) {
		errno = EINVAL;
		return NULL;
	}
	plain.qp_type = IBV_QPT_RC;
	plain.cap.max_recv_wr = plain.cap.max_recv_sge = 1;
	qp = keep(create(pd, &plain));
	attributes->cap = plain.cap;
	return qp;
}

static struct ibv_qp *(*create_other)(struct ibv_context *, struct ibv_qp_init_attr_ex *);

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes)
{
	struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct domain *domain = (struct domain *)attributes->xrcd;

	if (attributes->qp_type != IBV_QPT_XRC_RECV)
		return create_other(context, attributes);
	if (attributes->comp_mask != IBV_QP_INIT_ATTR_XRCD || !domain->srq) {
		errno = EINVAL;
		return NULL;
	}
	plain.srq = domain->srq;
	plain.send_cq = plain.recv_cq = domain->cq;
	return keep(create(domain->pd, &plain));
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
	int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = real("ibv_modify_qp");

	if (stands_for_xrc(qp) && mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_RTR)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return modify(qp, attributes, mask);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	int failed = ((int (*)(struct ibv_context *, struct ibv_device_attr *))real("ibv_query_device"))(context, attributes);

	attributes->device_cap_flags |= IBV_DEVICE_XRC;
	return failed;
}

static int (*query_other)(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *, size_t);

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attributes, size_t size)
{
	int failed = query_other(context, input, attributes, size);

	attributes->orig_attr.device_cap_flags |= IBV_DEVICE_XRC;
	attributes->xrc_odp_caps = attributes->odp_caps.per_transport_caps.rc_odp_caps;
	return failed;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = ((struct ibv_context * (*)(struct ibv_device *)) real("ibv_open_device"))(device);
	struct verbs_context *extended = context ? verbs_get_ctx(context) : NULL;

	if (!extended || extended->create_qp_ex == create_qp_ex)
		return context;
	create_other = extended->create_qp_ex;
	query_other = extended->query_device_ex;
	extended->create_qp_ex = create_qp_ex;
	extended->query_device_ex = query_device_ex;
	extended->open_xrcd = open_xrcd;
	extended->close_xrcd = close_xrcd;
	extended->create_srq_ex = create_srq_ex;
	extended->get_srq_num = get_srq_num;
	return context;
}
