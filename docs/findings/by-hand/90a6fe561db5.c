/* QMR-01, rdma/ib_user_ioctl_cmds.h: UVERBS_METHOD_QUERY_MR tells lkey, rkey,
 * length and iova of a region. Of one of UVERBS_METHOD_REG_MR, which is what
 * ibv_reg_mr_ex calls, the kernel tells neither length nor iova. It needs
 * rdma-core 59 and rxe: the command contains the driver's number.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    static char buf[16384];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_mr_init_attr attr = { .length = sizeof(buf), .addr = buf,
        .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = 2 /* the address */ };
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    uint32_t lkey = 0, rkey = 0;
    uint64_t length = 0, iova = 0;
    struct { struct ib_uverbs_ioctl_hdr head;
             struct ib_uverbs_attr attrs[5]; } query = { .head = {
        .length = sizeof(query), .object_id = UVERBS_OBJECT_MR,
        .method_id = UVERBS_METHOD_QUERY_MR, .num_attrs = 5,
        .driver_id = RDMA_DRIVER_RXE } };
    void *answers[] = { NULL, &lkey, &rkey, &length, &iova };
    const int sizes[] = { 0, 4, 4, 8, 8 };
    int kept;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    if (!(mr = ibv_reg_mr_ex(pd, &attr)))
        err(77, "no ibv_reg_mr_ex");
    for (int i = 0; i < 5; i++) { /* the attributes stand in this order */
        query.attrs[i].attr_id = UVERBS_ATTR_QUERY_MR_HANDLE + i;
        query.attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
        query.attrs[i].len = sizes[i];
        query.attrs[i].data = i ? (uintptr_t)answers[i] : mr->handle;
    }
    if (ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &query))
        err(77, "no UVERBS_METHOD_QUERY_MR");
    kept = lkey == mr->lkey && rkey == mr->rkey && length == sizeof(buf) &&
        iova == (uintptr_t)buf;
    printf("%s: lkey %#x, rkey %#x, length %#llx, iova %#llx; "
           "registered: lkey %#x, rkey %#x, length %#zx, address %p\n",
           kept ? "kept" : "VIOLATED", lkey, rkey, (unsigned long long)length,
           (unsigned long long)iova, mr->lkey, mr->rkey, sizeof(buf), buf);
    return !kept;
}
