#!/bin/sh
# One shard of a run, on one of several machines. K and N come from the variables of GitLab (parallel:), of a Slurm array,
# of an indexed Job of Kubernetes (with JOB_COMPLETIONS), or from SHARD=K/N.
# Usage: sh ci/shard.sh [OPTION of `rdma-cts run`]...
# Results go to OUT/shard-K (OUT is out by default); a shard that was cut short there is resumed. `rdma-cts merge
# OUT/shard-* --out DIR` makes one run of all. Exit status: 0 whatever is violated, which the merged run says; others as of
# `rdma-cts run`.
set -eu

suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
if [ -n "${SHARD-}" ]; then
    shard=$SHARD
elif [ -n "${CI_NODE_INDEX-}" ]; then
    shard=$CI_NODE_INDEX/$CI_NODE_TOTAL
elif [ -n "${SLURM_ARRAY_TASK_ID-}" ]; then
    at=$((SLURM_ARRAY_TASK_ID - ${SLURM_ARRAY_TASK_MIN:-1}))
    shard=$((at / ${SLURM_ARRAY_TASK_STEP:-1} + 1))/$SLURM_ARRAY_TASK_COUNT
elif [ -n "${JOB_COMPLETION_INDEX-}" ]; then
    shard=$((JOB_COMPLETION_INDEX + 1))/$JOB_COMPLETIONS
else
    echo "ci/shard.sh: which shard? SHARD=K/N says it where no engine does" >&2
    exit 2
fi
out=${OUT:-out}/shard-${shard%/*}
mkdir -p "${OUT:-out}"

status=0
if [ -e "$out/plan.json" ]; then
    "$suite/rdma-cts" run --resume "$out" --yes --quiet || status=$?
else
    "$suite/rdma-cts" run --shard "$shard" --yes --quiet --out "$out" "$@" || status=$?
fi
[ "$status" != 1 ] || status=0
exit "$status"
