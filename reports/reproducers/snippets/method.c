// needs: <rdma/rdma_user_ioctl_cmds.h> <rdma/ib_user_ioctl_cmds.h> <sys/ioctl.h>
/* Calls a method of the kernel's ABI. First finds the driver's number,
 * with an object that does not exist: a wrong number gives EINVAL. */
static int method(int object, int number, int count,
                  const struct ib_uverbs_attr *attributes)
{
    struct { struct ib_uverbs_ioctl_hdr header;
             struct ib_uverbs_attr attributes[9]; } call = { {
        .length = sizeof(call.header), .object_id = 0xfff } };

    while (call.header.driver_id < 64 &&
           ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) &&
           errno == EINVAL)
        call.header.driver_id++;
    memcpy(call.attributes, attributes, count * sizeof(*attributes));
    call.header.object_id = object;
    call.header.method_id = number;
    call.header.num_attrs = count;
    call.header.length += count * sizeof(*attributes);
    return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) ? errno : 0;
}
