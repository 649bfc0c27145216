"""Re-registration of on-demand regions, of those with an hca_va, and of those with bound windows."""

from reference.objects import LOCAL_WRITE, MW_BIND

_KEPT = LOCAL_WRITE | MW_BIND
