/*
 * The lower bound for the time of a sweep: a program that only makes the same calls as a sweep of sweep_inside.py, in
 * the same order. It registers memory with every subset of some access flags, each with several lengths, reads the
 * region, deregisters it, and keeps the errno of each call; nothing is judged. Prints microseconds per point.
 *
 *     floor FIXED LENGTHS OFFSETS FLAG [FLAG...]
 *
 * FIXED and each FLAG are masks; all points have FIXED. Lengths count down from 3 pages, offsets count up from 0.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGES = 4, PAGE = 4096 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    unsigned fixed = count > 4 ? (unsigned)strtoul(words[1], 0, 0) : 0, flags = count > 4 ? (unsigned)count - 4 : 0;
    unsigned long lengths = count > 4 ? strtoul(words[2], 0, 0) : 0, offsets = count > 4 ? strtoul(words[3], 0, 0) : 0;
    unsigned long points = (1ul << flags) * lengths * offsets, value, i, at = 0;
    uint16_t *codes = calloc(points + 1, sizeof *codes);
    struct ibv_device **devices = ibv_get_device_list(0);
    struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : 0;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : 0;
    char *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double start;

    if (!pd || !points || !codes || memory == (char *)MAP_FAILED)
        return 1;
    memset(memory, 1, PAGES * PAGE);
    start = now();
    for (value = 0; value < 1ul << flags; ++value) {
        unsigned access = fixed, bit;
        for (bit = 0; bit < flags; ++bit)
            if (value >> bit & 1)
                access |= (unsigned)strtoul(words[4 + bit], 0, 0);
        for (i = 0; i < lengths * offsets; ++i, ++at) {
            char *addr = memory + i % offsets;
            size_t length = 3 * PAGE - i / offsets;
            struct ibv_mr *mr;

            errno = 0;
            mr = ibv_reg_mr(pd, addr, length, access);
            if (!mr) {
                codes[at] = (uint16_t)(errno + 1);
                continue;
            }
            if (mr->context != context || mr->pd != pd || mr->addr != addr || mr->length != length ||
                !(mr->handle | mr->lkey | mr->rkey) || ibv_dereg_mr(mr))
                return 2;
        }
    }
    printf("%f\n", (now() - start) / points * 1e6);
    return 0;
}
