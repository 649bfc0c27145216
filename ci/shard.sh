#!/bin/sh
# Runs one shard of a run, on one of several machines. K and N are read from SHARD=K/N, or from the variables of GitLab
# (parallel:), of a Slurm array, or of an indexed Job of Kubernetes (its manifest sets JOB_COMPLETIONS).
# Usage: sh ci/shard.sh [OPTION of `rdma-cts run`]...
# The results are in OUT/shard-K (default of OUT: out); see resumed.sh. `rdma-cts merge OUT/shard-* --out DIR` merges
# all shards into one run.
set -eu

case ${1-} in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
needs() {
    echo "ci/shard.sh: $1 is not set; set it, or SHARD=K/N" >&2
    exit 2
}
for name in SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP JOB_COMPLETION_INDEX; do
    eval "value=\${$name-}"
    case $value in *[!0-9]*) echo "ci/shard.sh: $name=$value is not a number" >&2 && exit 2 ;; esac
done
if [ -n "${SHARD-}" ]; then
    shard=$SHARD
elif [ -n "${CI_NODE_INDEX-}" ]; then
    shard=$CI_NODE_INDEX/${CI_NODE_TOTAL:-$(needs CI_NODE_TOTAL)} || exit
elif [ -n "${SLURM_ARRAY_TASK_ID-}" ]; then
    at=$((SLURM_ARRAY_TASK_ID - ${SLURM_ARRAY_TASK_MIN:-1}))
    shard=$((at / ${SLURM_ARRAY_TASK_STEP:-1} + 1))/${SLURM_ARRAY_TASK_COUNT:-$(needs SLURM_ARRAY_TASK_COUNT)} || exit
elif [ -n "${JOB_COMPLETION_INDEX-}" ]; then
    shard=$((JOB_COMPLETION_INDEX + 1))/${JOB_COMPLETIONS:-$(needs JOB_COMPLETIONS)} || exit
else
    echo "ci/shard.sh: no variable of a CI system names the shard; set SHARD=K/N" >&2
    exit 2
fi
exec sh "$(dirname -- "$(readlink -f -- "$0")")/resumed.sh" "${OUT:-out}/shard-${shard%/*}" --shard "$shard" "$@"
