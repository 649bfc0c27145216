// needs: <sys/mman.h>
/* Pages that were never accessed, between inaccessible pages. */
static unsigned char *memory(size_t bytes)
{
    unsigned char *addr = mmap(NULL, bytes + 3 * PAGE, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    SET_UP(addr != MAP_FAILED);
    SET_UP(!mprotect(addr + PAGE, bytes, PROT_READ | PROT_WRITE));
    return addr + PAGE;
}
