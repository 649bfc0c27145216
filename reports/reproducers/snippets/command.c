// needs: <rdma/ib_user_verbs.h> <stdlib.h> <unistd.h>
/* Writes a command of the kernel's ABI. */
static int command(int number, size_t size, size_t answer, void *body)
{
    struct ib_uverbs_cmd_hdr *header = body;

    header->command = number;
    header->in_words = size / 4;
    header->out_words = answer / 4;
    return write(context->cmd_fd, body, size) < 0 ? errno : 0;
}
