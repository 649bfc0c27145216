/* REG-25, ibv_query_device(3), DESCRIPTION, max_mr_size; ibv_reg_mr(3), the
 * length: "max_mr_size; / * Largest contiguous block that can be registered
 * * /"
 * Case reg_mr/huge_lengths/on-demand-of-2-gib of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/mman.h>

#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \
    violations += !(kept), printf(__VA_ARGS__), puts(""))
#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

static struct ibv_context *context;
static struct ibv_pd *pd;
static int violations;

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all),
        argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    struct ibv_device_attr_ex device;
    SET_UP(!ibv_query_device_ex(context, NULL, &device));
    if (!(device.odp_caps.per_transport_caps.rc_odp_caps &
        IBV_ODP_SUPPORT_WRITE) ||
        !(device.odp_caps.per_transport_caps.rc_odp_caps &
        IBV_ODP_SUPPORT_READ))
        errx(77, "not declared: odp_write, odp_read");
    size_t buf_size = (6ULL << 30);
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr(pd, buf, (2ULL << 30), IBV_ACCESS_ON_DEMAND
        | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
        IBV_ACCESS_REMOTE_READ);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(new && new->addr == buf && new->length == (2ULL << 30) && new->pd ==
        pd && new->context == context && (new->lkey || new->rkey ||
        new->handle), "ibv_reg_mr should register what was asked, gave %d, %s",
        error, strerror(error));
    return violations != 0;
}
