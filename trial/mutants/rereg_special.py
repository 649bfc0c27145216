"""Re-registration of on-demand regions, of regions with an hca_va, and of regions with bound windows."""

from reference.objects import LOCAL_WRITE, MW_BIND

_KEPT = LOCAL_WRITE | MW_BIND
