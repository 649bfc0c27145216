#!/bin/sh
# Checks the format, lint, types and spelling of the whole tree, as a CI system does: ci/lint.sh
# The tools are Python packages of fixed versions, checked by hash, in a virtual environment of the suite's cache.
set -eu
[ $# = 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
list=ci/lint-tools.txt
cache=${RDMA_CTS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rdma-cts}
python=${RDMA_CTS_PYTHON:-python3}
tools=$cache/lint/$(sha256sum "$list" | cut -c 1-16)-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$cache/lint"
refuse_foreign() { # PATH: its programs are executed, so only this user and root may be able to write them
    if ! "$python" -P -c 'import pathlib, sys
sys.path.insert(0, ".")
from conformance.cache import is_own
sys.exit(not is_own(pathlib.Path(sys.argv[1])))' "$1" || [ -n "$(find "$1" ! -type l -perm -o+w)" ]; then
        echo "ci/lint.sh: other users can write $1; set RDMA_CTS_CACHE to a private directory, or remove it" >&2
        exit 3
    fi
}
refuse_foreign "$cache/lint"
(
    flock 9 # one checkout installs the tools; other checkouts wait
    [ ! -e "$tools/complete" ] || exit 0
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        sh fixtures/system/install-packages.sh python3-venv || exit 3
    fi
    echo "ci/lint.sh: installing $(grep -c == "$list") packages into $tools"
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$list"
    : >"$tools/complete"
) 9>"$cache/lint/lock"
refuse_foreign "$tools"
"$tools/bin/ruff" format --check .
"$tools/bin/ruff" check .
flock "$tools/lock" "$tools/bin/mypy" --cache-dir "$tools/mypy" # checkouts share this cache
git ls-files -z -- '*.md' '*.py' '*.sh' '*.yaml' '*.html' '*.c' | xargs -0 "$tools/bin/codespell" --
