#!/bin/sh
# A run that goes on if it was cut short in OUT, and is left alone if it is whole there.
# Usage: sh ci/resumed.sh OUT [OPTION of `rdma-cts run`]...
# Exit status: 0 whatever is violated, which is said of all runs together; others as of `rdma-cts run`.
set -eu

suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
out=$1
shift
mkdir -p "$(dirname -- "$out")"

status=0
if [ -e "$out/plan.json" ]; then
    "$suite/rdma-cts" run --resume "$out" --yes --quiet || status=$?
else
    "$suite/rdma-cts" run --out "$out" --yes --quiet "$@" || status=$?
fi
[ "$status" != 1 ] || status=0
exit "$status"
