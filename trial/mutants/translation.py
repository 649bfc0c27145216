"""hca_va: the byte that a request accesses at an iova."""

from reference.objects import Region


def _moved(region: Region) -> bool:
    """Whether the region's iova differs from the address of its memory."""
    return region.iova != region.addr
