/* ADV-09, ibv_advise_mr(3), RETURN VALUE: "EINVAL In one of the following: o
 * The PD is invalid. o The flags are invalid. o The requested address
 * doesn't belong to a MR, but a MW or something."
 * Case advise_mr/codes/invalid-pd@libibverbs of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
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
    if (!all || !*all)
        errx(2, "there is no RDMA device %s", argc > 1 ? argv[1] : "at all");
    SET_UP(context = ibv_open_device(*all));
    SET_UP(pd = ibv_alloc_pd(context));
    struct ibv_device_attr_ex device;
    SET_UP(!ibv_query_device_ex(context, NULL, &device));
    if (!(device.odp_caps.general_caps & IBV_ODP_SUPPORT))
        errx(77, "not declared: odp");
    size_t buf_size = 8 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    struct ibv_mr *odp = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_ON_DEMAND |
        IBV_ACCESS_LOCAL_WRITE);
    SET_UP(odp);
    struct ibv_sge list[] = { { (uintptr_t)buf, PAGE, odp->lkey } };
    uint32_t handle = pd->handle;
    pd->handle = 0xfffffff0;
    int error = ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1);
    pd->handle = handle;
    CHECK(error == EINVAL,
        "ibv_advise_mr should fail with EINVAL, returned %d, %s", error,
        strerror(error));
    if (violations && (error == EOPNOTSUPP || error == ENOSYS))
        errx(77, "no advise_mr");
    return violations != 0;
}
