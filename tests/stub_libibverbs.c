/* A libibverbs for tests/test_libibverbs.py. Functions that register or change a region print their arguments. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mr { void *context, *pd, *addr; size_t length; uint32_t handle, lkey, rkey; };
static struct mr made = {(void *)1, (void *)2, (void *)3, 4, 5, 6, 7};

static void *told(const char *name, void *pd, uint64_t addr, size_t length, uint64_t iova, unsigned access)
{
    printf("%s %lu %lu %lu %lu %u\n", name, (unsigned long)pd, addr, length, iova, access);
    fflush(stdout);
    if (access & 2 && !(access & 1)) { errno = EINVAL; return NULL; }
    return &made;
}
void *ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{ return told("ibv_reg_mr", pd, (uint64_t)addr, length, 0, access); }
void *ibv_reg_mr_iova(void *pd, void *addr, size_t length, uint64_t iova, int access)
{ return told("ibv_reg_mr_iova", pd, (uint64_t)addr, length, iova, access); }
void *ibv_reg_mr_iova2(void *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{ return told("ibv_reg_mr_iova2", pd, (uint64_t)addr, length, iova, access); }
void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{ printf("fd %d ", fd); return told("ibv_reg_dmabuf_mr", pd, offset, length, iova, access); }
int ibv_dereg_mr(void *mr) { errno = EPERM; return EBUSY; }
int ibv_rereg_mr(void *mr, int flags, void *pd, void *addr, size_t length, uint64_t access, void *attr)
{ printf("ibv_rereg_mr %d %lu %lu %d\n", flags, (unsigned long)pd, length, attr == NULL); fflush(stdout);
  errno = EINVAL; return flags & 8 ? -1 : -4; }
#ifdef EXPERIMENTAL
int ibv_exp_rereg_mr(void *mr, int flags, void *pd, void *addr, size_t length, uint64_t access, void *attr)
{ printf("ibv_exp_rereg_mr %d %lu %lx %d\n", flags, (unsigned long)pd, (unsigned long)access, attr == NULL);
  fflush(stdout); return EACCES; }
#endif
