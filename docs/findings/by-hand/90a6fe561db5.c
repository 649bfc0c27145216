/* QMR-01, rdma/ib_user_ioctl_cmds.h: UVERBS_METHOD_QUERY_MR reports lkey, rkey,
 * length and iova of a region. For a region of UVERBS_METHOD_REG_MR the kernel
 * reports neither length nor iova. The program is for rxe, because the command
 * contains the number of the driver.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

/* An attribute of a command: a number or an address, or a handle. */
static struct ib_uverbs_attr attr(int id, int length, uint64_t data)
{
    return (struct ib_uverbs_attr){ .attr_id = id, .len = length,
        .flags = UVERBS_ATTR_F_MANDATORY, .data = data };
}

/* UVERBS_METHOD_REG_MR, with the address as the iova; 0, or errno. */
static int reg_mr(struct ibv_pd *pd, void *addr, uint64_t length, int access,
                  uint32_t *handle, uint32_t *lkey, uint32_t *rkey)
{
    uint64_t at = (uintptr_t)addr;
    struct { struct ib_uverbs_ioctl_hdr head; struct ib_uverbs_attr a[8]; }
    command = { { .length = sizeof(command), .object_id = UVERBS_OBJECT_MR,
                  .method_id = 5 /* UVERBS_METHOD_REG_MR */, .num_attrs = 8,
                  .driver_id = RDMA_DRIVER_RXE },
                { attr(0, 0, 0), attr(1, 0, pd->handle), attr(3, 8, at),
                  attr(4, 8, at), attr(5, 8, length), attr(6, 4, access),
                  attr(9, 4, (uintptr_t)lkey), attr(10, 4, (uintptr_t)rkey) } };

    if (ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &command))
        return errno;
    *handle = command.a[0].data;
    return 0;
}

int main(int argc, char **argv)
{
    static char buf[16384];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t handle, lkey, rkey, told_lkey = 0, told_rkey = 0;
    uint64_t length = 0, iova = 0;
    int kept;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    if ((errno = reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE, &handle,
                        &lkey, &rkey)))
        err(77, "no UVERBS_METHOD_REG_MR");
    struct { struct ib_uverbs_ioctl_hdr head; struct ib_uverbs_attr a[5]; }
    query = { { .length = sizeof(query), .object_id = UVERBS_OBJECT_MR,
                .method_id = UVERBS_METHOD_QUERY_MR, .num_attrs = 5,
                .driver_id = RDMA_DRIVER_RXE },
              { attr(0, 0, handle), attr(1, 4, (uintptr_t)&told_lkey),
                attr(2, 4, (uintptr_t)&told_rkey),
                attr(3, 8, (uintptr_t)&length), attr(4, 8, (uintptr_t)&iova) } };
    SET_UP(!ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &query));
    kept = told_lkey == lkey && told_rkey == rkey && length == sizeof(buf) &&
        iova == (uintptr_t)buf;
    printf("%s: told lkey %#x, rkey %#x, length %#llx, iova %#llx; "
           "registered: lkey %#x, rkey %#x, length %#zx, address %p\n",
           kept ? "kept" : "VIOLATED", told_lkey, told_rkey,
           (unsigned long long)length, (unsigned long long)iova, lkey, rkey,
           sizeof(buf), (void *)buf);
    return !kept;
}
