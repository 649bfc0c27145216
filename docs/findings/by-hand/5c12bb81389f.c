/* BIND-16, ibv_alloc_mw(3), DESCRIPTION: "Once bound, the memory window allows
 * RDMA (remote) access to a subset of the MR to which it was bound, until
 * invalidated by: [...] deallocation." READs in flight continue after the
 * deallocation.
 * cc FILE -libverbs; 0: not seen, 1: violated, 77: not supported, 2: not set up */
#define DEALLOCATED
#include "958a64a75930.c"
