/* IOVA-02a, ibv_reg_mr(3), DESCRIPTION: "ibv_reg_mr_iova is the same as the
 * normal reg_mr, except that the user is allowed to specify the virtual base
 * address of the MR when accessed through a lkey or rkey."
 * Case reg_mr_iova/on_demand/another-offset-within-the-page-registers of
 * rdma-cts.
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
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    struct ibv_device_attr_ex device;
    SET_UP(!ibv_query_device_ex(context, NULL, &device));
    if (!(device.odp_caps.general_caps & IBV_ODP_SUPPORT))
        errx(77, "not declared: odp");
    size_t buf_size = 5 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr_iova(pd, buf + PAGE + 104, 2 * PAGE,
        (uintptr_t)(buf + 7 * PAGE + 200), IBV_ACCESS_ON_DEMAND |
        IBV_ACCESS_LOCAL_WRITE);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(new && new->addr == (buf + PAGE + 104) && new->length == (2 * PAGE) &&
        new->pd == pd && new->context == context && (new->lkey || new->rkey ||
        new->handle),
        "ibv_reg_mr_iova should register what was asked, gave %d, %s", error,
        strerror(error));
    return violations != 0;
}
