// needs: <fcntl.h> <linux/udmabuf.h> <sys/ioctl.h> <sys/mman.h> <unistd.h>
/* The descriptor of a new dma-buf of anonymous memory. */
static int udmabuf(size_t bytes)
{
    int device = open("/dev/udmabuf", O_RDWR), made;
    struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC,
        .memfd = memfd_create("repro", MFD_ALLOW_SEALING),
        .size = bytes };

    SET_UP(device >= 0 && !ftruncate(create.memfd, bytes));
    SET_UP(!fcntl(create.memfd, F_ADD_SEALS, F_SEAL_SHRINK));
    SET_UP((made = ioctl(device, UDMABUF_CREATE, &create)) >= 0);
    return made;
}
