/* REG-25, ibv_query_device(3): max_mr_size is the "Largest contiguous block that
 * can be registered". A region of 2 GiB makes the kernel warn, once after each
 * boot: "WARNING: mm/page_alloc.c" in its log, and a bit in the taint mask.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
#define _GNU_SOURCE
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))
#define LENGTH (2ull << 30)
#define PART (2ull << 20) /* the memory, which is mapped again and again */

static unsigned long tainted(void)
{
    unsigned long value;
    FILE *file = fopen("/proc/sys/kernel/tainted", "r");

    SET_UP(file && fscanf(file, "%lu", &value) == 1 && !fclose(file));
    return value;
}

int main(int argc, char **argv)
{
    struct ibv_device **all = ibv_get_device_list(NULL);
    unsigned long before = tainted(), after;
    struct ibv_device_attr attr;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    int fd, error;
    char *buf;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(!ibv_query_device(context, &attr) && (pd = ibv_alloc_pd(context)));
    if (attr.max_mr_size < LENGTH)
        errx(77, "max_mr_size is %#llx", (unsigned long long)attr.max_mr_size);
    SET_UP((fd = memfd_create("part", 0)) >= 0 && !ftruncate(fd, PART));
    buf = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; buf != MAP_FAILED && at < LENGTH; at += PART)
        SET_UP(mmap(buf + at, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    fd, 0) != MAP_FAILED);
    mr = ibv_reg_mr(pd, buf, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    error = mr ? 0 : errno;
    after = tainted();
    printf("%s: ibv_reg_mr gave errno %d; the kernel was tainted %lu, now %lu\n",
           after == before && mr ? "kept" : "VIOLATED", error, before, after);
    return after != before || !mr;
}
