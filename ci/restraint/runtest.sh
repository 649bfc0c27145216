#!/bin/sh
# A task of restraint and Beaker: reports a result for each case that did not pass and a result for the run, with logs.
# RDMA_CTS_OPTIONS are options of rdma-cts run, such as --guest or --device mlx5_0.
set -eu
command -v rstrnt-report-result >/dev/null || {
    echo "runtest.sh: there is no rstrnt-report-result; restraint and Beaker run this script" >&2
    exit 2
}

suite=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${RDMA_CTS_OPTIONS:=}"

status=0
# shellcheck disable=SC2086
"$suite/rdma-cts" run $RDMA_CTS_OPTIONS --out "$work/run" >"$work/output.txt" 2>&1 || status=$?
if [ -s "$work/run/results.jsonl" ]; then
    "$suite/rdma-cts" report "$work/run" --format ktap >"$work/ktap.txt"
    # Diagnostics of a case precede its line.
    details=$work/details.txt
    : >"$details"
    while IFS= read -r line; do
        case $line in
            '#'*) printf '%s\n' "$line" >>"$details" ;;
            'not ok '*)
                name=${line#not ok * }
                rstrnt-report-result -o "$details" "${name%% *}" FAIL
                : >"$details"
                ;;
            *) : >"$details" ;;
        esac
    done <"$work/ktap.txt"
    for file in results.jsonl report.html summary.json console.log; do
        [ ! -e "$work/run/$file" ] || rstrnt-report-log -l "$work/run/$file"
    done
fi
case $status in
    0) result=PASS ;;
    4) result=SKIP ;;
    *) result=FAIL ;;
esac
rstrnt-report-result -o "$work/output.txt" rdma-cts "$result" "$status"
