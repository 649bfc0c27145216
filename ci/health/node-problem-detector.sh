#!/bin/sh
# For node-problem-detector's custom plugin monitor (node-problem-detector.json): one line, and the exit status 0 for a
# healthy node, 1 for a violation, 2 for no conclusion. Usage: node-problem-detector.sh [OPTION of `rdma-cts run`]...
set -u

lines=$(sh "$(dirname -- "$(readlink -f -- "$0")")/node.sh" "$@")
status=$?
worst=$(printf '%s\n' "$lines" | grep -e 'exit status [13]' -e 'nothing was tested' | head -n 1)
echo "${worst:-every RDMA device protects memory}"
case $status in
0 | 1) exit $status ;;
*) exit 2 ;;
esac
