#!/bin/sh
# Resumes a run that was cut short in OUT, begins one if there is none, and leaves a complete one alone. Usage: sh
# ci/resumed.sh OUT [OPTION of `rdma-cts run`]... Exit status: 0 whatever is violated, which the page or the merged run
# reports; others as for `rdma-cts run`.
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
