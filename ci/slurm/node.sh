#!/bin/sh
# The run of one node of an allocation: results go to OUT/NODE, as ci/resumed.sh says, so that a job that is requeued runs only
# what is missing.
# Usage: sh ci/slurm/node.sh OUT [OPTION of `rdma-cts run`]...
set -eu

out=$1/${SLURMD_NODENAME:?node.sh is started by srun}
shift
exec sh "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")/resumed.sh" "$out" "$@"
