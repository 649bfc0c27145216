#!/bin/sh
# Tests the protection of memory by each RDMA device of this node, in seconds and beside its users (docs/health.md). The
# devices are tested at the same time. Prints a line for each device that was tested or could not be tested. The exit
# status is the worst of all devices: 0 healthy or without a device, 1 a device violates a rule, 3 no conclusion: a device
# could not be tested, or the script was ended before. Results are kept only if it is not 0.
# Usage: sh ci/health/node.sh [OPTION of `rdma-cts run`]...
# With --guest, it tests the guest in place of the node's devices.
set -u

case ${1-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
suite=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
sysfs=${RDMA_CTS_HEALTH_SYSFS:-/sys/class/infiniband}
results=$(mktemp -d "${TMPDIR:-/tmp}/rdma-cts-health.XXXXXX") || exit 3
begun=

tested() { # NAME OPTION...: runs the tier in the background
    name=$1
    shift
    : >"$results/.$name.said"
    {
        HOME=${HOME:-/root} "$suite/rdma-cts" run --tier health --quiet --out "$results/$name" "$@" \
            >"$results/.$name.said" 2>&1 &
        run=$!
        trap 'kill $run' TERM
        wait $run
        echo $? >"$results/.$name.status"
    } &
    begun="$begun $!"
}

concluded() { # prints the lines, keeps what a reader needs, and ends with the worst status
    status=0
    for said in "$results"/.*.said; do # a name of a device can have blanks
        [ -e "$said" ] || continue
        name=${said##*/.}
        name=${name%.said}
        code=$(cat "$results/.$name.status" 2>/dev/null) || code=
        line=$(tail -n 1 "$said")
        printf '%s: %s\n' "$(printf %s "$name" | tr '\n' '?')" "${line:-the time was over before it was tested}"
        case $code in
        0) rm -rf "${results:?}/$name" ;;
        1) status=1 ;;
        *) [ "$status" = 1 ] || status=3 ;;
        esac
        rm -f "$said" "$results/.$name.status"
    done
    rmdir "$results" 2>/dev/null || echo "results: $results"
    exit $status
}

# slurmd ends a health check after 60 s: a violation that was seen until then counts.
# shellcheck disable=SC2086 # several processes
trap 'kill $begun 2>/dev/null; concluded' HUP INT TERM

case " $* " in
*" --guest "*) tested guest "$@" ;;
*)
    for device in "$sysfs"/*; do
        # A port without a cable is no defect: the first port that transfers data is tested.
        for port in "$device"/ports/*; do
            grep -q ACTIVE "$port/state" 2>/dev/null || continue
            tested "${device##*/}" --device "${device##*/}" --port "${port##*/}" "$@"
            break
        done
    done
    ;;
esac
[ -n "$begun" ] || echo "this node has no RDMA device with an active port: nothing was tested (exit status 0)"
wait
concluded
