"""hca_va: the byte that an address by key reaches."""

from reference.objects import Region


def _moved(region: Region) -> bool:
    """Whether keys have other addresses than this process."""
    return region.iova != region.addr
