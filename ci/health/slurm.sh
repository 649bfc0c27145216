#!/bin/sh
# For slurm.conf: Prolog or HealthCheckProgram, which have no arguments (docs/health.md). RDMA_CTS_HEALTH has options of
# `rdma-cts run`. If a device violates a rule, a prolog fails, so that Slurm drains the node and requeues the job; a
# health check drains the node itself. Without a conclusion, the node stays in service, and syslog gets the reason.
set -u

here=$(dirname -- "$(readlink -f -- "$0")")
# shellcheck disable=SC2086 # several options
lines=$(sh "$here/node.sh" ${RDMA_CTS_HEALTH:-})
case $? in
0) exit 0 ;;
1)
    reason=$(printf '%s\n' "$lines" | grep 'exit status 1' | head -n 1 | cut -c 1-200)
    printf '%s\n' "$reason"
    [ -z "${SLURM_JOB_ID:-}" ] || exit 1
    node=${SLURMD_NODENAME:-$(hostname -s)}
    case $node in
    [Aa][Ll][Ll] | -* | *[!a-zA-Z0-9_.-]*) # Slurm would read it as a set of nodes
        echo "$node is not the name of one node, and is not drained: $reason" | logger -t rdma-cts 2>/dev/null || true
        exit 0
        ;;
    esac
    scontrol update "NodeName=$node" State=DRAIN "Reason=rdma-cts: $reason"
    ;;
*) printf '%s\n' "$lines" | logger -t rdma-cts 2>/dev/null || true ;;
esac
exit 0
