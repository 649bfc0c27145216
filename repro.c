/* REG-15, ibv_reg_mr(3), DESCRIPTION; RETURN VALUE, where an invalid
 * combination of arguments fails: "If IBV_ACCESS_REMOTE_WRITE or
 * IBV_ACCESS_REMOTE_ATOMIC is set, then IBV_ACCESS_LOCAL_WRITE must be set
 * too."
 * Case reg_mr/access_flags/remote-write-without-local-write+none of
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
    size_t buf_size = 4 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    errno = 0;
    struct ibv_mr *new = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_REMOTE_WRITE);
    int error = new ? 0 : errno ? errno : -1;
    CHECK(error != 0, "ibv_reg_mr should fail, returned %d, %s", error,
        strerror(error));
    return violations != 0;
}
