// needs: method <string.h>
#define ATTRIBUTE(id, length, value) \
    { .attr_id = id, .len = length, .flags = UVERBS_ATTR_F_MANDATORY, \
      .data = value }

/* The kernel copies the first four bytes of the data, in every byte order. */
static uint64_t in_first_bytes(uint32_t number)
{
    uint64_t data = 0;

    memcpy(&data, &number, sizeof number);
    return data;
}

static int uverbs_advise_mr(struct ibv_pd *domain, uint64_t advice,
    uint32_t flags, struct ibv_sge *list, int count)
{
    struct ib_uverbs_attr attributes[] = {
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, domain->handle),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_ADVICE, 8, advice),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_FLAGS, 4, in_first_bytes(flags)),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_SGE_LIST, count * 16,
                  (uintptr_t)list) };

    return method(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, 4,
                  attributes);
}
