/*
 * The floor of a sweep: registers and deregisters memory at every combination of access flags, or with one
 * combination as many times, and does nothing else. Prints microseconds a point.
 *
 *     floor all|ACCESS POINTS
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    int all = count > 2 && !strcmp(words[1], "all");
    unsigned long points = count > 2 ? strtoul(words[2], 0, 0) : 0, i;
    unsigned fixed = all || count < 3 ? 0 : (unsigned)strtoul(words[1], 0, 0);
    struct ibv_device **devices = ibv_get_device_list(0);
    struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : 0;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : 0;
    size_t length = 4 * 4096;
    void *memory = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double start;

    if (!pd || memory == MAP_FAILED)
        return 1;
    memset(memory, 1, length);
    start = now();
    for (i = 0; i < points; ++i) {
        unsigned value = i & 2047, access = all ? (value & 0x3ff) | (value >> 10) << 20 : fixed;
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, access);
        if (mr)
            ibv_dereg_mr(mr);
    }
    printf("%f\n", (now() - start) / points * 1e6);
    return 0;
}
