/* A library with the mistakes of an unfinished driver. Tests overlay it on the guest, where every program loads it.
 * RDMA_CTS_MISTAKE names the mistake that the library makes with every region, at both entries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REMOTE_WRITE 2u
#define REMOTE_READ 4u
#define PAGE 4096u

static int mistake(const char *name)
{
	const char *chosen = getenv("RDMA_CTS_MISTAKE");

	return chosen && !strcmp(chosen, name);
}

/* Changes the registration that the kernel receives; returns an errno if the kernel must not be called. */
static int change_request(struct ib_uverbs_reg_mr *registration)
{
	if (mistake("access-0-refused") && !registration->access_flags)
		return EINVAL;
	if (mistake("no-remote-read"))
		registration->access_flags &= ~REMOTE_READ;
	if (mistake("no-remote-write"))
		registration->access_flags &= ~REMOTE_WRITE;
	if (mistake("byte-too-long"))
		registration->length += 1;
	if (mistake("page-too-long"))
		registration->length += PAGE;
	return 0;
}

/* Changes the region that the program receives. */
static void change_response(struct ib_uverbs_reg_mr_resp *response)
{
	static struct ib_uverbs_reg_mr_resp last;
	struct ib_uverbs_reg_mr_resp own = *response;

	if (mistake("keys-of-the-last")) {
		response->lkey = last.lkey;
		response->rkey = last.rkey;
	}
	last = own;
}

static const struct ib_uverbs_attr *find(const struct ib_uverbs_ioctl_hdr *header, int id)
{
	for (int number = 0; number < header->num_attrs; number++)
		if (header->attrs[number].attr_id == id)
			return &header->attrs[number];
	return NULL;
}

static int refused(int code)
{
	errno = code;
	return -1;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	const struct ib_uverbs_attr *command, *in, *out;
	struct ib_uverbs_ioctl_hdr *header;
	va_list arguments;
	int code, done;

	va_start(arguments, request);
	header = va_arg(arguments, void *);
	va_end(arguments);
	if (request != RDMA_VERBS_IOCTL)
		return real(fd, request, header);
	if (header->object_id == UVERBS_OBJECT_MR && header->method_id == UVERBS_METHOD_MR_DESTROY &&
	    mistake("no-dereg"))
		return 0;
	if (header->object_id != UVERBS_OBJECT_DEVICE || header->method_id != UVERBS_METHOD_INVOKE_WRITE)
		return real(fd, request, header);
	command = find(header, UVERBS_ATTR_WRITE_CMD);
	in = find(header, UVERBS_ATTR_CORE_IN);
	out = find(header, UVERBS_ATTR_CORE_OUT);
	if (!command || !in || !out || command->data != IB_USER_VERBS_CMD_REG_MR)
		return real(fd, request, header);
	code = change_request((void *)(uintptr_t)in->data);
	if (code)
		return refused(code);
	done = real(fd, request, header);
	if (!done)
		change_response((void *)(uintptr_t)out->data);
	return done;
}

ssize_t write(int fd, const void *data, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
	const struct ib_uverbs_cmd_hdr *header = data;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_reg_mr registration;
	} changed;
	ssize_t written;
	int code;

	if (length == sizeof(*header) + sizeof(struct ib_uverbs_dereg_mr) &&
	    header->command == IB_USER_VERBS_CMD_DEREG_MR && header->in_words * 4 == length && mistake("no-dereg"))
		return length;
	if (length != sizeof(changed) || header->command != IB_USER_VERBS_CMD_REG_MR || header->in_words * 4 != length)
		return real(fd, data, length);
	memcpy(&changed, data, length);
	code = change_request(&changed.registration);
	if (code)
		return refused(code);
	written = real(fd, &changed, length);
	if (written == (ssize_t)length)
		change_response((void *)(uintptr_t)changed.registration.response);
	return written;
}
