/* REREG-19, ibv_rereg_mr(3), RETURN VALUE: "IBV_REREG_MR_ERR_INPUT - Old MR is
 * valid, an input error was detected by libibverbs."
 * If the provider lacks the verb, the region keeps working, and the code should
 * say so. cc FILE -libverbs; 0: kept, 1: violated, 77: not supported,
 * 2: not set up */
#include <err.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))

int main(int argc, char **argv)
{
    static char buf[4096];
    struct ibv_device **all = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    int code;

    while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))
        all++;
    SET_UP(all && *all && (context = ibv_open_device(*all)));
    SET_UP(pd = ibv_alloc_pd(context));
    SET_UP(mr = ibv_reg_mr(pd, buf, sizeof(buf),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    errno = 0;
    code = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                        IBV_ACCESS_LOCAL_WRITE);
    if (!code || errno != EOPNOTSUPP)
        errx(77, "the provider has the verb: code %d, errno %d", code, errno);
    printf("%s: code %d (IBV_REREG_MR_ERR_INPUT is %d), errno %d\n",
           code == IBV_REREG_MR_ERR_INPUT ? "kept" : "VIOLATED", code,
           IBV_REREG_MR_ERR_INPUT, errno);
    return code != IBV_REREG_MR_ERR_INPUT;
}
