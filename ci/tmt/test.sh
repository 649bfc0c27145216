#!/bin/sh
# A tmt test: runs the cases, and writes results.yaml and the run to TMT_TEST_DATA. See main.fmf.
set -eu

suite=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
: "${RDMA_CTS_TARGET:=}" "${RDMA_CTS_OPTIONS:=}" "${TMT_TEST_DATA:?is set by tmt, which runs this script}"

# shellcheck disable=SC2086
"$suite/rdma-cts" run $RDMA_CTS_TARGET $RDMA_CTS_OPTIONS ${RDMA_CTS_INSTALL:+--yes} --out "$TMT_TEST_DATA/run" || :
"$suite/rdma-cts" report "$TMT_TEST_DATA/run" --format tmt --out "$TMT_TEST_DATA/results.yaml"
