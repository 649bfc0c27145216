#!/bin/sh
# The checklist of a release: prints a line for each item, and exits with 1 if an item is missing. Nothing is changed.
# Usage: ci/release.sh [--quick]      --quick: without tests and packages
set -u

project=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
cd "$project" || exit 2
quick=
case $*:$# in
    :0) ;;
    --quick:1) quick=yes ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
python=${RDMA_CTS_PYTHON:-/usr/bin/python3}
version=$("$python" -c 'from conformance.tables.suite import VERSION; print(VERSION)') || exit 2
log=$(mktemp) && copy=$(mktemp -d) || exit 2
trap 'rm -rf "$log" "$copy"' EXIT
missing=0

# Runs a command; its output is shown only if it fails.
item() {
    what=$1
    shift
    if "$@" >"$log" 2>&1; then
        echo "done     $what"
    else
        echo "MISSING  $what"
        tail -n 5 "$log" | sed 's/^/         /'
        missing=1
    fi
}

has() { grep -qE -- "$1" "$2"; }
nothing_unreleased() { [ -z "$(sed -n '/^## Unreleased/,/^## [0-9]/{/^## /d;/^$/d;p;}' CHANGELOG.md)" ]; }
is_clean() { [ -z "$(git status --porcelain)" ]; }
is_new() { ! git rev-parse --quiet --verify "refs/tags/v$version"; }
deb() {
    git archive --prefix=rdma-cts/ HEAD | tar -C "$copy" -x &&
        (cd "$copy/rdma-cts" && dpkg-buildpackage --build=binary --no-sign) &&
        [ -e "$copy/rdma-cts_${version}_all.deb" ]
}
rpm() {
    mkdir -p "$copy/top/SOURCES" &&
        git archive "--prefix=rdma-cts-$version/" -o "$copy/top/SOURCES/rdma-cts-$version.tar.gz" HEAD &&
        rpmbuild -bb --nodeps --define "_topdir $copy/top" ci/packaging/rdma-cts.spec &&
        ls "$copy/top/RPMS/noarch/rdma-cts-$version-"*.rpm
}

echo "release $version, commit $(git rev-parse --short=12 HEAD)"
item "debian/changelog begins with $version" has "^rdma-cts \($version\)" debian/changelog
item "the spec of the RPM has $version" has "^Version: +$version$" ci/packaging/rdma-cts.spec
item "the spec's changelog has $version" has "^\* .* - $version-1$" ci/packaging/rdma-cts.spec
item "CHANGELOG.md has $version with its date" has "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md
item "CHANGELOG.md has nothing below Unreleased" nothing_unreleased
item "the working tree has no change" is_clean
item "there is no tag v$version yet" is_new
item "--version prints the version and the commit" sh -c "./rdma-cts --version | grep -F '$version (commit '"
item "the schemas in docs/ are those of the code" "$python" -m pytest -q tests/test_schema.py
item "each recorded format of 1.0 is read" "$python" -m pytest -q tests/test_formats_1_0.py
if [ -z "$quick" ]; then
    item "format, lint, types and spelling" ci/lint.sh
    item "quotes and durations are those of the recorded run" "$python" -m pytest -q tests/test_recorded_run.py
    item "the project's own tests" ./rdma-cts test --yes --nightly
    item "the Debian package can be built" deb
    item "the RPM can be built" rpm
fi
if [ "$missing" = 0 ]; then
    echo "next: git tag --sign v$version"
fi
exit "$missing"
