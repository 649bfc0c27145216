#!/bin/sh
# Resumes an interrupted run in OUT, starts a run if OUT has no run, and does nothing if the run is complete.
# Usage: sh ci/resumed.sh OUT [OPTION of `rdma-cts run`]...
# Exit status: 0 instead of 1 if rules are violated, because later the fleet's page or the merged run reports them; else
# that of `rdma-cts run`.
set -eu

case ${1-} in "" | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
out=$1
shift
mkdir -p "$(dirname -- "$out")" || exit 2 # 1 would be a violation

status=0
if [ -e "$out/plan.json" ]; then
    "$suite/rdma-cts" run --resume "$out" --yes --quiet || status=$?
else
    "$suite/rdma-cts" run --out "$out" --yes --quiet "$@" || status=$?
fi
[ "$status" != 1 ] || status=0
exit "$status"
