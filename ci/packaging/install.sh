#!/bin/sh
# Installs the files of a package: the suite in a private directory, the program, the manual page and the completions.
# Usage: sh ci/packaging/install.sh ROOT [TRIAL]
# TRIAL is the root of the second package, which has the files of `rdma-cts trial`; without it, ROOT has these files too.
# debian/rules and rdma-cts.spec call this script, so that the packages have the same files.
set -eu

case ${1-} in "" | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;; esac
project=$(dirname -- "$(readlink -f -- "$0")")/../..
mkdir -p "$1/usr/share/rdma-cts" ${2:+"$2/usr/share/rdma-cts"}
root=$(readlink -f -- "$1")
trial=${2:+$(readlink -f -- "$2")/usr/share/rdma-cts}
suite=$root/usr/share/rdma-cts
python=${RDMA_CTS_PYTHON:-/usr/bin/python3}
bytecode=$(mktemp -d) # of the four programs below, which import the same modules
trap 'rm -rf "$bytecode"' EXIT
export PYTHONPYCACHEPREFIX="$bytecode"
unset PYTHONDONTWRITEBYTECODE

mkdir -p "$root/usr/bin" "$root/usr/share/man/man1"
cd "$project"
find ./cases ./ci ./commands ./conformance ./fixtures ./reports ./trial ./conftest.py ./tox.ini ./rdma-cts \
    \( -name __pycache__ -o -path ./ci/hooks -o -path ./ci/packaging -o -path ./ci/benchmarks \) -prune -o -type f ! -name '*.pyc' ! -path './ci/lint*' \
    -exec cp --parents -t "$suite" {} +
find "$suite" \( -type d -o -perm /111 \) -exec chmod 755 {} + -o -exec chmod 644 {} +
if [ -n "$trial" ]; then
    mkdir -p "$trial/commands"
    mv "$suite/commands/trial.py" "$trial/commands/"
    mv "$suite/trial" "$trial/"
fi
PYTHONPATH=$suite "$python" ci/packaging/man_page.py >"$root/usr/share/man/man1/rdma-cts.1"
for place in bash:bash-completion/completions/rdma-cts zsh:zsh/vendor-completions/_rdma-cts \
    fish:fish/vendor_completions.d/rdma-cts.fish; do
    file=$root/usr/share/${place#*:}
    mkdir -p "${file%/*}"
    (cd "$suite" && "$python" -m commands list completion "${place%%:*}") >"$file"
    chmod 644 "$file"
done
# git replaces the placeholder in this file when it makes an archive.
commit=$(cat ci/packaging/commit)
case $commit in
    \$*) commit=$([ ! -e .git ] || git -c safe.directory='*' rev-parse --short=12 HEAD 2>/dev/null || :) ;;
esac
[ -z "$commit" ] || echo "$commit" >"$suite/commit"
[ ! -e "$suite/commit" ] || chmod 644 "$suite/commit"
install -m 644 ci/packaging/environment "$suite/environment"
ln -sf ../share/rdma-cts/rdma-cts "$root/usr/bin/rdma-cts"
chmod 644 "$root/usr/share/man/man1/rdma-cts.1"
