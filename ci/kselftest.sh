#!/bin/sh
# Runs the suite as a kselftest of the running kernel: prints KTAP on standard output, all else on standard error.
# Usage: sh ci/kselftest.sh [OPTION of `rdma-cts run`]...
# The device is RDMA_CTS_DEVICE, or else the first device of this host; without a device the test is skipped. The exit
# status is that of a kselftest: 0 passed, 4 skipped, 1 failed or undecided.
set -eu

case ${1-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
device=${RDMA_CTS_DEVICE:-}
for found in /sys/class/infiniband/*; do
    [ -n "$device" ] || [ ! -e "$found" ] || device=${found##*/}
done
if [ -z "$device" ]; then
    printf 'TAP version 13\n1..1\nok 1 rdma-cts # SKIP this host has no RDMA device\n'
    exit 4
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
"$suite/rdma-cts" run --device "$device" --out "$work/run" "$@" >&2 || status=$?
if [ -s "$work/run/results.jsonl" ]; then
    "$suite/rdma-cts" report "$work/run" --format ktap
else
    printf 'TAP version 13\n1..1\nnot ok 1 rdma-cts # ERROR the run did not start (exit status %s)\n' "$status"
fi
[ "$status" = 0 ] || exit 1
