// needs: method
#define ATTRIBUTE(id, length, value) \
    { .attr_id = id, .len = length, .flags = UVERBS_ATTR_F_MANDATORY, \
      .data = value }

static int uverbs_advise_mr(struct ibv_pd *domain, uint64_t advice,
    uint32_t flags, struct ibv_sge *list, int count)
{
    struct ib_uverbs_attr attributes[] = {
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, domain->handle),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_ADVICE, 8, advice),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_FLAGS, 4, flags),
        ATTRIBUTE(UVERBS_ATTR_ADVISE_MR_SGE_LIST, count * 16,
                  (uintptr_t)list) };

    return method(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, 4,
                  attributes);
}
