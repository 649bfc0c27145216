#!/bin/sh
# Tests the protection of memory by each RDMA device of this node, in seconds and beside its users (docs/health.md).
# Prints a line for each device that was tested or could not be tested. The exit status is the worst of all devices:
# 0 healthy or without a device, 1 a device violates a rule, 3 no conclusion. Results are kept only if it is not 0.
# Usage: sh ci/health/node.sh [OPTION of `rdma-cts run`]...
# With --guest, it tests the guest in place of the node's devices.
set -u

suite=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
sysfs=${RDMA_CTS_HEALTH_SYSFS:-/sys/class/infiniband}
results=$(mktemp -d "${TMPDIR:-/tmp}/rdma-cts-health.XXXXXX") || exit 3
trap 'rm -rf "${results:?}"; exit 3' HUP INT TERM # slurmd ends a health check after 60 s
status=0

tested() { # NAME OPTION...: runs the tier, and keeps the worst status
    name=$1
    shift
    line=$(HOME=${HOME:-/root} "$suite/rdma-cts" run --tier health --quiet --out "$results/$name" "$@" 2>&1)
    code=$?
    printf '%s: %s\n' "$name" "$line" | tail -n 1
    case $code in
    0) rm -rf "${results:?}/$name" ;;
    1) status=1 ;;
    *) [ "$status" = 1 ] || status=3 ;;
    esac
}

case " $* " in
*" --guest "*) tested guest "$@" ;;
*)
    for device in "$sysfs"/*; do
        # A port without a cable is no defect: the first port that transfers data is tested.
        port=$(grep -l ACTIVE "$device"/ports/*/state 2>/dev/null | sort | head -n 1)
        [ -n "$port" ] || continue
        port=$(basename "$(dirname "$port")")
        tested "$(basename "$device")" --device "$(basename "$device")" --port "$port" "$@"
    done
    ;;
esac
rmdir "$results" 2>/dev/null || echo "results: $results"
exit $status
