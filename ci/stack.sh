#!/bin/sh
# A cell of a nightly matrix: runs the cases on a stack of the guest, and compares the run with the stack's last good run.
# Usage: sh ci/stack.sh STACK KEPT [OPTION of `rdma-cts run`]...
# KEPT is a directory that the CI system stores between nights; KEPT/STACK is the last run without a regression.
# Results, reports, summary.md and comparison.txt are written to out/STACK. The summary is also appended to the file that
# GITHUB_STEP_SUMMARY names. Exit status: that of `rdma-cts compare` if it is not 0 (1: something has regressed); else
# that of `rdma-cts run`, with 0 in place of 1 (violations). Without results there is no comparison, and 1 stays 1. If the
# run did not begin, its exit status and its line are the last ones: results of an earlier run in out/STACK do not count.
set -eu

suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
case ${1-}:${2-} in :* | *: | -* | *:-*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
stack=$1 kept=$2
shift 2
out=out/$stack

digest() {
    [ ! -s "$out/results.jsonl" ] || cksum <"$out/results.jsonl"
}

earlier=$(digest)
rm -f "$out/comparison.txt" "$out/summary.md"
status=0
"$suite/rdma-cts" run --guest --stack "$stack" --yes --quiet --out "$out" "$@" || status=$?
[ -s "$out/results.jsonl" ] || exit "$status"
case $status in
    0 | 1) ;;
    2 | 4) exit "$status" ;; # the run did not begin
    *) [ "$(digest)" != "$earlier" ] || exit "$status" ;;
esac
[ "$status" != 1 ] || status=0 # an earlier violation is not a regression

if [ -e "$kept/$stack/results.jsonl" ]; then
    compared=0
    "$suite/rdma-cts" compare "$kept/$stack" "$out" >"$out/comparison.txt" || compared=$?
    [ "$compared" = 0 ] || status=$compared
else
    echo "the first run of $stack: nothing to compare with" >"$out/comparison.txt"
fi

{
    "$suite/rdma-cts" report "$out" --format markdown
    printf '\n## Since the last good run\n\n```\n'
    cat "$out/comparison.txt"
    printf '```\n'
} >"$out/summary.md"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
cat "$out/comparison.txt"

if [ "$status" = 0 ]; then
    mkdir -p "$kept"
    rm -rf "${kept:?}/$stack.new"
    if ! cp -R "$out" "$kept/$stack.new"; then # on a full disk the last good run remains
        rm -rf "${kept:?}/$stack.new"
        exit 3
    fi
    rm -rf "${kept:?}/$stack"
    mv "$kept/$stack.new" "$kept/$stack"
fi
exit "$status"
