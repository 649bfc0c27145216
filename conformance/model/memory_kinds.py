"""The kinds of memory and of dma-bufs that a table can set up, and what can become of their pages."""

from __future__ import annotations

SPARSE = "sparse"
MEMORY_KINDS = {
    "anonymous": "private anonymous memory, readable and writable",
    "read_only": "private anonymous memory mapped without write permission",
    "writable_start": "private anonymous memory of which only the first page is mapped with write permission",
    "no_access": "address range mapped without any permission",
    "unmapped": "address range with no mapping",
    "untouched": "private anonymous memory whose pages have not been accessed yet",
    "hole": "readable and writable memory whose second page is unmapped",
    "shared": "shared memory of an anonymous file, readable and writable",
    SPARSE: "private anonymous memory of any size, without reserved pages; no page has been accessed yet",
    "repeated": "a shared file of 1031 pages, mapped repeatedly, so that more bytes can be pinned than the file has",
    "huge": "memory of huge pages of the system's default size",
    "partly_huge": "memory whose first bytes are a huge page, and whose other pages are ordinary ones",
    "transparent": "private anonymous memory of which at least a part is a transparent huge page",
    "locked": "private anonymous memory, locked by mlock",
    "file": "a shared mapping of a file in the directory for temporary files",
    "secret": "a shared mapping of memfd_secret, which the kernel itself does not map",
    "clock": "the page from which this process reads the time: read-only page frames without a struct page",
    "bar": "a BAR of QEMU's pci-testdev: page frames of a device, without a struct page",
    "persistent": "persistent memory: the device DAX in RDMA_CTS_PMEM",
    "partly_persistent": "persistent memory between two ordinary pages, the first and the last",
}
# Kinds of memory of which this process cannot write all bytes.
NOT_WRITABLE = ("read_only", "writable_start", "no_access", "unmapped", "hole", "clock")
DMABUF_KINDS = {
    "udmabuf": "a dma-buf that /dev/udmabuf creates from the pages of an anonymous file",
    "system_heap": "a dma-buf of /dev/dma_heap/system",
    "movable": "a dma-buf of the suite's own exporter, which can move and be revoked",
}
# Advice of madvise(2) that removes pages from memory.
DISCARDS = {
    "DONTNEED": "anonymous pages are freed and their contents are lost",
    "REMOVE": "pages of an anonymous file are freed together with the contents of the file",
    "PAGEOUT": "pages are written to swap",
}
# The conditions on pages of memory that `resident` can check.
PAGES = {
    "present": "each page is in core; it may be the shared page of zeros",
    "own": "each page is a private page of the process, as after a write by the process",
}
