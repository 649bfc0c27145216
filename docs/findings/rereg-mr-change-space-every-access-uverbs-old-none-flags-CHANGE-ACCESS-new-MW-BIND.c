/* REREG-12, ibv_rereg_mr(3), DESCRIPTION; the same, which likens the call to
 * a deregistration and a registration: "This field describes the desired
 * memory protection attributes; it is either 0 or the bitwise OR of one or
 * more of ibv_access_flags."
 * Case rereg_mr/change_space/every-access@uverbs#old=none,flags=CHANGE_ACCES
 * S,new=MW_BIND of rdma-cts.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \
    violations += !(kept), printf(__VA_ARGS__), puts(""))
#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

static struct ibv_context *context;
static struct ibv_pd *pd;
static int violations;

/* Writes a command of the kernel's ABI. */
static int command(int number, size_t size, size_t answer, void *body)
{
    struct ib_uverbs_cmd_hdr *header = body;

    header->command = number;
    header->in_words = size / 4;
    header->out_words = answer / 4;
    return write(context->cmd_fd, body, size) < 0 ? errno : 0;
}

static int uverbs_rereg_mr(struct ibv_mr *mr, int flags,
    struct ibv_pd *domain, void *addr, size_t bytes, int access)
{
    struct ib_uverbs_rereg_mr_resp made;
    struct { struct ib_uverbs_cmd_hdr header;
             struct ib_uverbs_rereg_mr body; } request = { .body = {
        (uintptr_t)&made, mr->handle, flags, (uintptr_t)addr, bytes,
        (uintptr_t)addr, domain ? domain->handle : 0, access } };
    int error = command(IB_USER_VERBS_CMD_REREG_MR, sizeof(request),
                        sizeof(made), &request);

    if (error)
        return error;
    mr->lkey = made.lkey, mr->rkey = made.rkey;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        mr->addr = addr, mr->length = bytes;
    if (flags & IBV_REREG_MR_CHANGE_PD)
        mr->pd = domain;
    return 0;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all),
        argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    struct ibv_pd *other = ibv_alloc_pd(context);
    SET_UP(other);
    size_t buf_size = 4 * PAGE;
    unsigned char *buf = mmap(NULL, buf_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    size_t second_size = 4 * PAGE;
    unsigned char *second = mmap(NULL, second_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(second != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(pd, buf, buf_size, 0);
    SET_UP(mr);
    struct ibv_mr mr_old = *mr;
    int error = uverbs_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, other, second,
        second_size, IBV_ACCESS_MW_BIND);
    CHECK(!error && mr->addr == mr_old.addr && mr->length == mr_old.length &&
        mr->pd == mr_old.pd && mr->context == context,
        "uverbs REREG_MR should change what was asked, gave %d, %s", error,
        strerror(error));
    if (violations && (error == EOPNOTSUPP || error == ENOSYS))
        errx(77, "no rereg_mr");
    return violations != 0;
}
