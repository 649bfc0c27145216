/* A library that causes a regression: it adds LOCAL_WRITE to each registration with REMOTE_WRITE, so that the kernel
 * no longer refuses a registration with REMOTE_WRITE and without LOCAL_WRITE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define LOCAL_WRITE 1u
#define REMOTE_WRITE 2u

static const struct ib_uverbs_attr *find(const struct ib_uverbs_ioctl_hdr *header, int id)
{
	for (int number = 0; number < header->num_attrs; number++)
		if (header->attrs[number].attr_id == id)
			return &header->attrs[number];
	return NULL;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	const struct ib_uverbs_attr *command, *in;
	struct ib_uverbs_ioctl_hdr *header;
	va_list arguments;

	va_start(arguments, request);
	header = va_arg(arguments, void *);
	va_end(arguments);
	if (request != RDMA_VERBS_IOCTL || header->object_id != UVERBS_OBJECT_DEVICE ||
	    header->method_id != UVERBS_METHOD_INVOKE_WRITE)
		return real(fd, request, header);
	command = find(header, UVERBS_ATTR_WRITE_CMD);
	in = find(header, UVERBS_ATTR_CORE_IN);
	if (command && in && command->data == IB_USER_VERBS_CMD_REG_MR && in->len >= sizeof(struct ib_uverbs_reg_mr)) {
		struct ib_uverbs_reg_mr *asked = (void *)(uintptr_t)in->data;

		if (asked->access_flags & REMOTE_WRITE)
			asked->access_flags |= LOCAL_WRITE;
	}
	return real(fd, request, header);
}
