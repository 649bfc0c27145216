/* FORK-05, ibv_fork_init(3): children get the pages of an on-demand region.
 * ibv_rereg_mr protects the new range of every region, and ibv_dereg_mr does not
 * remove the protection of an on-demand region.
 * cc FILE -libverbs; 0: kept, 1: violated, 77: not supported, 2: not set up */
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
    struct ibv_mr *mr;
    unsigned char *buf;
    int status;
    pid_t child;

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
    buf = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    SET_UP(buf != MAP_FAILED);
    if (!(mr = ibv_reg_mr(pd, buf, page, IBV_ACCESS_LOCAL_WRITE |
                          IBV_ACCESS_ON_DEMAND)))
        err(77, "no region on demand");
    if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + page, page, 0))
        err(77, "no change of the translation");
    SET_UP(!(errno = ibv_dereg_mr(mr)));
    SET_UP((child = fork()) >= 0);
    if (!child)
        _exit(*(volatile unsigned char *)(buf + page) != 0);
    SET_UP(waitpid(child, &status, 0) == child);
    printf("%s: after the deregistration a child %s the page to which the "
           "region was moved\n", WIFSIGNALED(status) ? "VIOLATED" : "kept",
           WIFSIGNALED(status) ? "does not get" : "gets");
    return WIFSIGNALED(status);
}
