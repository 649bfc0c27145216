/* A library that attacks the program that loads it. The tests overlay the library on the guest, where every program
 * loads it. The size of a mapping selects the attack that the next call to uverbs starts; only the tests' own tables
 * use these sizes. The library knows the ids of cases and the path of the virtio port, but not the mark, a
 * secret with which each line of the harness begins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define AROUND 3 /* pages that conformance/device/memory.py maps around the requested memory */
#define UVERBS 0x1b
#define PORT "/dev/virtio-ports/rdma-cts.results"
#define DESCRIPTORS 1024

/* In the order of ATTACKS in tests/test_bad_driver.py. */
enum {
	FIRST = 201, EVERYWHERE = FIRST, FORGE, FORGE_ON_PORT, END, REFUSE, HOLD, BABBLE, LOOP, ABORT, KILL, KILL_PARENT, CHILD,
	ALTER, DROP, GARBAGE, LAST = GARBAGE
};
static int next, write_attack;
static char forged[1 << 14];

static ssize_t real_write(int fd, const void *data, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");

	return real(fd, data, length);
}

/* Writes a passing result of each case in RDMA_CTS_FORGED. */
static void forge(int fd)
{
	const char *names = getenv("RDMA_CTS_FORGED");
	char *copy = strdup(names ? names : ""), *name;
	size_t length = 0;

	for (name = strtok(copy, ","); name && length + 512 < sizeof(forged); name = strtok(NULL, ","))
		length += snprintf(forged + length, sizeof(forged) - length,
				   "{\"type\":\"start\",\"case\":\"%s\"}\n"
				   "{\"type\":\"result\",\"case\":\"%s\",\"rules\":[\"REG-01\"],\"level\":\"must\","
				   "\"verdict\":\"PASS\",\"effective\":\"PASS\",\"waiver\":null,\"reason\":\"forged\","
				   "\"observed\":{\"returned\":\"MR\",\"errno\":\"\",\"rc\":null},\"kernel\":{},"
				   "\"duration_us\":1}\n", name, name);
	free(copy);
	if (real_write(fd, forged, length) < 0)
		return;
}

static void say_on_port(const char *text)
{
	int fd = open(PORT, O_WRONLY);

	if (fd < 0 || real_write(fd, text, strlen(text)) < 0)
		_exit(17);
	close(fd);
}

static void *babble(void *unused)
{
	static char text[1 << 12];
	int number;

	(void)unused;
	memset(text, 'x', sizeof(text));
	for (number = 0; number < 256; number++)
		if (real_write(1, text, sizeof(text)) < 0)
			break;
	return NULL;
}

static void attack(int what)
{
	int fd;
	pthread_t thread;

	switch (what) {
	case EVERYWHERE:
	case FORGE:
		for (fd = 3; fd < DESCRIPTORS; fd++)
			if (fcntl(fd, F_GETFL) >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
				forge(fd);
		if (what == FORGE)
			_exit(0);
		break;
	case FORGE_ON_PORT:
		fd = open(PORT, O_WRONLY);
		forge(fd);
		_exit(0);
	case END:
		say_on_port("{\"type\":\"guest\",\"event\":\"exit\",\"status\":0}\n");
		break;
	case REFUSE:
		say_on_port("{\"type\":\"guest\",\"event\":\"broken\",\"reason\":\"forged\"}\n");
		_exit(0);
	case HOLD:
		if (open(PORT, O_WRONLY) < 0)
			_exit(18);
		break;
	case BABBLE:
		pthread_create(&thread, NULL, babble, NULL);
		break;
	case LOOP:
		for (;;)
			;
	case ABORT:
		abort();
	case KILL:
		kill(getpid(), SIGKILL);
		break;
	case KILL_PARENT:
		kill(getppid(), SIGKILL);
		break;
	case CHILD:
		if (!fork()) {
			for (fd = 0; fd < 20; fd++) {
				forge(open(PORT, O_WRONLY));
				usleep(100000);
			}
			_exit(0);
		}
		_exit(0);
	default:
		write_attack = what;
	}
}

/* Changes, damages or drops one result that the harness writes to the port. */
ssize_t write(int fd, const void *data, size_t length)
{
	char *copy, *verdict;
	ssize_t written;

	if (!write_attack || length < 64 || !memmem(data, length, "\"type\":\"result\"", 15))
		return real_write(fd, data, length);
	copy = malloc(length + 1);
	memcpy(copy, data, length);
	copy[length] = 0;
	if (write_attack == ALTER)
		while ((verdict = strstr(copy, "\":\"FAIL\"")))
			memcpy(verdict + 3, "PASS", 4);
	else if (write_attack == GARBAGE)
		memset(copy + length / 2, '{', length / 4);
	written = write_attack == DROP ? (ssize_t)length : real_write(fd, copy, length);
	write_attack = 0;
	free(copy);
	return written;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
	size_t pages = length / PAGE - AROUND;

	if (!address && pages >= FIRST && pages <= LAST && length % PAGE == 0)
		next = pages;
	return real(address, length, protection, flags, fd, offset);
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list arguments;
	void *argument;
	int what = next;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) == UVERBS && what) {
		next = 0;
		attack(what);
	}
	return real(fd, request, argument);
}
