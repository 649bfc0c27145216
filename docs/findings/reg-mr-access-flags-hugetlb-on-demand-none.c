/* REG-13, ibv_reg_mr(3), DESCRIPTION: "IBV_ACCESS_HUGETLB Huge pages are
 * guaranteed to be used for this MR, applicable with IBV_ACCESS_ON_DEMAND in
 * explicit mode only"
 * Case reg_mr/access_flags/hugetlb-on-demand+none of rdma-cts.
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
static size_t hugepage;

static size_t hugepage_size(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[100];
    size_t kb = 2048;

    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "Hugepagesize: %zu", &kb);
    return kb << 10;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all),
        argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    hugepage = hugepage_size();
    struct ibv_device_attr_ex device;
    SET_UP(!ibv_query_device_ex(context, NULL, &device));
    if (!(device.odp_caps.general_caps & IBV_ODP_SUPPORT))
        errx(77, "not declared: odp");
    unsigned char *buf = mmap(NULL, hugepage, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    SET_UP(buf != MAP_FAILED);
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr(pd, buf, hugepage, IBV_ACCESS_HUGETLB |
        IBV_ACCESS_ON_DEMAND);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(new && new->addr == buf && new->length == hugepage && new->pd == pd &&
        new->context == context && (new->lkey || new->rkey || new->handle),
        "ibv_reg_mr should register what was asked, gave %d, %s", error,
        strerror(error));
    return violations != 0;
}
