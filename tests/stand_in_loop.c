/* Stands in for ibv_reg_mr and ibv_dereg_mr: refuses access 2, returns a region at a shifted address for access 5, and
 * refuses to deregister a region of 99 bytes. */
#include <errno.h>
#include <stdint.h>
struct region { uint64_t context, pd, addr, length; uint32_t handle, lkey, rkey; };
static struct region made;
struct region *make(uint64_t pd, uint64_t addr, uint64_t length, uint64_t access)
{
    if (access == 2) { errno = 22; return 0; }
    made = (struct region){7, pd, addr + (access == 5), length, 1, 2, 3};
    return &made;
}
int release(struct region *region) { return region->length == 99 ? 16 : 0; }
