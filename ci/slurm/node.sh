#!/bin/sh
# The run of one node of an allocation: results go to OUT/NODE. A run that was cut short there is resumed; one that is whole
# is left as it is, so that a job that is requeued runs only what is missing.
# Usage: sh ci/slurm/node.sh OUT [OPTION of `rdma-cts run`]...
# Exit status: 0 whatever is violated, which `rdma-cts fleet OUT` says; others as of `rdma-cts run`.
set -eu

suite=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
out=$1/${SLURMD_NODENAME:?node.sh is started by srun}
shift
mkdir -p "$(dirname -- "$out")"

status=0
if [ -e "$out/summary.json" ]; then
    echo "$SLURMD_NODENAME: the run is there"
elif [ -e "$out/plan.json" ]; then
    "$suite/rdma-cts" run --resume "$out" --yes --quiet || status=$?
else
    "$suite/rdma-cts" run --out "$out" --yes --quiet "$@" || status=$?
fi
[ "$status" != 1 ] || status=0
exit "$status"
