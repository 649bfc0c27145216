#!/bin/sh
# Runs the unit tests of what a device's host needs in Debian 11, which has the oldest supported Python (3.9), pytest
# (6.0) and pyverbs (33): ci/oldest.sh [OPTION OF bare-root.sh]... Needs root, and takes a few minutes.
here=$(dirname -- "$(readlink -f -- "$0")")
# shellcheck disable=SC2016 # the shell in the new system expands the words
exec "$here/bare-root.sh" --release bullseye "$@" '
packages="python3-yaml python3-jinja2 python3-sympy python3-hypothesis python3-pytest python3-pytest-xdist
    python3-pyverbs ibverbs-providers libibverbs-dev gcc libc6-dev"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >/dev/null &&
    apt-get -q install -y --no-install-recommends $packages >/dev/null || exit 3
modules="older_python judging results memory tables yamldoc run_options sweep_points sweep_formula defects connection
    libibverbs examiner"
files=
for module in $modules; do files="$files tests/test_$module.py"; done
python3 --version
./rdma-cts list --rule REG-01 >/dev/null || exit 1
exec python3 -m pytest -q -p no:cacheprovider -m "not nightly" $files'
