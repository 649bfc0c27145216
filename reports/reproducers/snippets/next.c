// needs: <unistd.h>
@wc static struct ibv_wc wc; /* the last completion */
@wc 
/* The status of the next completion; NONE if there is none in 10 s. */
static int next(struct ibv_cq *cq)
{
@!wc     struct ibv_wc wc = { .status = NONE };
@!wc 
@wc     wc.status = NONE;
    for (int i = 0; i < 10000 && !ibv_poll_cq(cq, 1, &wc); i++)
        usleep(1000);
    return wc.status;
}
