/* A library that adds defects to a correct driver. The tests overlay it on the guest, where every program loads it.
 * The size of requested memory selects a defect: PANIC to WARN pages, what happens at the next call to uverbs, or with
 * LEAK at the next deregistration; LOSE pages, that the next completion is lost. Only the tests' own tables use these
 * sizes. RDMA_CTS_PANIC_AT=N makes the kernel panic when the Nth window is deallocated. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul
#define AROUND 3 /* pages that conformance/device/memory.py maps around the requested memory */
#define UVERBS 0x1b
#define OBJECT_MR 7
#define METHOD_DESTROY 1
#define OBJECT_MW 8
#define METHOD_MW_DESTROY 0

enum { NOTHING, PANIC = 101, HANG, LEAK, DIE, WARN, LOSE };
static int next = NOTHING;
static void *place;
static size_t size;
static int windows;

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
	void *mapped = real(address, length, protection, flags, fd, offset);
	size_t pages = length / PAGE - AROUND;

	if (!address && pages >= PANIC && pages <= LOSE && length % PAGE == 0) {
		next = pages;
		place = mapped;
		size = length;
	}
	return mapped;
}

static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);

static int poll(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	int found = real_poll(cq, entries, wc);

	if (next != LOSE || found <= 0)
		return found;
	next = NOTHING;
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	/* Python's bindings load the library with RTLD_LOCAL, so that RTLD_NEXT does not find it. */
	void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct ibv_cq *(*real)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int) =
		dlsym(library, "ibv_create_cq");

	if (context->ops.poll_cq != poll) {
		real_poll = context->ops.poll_cq;
		context->ops.poll_cq = poll;
	}
	return real(context, entries, cq_context, channel, vector);
}

static void put(const char *path, const char *text, size_t length)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, length) < 0)
		_exit(17);
	close(fd);
}

static void guard(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	range.range.start = (uintptr_t)place;
	range.range.len = size;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || madvise(place, size, MADV_DONTNEED) ||
	    ioctl(fd, UFFDIO_REGISTER, &range))
		_exit(18);
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list arguments;
	uint16_t *header;

	va_start(arguments, request);
	header = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) == UVERBS && header[1] == OBJECT_MW && header[2] == METHOD_MW_DESTROY) {
		const char *at = getenv("RDMA_CTS_PANIC_AT");

		if (at && ++windows == atoi(at))
			put("/proc/sysrq-trigger", "c", 1);
	}
	if (_IOC_TYPE(request) != UVERBS || next == NOTHING)
		return real(fd, request, header);
	if (next == LEAK) { /* the next deregistration only seems to succeed */
		if (header[1] == OBJECT_MR && header[2] == METHOD_DESTROY) {
			next = NOTHING;
			return 0;
		}
	} else if (next == PANIC) {
		put("/proc/sysrq-trigger", "c", 1);
	} else if (next == DIE) {
		*(volatile int *)0 = 0;
	} else if (next == WARN) {
		next = NOTHING;
		put("/proc/sys/kernel/tainted", "512", 3);
	} else if (next == HANG) {
		next = NOTHING;
		guard();
	}
	return real(fd, request, header);
}
