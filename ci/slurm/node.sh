#!/bin/sh
# Runs the cases on one node of an allocation. The results are in OUT/NODE. A requeued job runs only the missing cases
# (see ci/resumed.sh).
# Usage: sh ci/slurm/node.sh OUT [OPTION of `rdma-cts run`]...
set -eu

case ${1-} in "" | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
out=$1/${SLURMD_NODENAME:?start node.sh with srun}
shift
exec sh "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")/resumed.sh" "$out" "$@"
