/* FORK-04, ibv_fork_init(3): after a registration that failed, children get all
 * pages again. For memory with a hole, which madvise(2) refuses in part, the
 * library does not remove the protection.
 * cc FILE -libverbs; 0: kept, 1: violated, 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    size_t page = sysconf(_SC_PAGESIZE);
    struct rlimit usual, none;
    struct ibv_device **all;
    struct ibv_context *context;
    struct ibv_pd *pd;
    unsigned char *buf;
    int violated = 0;

    /* libibverbs protects the ranges itself if it cannot ask the kernel
     * whether it copies on fork: asking needs a new descriptor. */
    SET_UP(!getrlimit(RLIMIT_NOFILE, &usual));
    none = usual, none.rlim_cur = 0;
    SET_UP(!setrlimit(RLIMIT_NOFILE, &none));
    SET_UP(!(errno = ibv_fork_init()));
    SET_UP(!setrlimit(RLIMIT_NOFILE, &usual));
    all = ibv_get_device_list(NULL);
    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    buf = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    SET_UP(!munmap(buf + page, page)); /* the second page is a hole */
    if (ibv_reg_mr(pd, buf, 4 * page, IBV_ACCESS_LOCAL_WRITE))
        errx(2, "memory with a hole was registered");
    for (int at = 0; at < 4; at += at ? 1 : 2) {
        int status;
        pid_t child = fork();

        SET_UP(child >= 0);
        if (!child)
            _exit(*(volatile unsigned char *)(buf + at * page) != 0);
        SET_UP(waitpid(child, &status, 0) == child);
        violated |= WIFSIGNALED(status);
        printf("%s: page %d: a child %s it\n",
               WIFSIGNALED(status) ? "VIOLATED" : "kept", at,
               WIFSIGNALED(status) ? "does not get" : "gets");
    }
    return violated;
}
