// needs: <stdlib.h>
/* Two queue pairs: the tested queue pair, of `domain`, and its peer. */
static struct ibv_qp **parts(struct ibv_pd *domain, int all)
{
    struct ibv_qp_init_attr init = { .cap = { 16, 16, 3, 3, 0 },
@rc         .qp_type = IBV_QPT_RC, .sq_sig_all = all };
@uc         .qp_type = IBV_QPT_UC, .sq_sig_all = all };
    struct ibv_qp **two = calloc(2, sizeof(*two));

    for (int i = 0; i < 2; i++) {
        init.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
        init.recv_cq = init.send_cq;
        SET_UP(two[i] = ibv_create_qp(i ? pd : domain, &init));
    }
    return two;
}
