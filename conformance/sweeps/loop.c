/*
 * Registers and deregisters memory at many points, in C because a call from Python to C takes longer than the verb
 * itself. The caller passes the functions of the libibverbs that the process has loaded; all arguments are integers or
 * pointers. This file needs only the headers and the library of C; therefore it defines the commands of the kernel's
 * ABI itself, like device/uverbs.py.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ARGUMENTS = 6, DONE = 0, UNEXPECTED = 1, NOT_RELEASED = 2 };
/* A re-registration adds the library's code to errno, or SETUP if the old region was not registered or not released. */
enum { CODE_SHIFT = 12, SETUP = 0x8000 };

/* The public fields of struct ibv_mr. */
struct region {
    uint64_t context, pd, addr, length;
    uint32_t handle, lkey, rkey;
};

typedef struct region *(*make_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef int (*release_function)(struct region *);

/* A value for each point (`step` is 1), or one value for all points (`step` is 0). */
struct column {
    const uint64_t *values;
    uint64_t step;
};

struct call {
    make_function make;
    struct column arguments[ARGUMENTS];
};

struct loop {
    struct call plain, optional; /* `optional` is for points whose access has a bit of `optional_mask` */
    struct column access;
    uint64_t optional_mask;
    release_function release;
    uint64_t context; /* `context`, `pd`, `addr` and `length` are the values that are expected in a region */
    struct column pd, addr, length;
    uint16_t *codes;       /* for each point, 0 if the region is as requested, or errno + 1 if there is no region */
    struct region *region; /* an unexpected region, which the caller must release */
    int error;             /* the result of releasing a region */
};

static uint64_t at(const struct column *column, uint64_t i) { return column->values[i * column->step]; }

/* Runs the points from *i to n. Stops at the point *i if its region is unexpected or was not released. */
int rdma_cts_loop(struct loop *loop, uint64_t *i, uint64_t n)
{
    for (; *i < n; ++*i) {
        const struct call *call = at(&loop->access, *i) & loop->optional_mask ? &loop->optional : &loop->plain;
        const struct column *a = call->arguments;
        struct region *region;

        errno = 0;
        region = call->make(at(a, *i), at(a + 1, *i), at(a + 2, *i), at(a + 3, *i), at(a + 4, *i), at(a + 5, *i));
        if (!region) {
            loop->codes[*i] = (uint16_t)(errno + 1);
            continue;
        }
        if (region->context != loop->context || region->pd != at(&loop->pd, *i) || region->addr != at(&loop->addr, *i) ||
            region->length != at(&loop->length, *i) || !(region->handle | region->lkey | region->rkey)) {
            loop->region = region;
            return UNEXPECTED;
        }
        loop->codes[*i] = 0;
        loop->error = loop->release(region);
        if (loop->error)
            return NOT_RELEASED;
    }
    return DONE;
}

/*
 * An open uverbs file descriptor, with space for the only region that is registered on it at a time. The region is the
 * first member; therefore a pointer to the region is also a pointer to the descriptor.
 */
struct descriptor {
    struct region region;
    int32_t fd;
    uint32_t driver; /* enum rdma_driver_id */
};

struct header {
    uint32_t command;
    uint16_t in_words, out_words;
};

struct region *rdma_cts_write_reg(struct descriptor *on, uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova,
                                  uint64_t access)
{
    uint32_t answer[3] = {0};
    struct {
        struct header header;
        uint64_t response, start, length, hca_va;
        uint32_t pd_handle, access_flags;
    } command = {{9, sizeof command / 4, 3}, (uintptr_t)answer, addr, length, iova, (uint32_t)pd, (uint32_t)access};

    if (write(on->fd, &command, sizeof command) < 0)
        return 0;
    on->region = (struct region){0, 0, addr, length, answer[0], answer[1], answer[2]};
    return &on->region;
}

/* struct ibv_mr_init_attr, and two values of its comp_mask. */
struct init_attr {
    uint64_t length;
    uint32_t access;
    uint64_t comp_mask, iova, addr;
    int32_t fd;
    uint64_t fd_offset, dmah, buf;
};
enum { BY_IOVA = 1, BY_ADDR = 2 };
typedef struct region *(*extended_function)(uint64_t, const struct init_attr *);

/* Registers like ibv_reg_mr, but calls ibv_reg_mr_ex, whose address is `make`. */
struct region *rdma_cts_ex_reg_mr(uint64_t make, uint64_t pd, uint64_t addr, uint64_t length, uint64_t access)
{
    const struct init_attr attr = {.length = length, .access = (uint32_t)access, .comp_mask = BY_ADDR, .addr = addr};

    return ((extended_function)(uintptr_t)make)(pd, &attr);
}

/* Registers like ibv_reg_mr_iova, but calls ibv_reg_mr_ex, whose address is `make`. */
struct region *rdma_cts_ex_reg_mr_iova(uint64_t make, uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova,
                                       uint64_t access)
{
    const struct init_attr attr = {.length = length, .access = (uint32_t)access, .comp_mask = BY_ADDR | BY_IOVA,
                                   .iova = iova, .addr = addr};

    return ((extended_function)(uintptr_t)make)(pd, &attr);
}

/* `region` must be the first member of a descriptor. */
int rdma_cts_write_dereg(struct region *region)
{
    const struct descriptor *on = (const struct descriptor *)region;
    struct {
        struct header header;
        uint32_t handle;
    } command = {{13, sizeof command / 4, 0}, region->handle};

    return write(on->fd, &command, sizeof command) < 0 ? errno : 0;
}

struct attribute {
    uint16_t id, length, flags, reserved;
    uint64_t data;
};

/* Returns the field of an attribute for a value of four bytes: the kernel reads the first bytes of the field. */
static uint64_t four_bytes(uint32_t value)
{
    uint64_t field = 0;

    memcpy(&field, &value, sizeof value);
    return field;
}

/* UVERBS_METHOD_REG_DMABUF_MR. `pd_dmabuf` has the PD in the lower 32 bits, and the dma-buf's descriptor in the upper. */
struct region *rdma_cts_ioctl_reg_dmabuf(struct descriptor *on, uint64_t pd_dmabuf, uint64_t offset, uint64_t length,
                                         uint64_t iova, uint64_t access)
{
    uint32_t lkey = 0, rkey = 0;
    struct {
        uint16_t length, object, method, count;
        uint64_t reserved;
        uint32_t driver, reserved_too;
        struct attribute attributes[9];
    } command = {sizeof command, 7, 4, 9, 0, on->driver, 0,
                 {{0, 0, 1, 0, 0}, {1, 0, 1, 0, (uint32_t)pd_dmabuf}, {2, 8, 1, 0, offset}, {3, 8, 1, 0, length},
                  {4, 8, 1, 0, iova}, {5, 4, 1, 0, four_bytes(pd_dmabuf >> 32)}, {6, 4, 1, 0, four_bytes(access)},
                  {7, 4, 1, 0, (uintptr_t)&lkey}, {8, 4, 1, 0, (uintptr_t)&rkey}}};

    if (ioctl(on->fd, 0xC0181B01u, &command) < 0)
        return 0;
    on->region = (struct region){0, 0, offset, length, (uint32_t)command.attributes[0].data, lkey, rkey};
    return &on->region;
}

/* The data that all re-registrations of a group share, and the functions of the library. */
struct before {
    struct descriptor *on; /* only for the kernel's ABI */
    uint64_t pd, addr, length;
    struct region *(*reg)(uint64_t pd, uint64_t addr, uint64_t length, uint64_t access);
    struct region *(*reg_optional)(uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova, uint64_t access);
    int (*rereg)(struct region *, uint64_t flags, uint64_t pd, uint64_t addr, uint64_t length, uint64_t access);
    int (*dereg)(struct region *);
    uint64_t optional_mask;
};

/* The layout, for comparison with native.py: the number of values, and then the values in the order of LAYOUT. */
const uint32_t rdma_cts_layout[] = {
    11,
    sizeof(struct column),
    sizeof(struct call),
    sizeof(struct loop),
    offsetof(struct loop, release),
    offsetof(struct loop, codes),
    offsetof(struct loop, error),
    sizeof(struct region),
    sizeof(struct descriptor),
    offsetof(struct descriptor, fd),
    sizeof(struct before),
    offsetof(struct before, optional_mask),
};

static struct region *failed(int error, int release_error)
{
    errno = release_error ? SETUP | release_error : error;
    return 0;
}

/* Registers and re-registers; returns the region. `range` is the new address and length. */
struct region *rdma_cts_rereg(const struct before *before, uint64_t old_access, uint64_t flags, uint64_t pd,
                              const uint64_t *range, uint64_t access)
{
    struct region *region = old_access & before->optional_mask
                                ? before->reg_optional(before->pd, before->addr, before->length, before->addr, old_access)
                                : before->reg(before->pd, before->addr, before->length, old_access);
    int code, error;

    if (!region)
        return failed(SETUP | errno, 0);
    errno = 0;
    code = before->rereg(region, flags, pd, range[0], range[1], access);
    error = errno;
    return code ? failed((-code & 7) << CODE_SHIFT | error, before->dereg(region)) : region;
}

/* Registers and re-registers by the kernel's ABI, which returns only the keys and no code of its own. */
struct region *rdma_cts_write_rereg(const struct before *before, uint64_t old_access, uint64_t flags, uint64_t pd,
                                    const uint64_t *range, uint64_t access)
{
    uint32_t answer[2] = {0};
    struct {
        struct header header;
        uint64_t response;
        uint32_t handle, flags;
        uint64_t start, length, hca_va;
        uint32_t pd_handle, access_flags;
    } command = {{11, sizeof command / 4, 2}, (uintptr_t)answer, 0, (uint32_t)flags, range[0], range[1], range[0],
                 (uint32_t)pd, (uint32_t)access};

    if (!rdma_cts_write_reg(before->on, before->pd, before->addr, before->length, before->addr, old_access))
        return failed(SETUP | errno, 0);
    command.handle = before->on->region.handle;
    if (write(before->on->fd, &command, sizeof command) < 0) {
        int error = errno;
        return failed(error, rdma_cts_write_dereg(&before->on->region));
    }
    before->on->region.lkey = answer[0];
    before->on->region.rkey = answer[1];
    return &before->on->region;
}
