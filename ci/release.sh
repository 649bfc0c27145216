#!/bin/sh
# The checklist of a release: prints a line for each item, and exits with 1 if an item is missing. Nothing is changed.
# Usage: ci/release.sh [--quick]       --quick: the long items are only listed; the tests of a night take hours
#        ci/release.sh --cut VERSION   first: gives VERSION, with today's date, to all files and to what is unreleased
set -u

project=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
cd "$project" || exit 2
quick= cut=
case $*:$# in
    :0) ;;
    --quick:1) quick=yes ;;
    "--cut "*:2) cut=$2 ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
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

# The same of an item that takes minutes or hours, with the time at which it began.
long_item() {
    if [ -n "$quick" ]; then
        echo "not run  $1"
    else
        echo "began    $1 ($(date -u +%H:%M:%S) UTC)"
        item "$@"
    fi
}

has() { grep -qE -- "$1" "$2"; }
nothing_unreleased() { [ -z "$(sed -n '/^## Unreleased/,/^## [0-9]/{/^## /d;/^$/d;p;}' CHANGELOG.md)" ]; }
refuse() {
    echo "ci/release.sh: $1" >&2
    exit 2
}
cut_release() {
    expr "$1" : '[0-9]*\.[0-9]*\.[0-9]*$' >/dev/null || refuse "'$1' is not a version of three numbers"
    ! has "^## $1," CHANGELOG.md || refuse "CHANGELOG.md has $1 already"
    ! nothing_unreleased || refuse "nothing is unreleased in CHANGELOG.md"
    by="The rdma-cts authors <rdma-cts@packages.invalid>" what="CHANGELOG.md has the changes."
    day=$(LC_ALL=C date -u '+%a %b %d %Y')
    sed -i "s/^VERSION = .*/VERSION = \"$1\"/" conformance/tables/suite.py
    sed -i "s/^## Unreleased$/&\n\n## $1, $(date -u +%F)/" CHANGELOG.md
    sed -i "s/^\(Version: *\).*/\1$1/; s/^%changelog$/&\n* $day $by - $1-1\n- $what\n/" ci/packaging/rdma-cts.spec
    {
        printf 'rdma-cts (%s) unstable; urgency=medium\n\n  * %s\n\n' "$1" "$what"
        printf ' -- %s  %s\n\n' "$by" "$(LC_ALL=C date -u -R)"
        cat debian/changelog
    } >"$log"
    cat "$log" >debian/changelog
    echo "VERSION, CHANGELOG.md, debian/changelog and the spec of the RPM have $1; next: commit them, and ci/release.sh"
}
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

if [ -n "$cut" ]; then
    cut_release "$cut"
    exit
fi
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
long_item "format, lint, types and spelling" ci/lint.sh
long_item "quotes and durations are those of the recorded run" "$python" -m pytest -q tests/test_recorded_run.py
long_item "the project's own tests, with those of the night" ./rdma-cts test --yes --nightly
long_item "the Debian package can be built" deb
long_item "the RPM can be built" rpm
if [ "$missing" = 0 ]; then
    if [ -n "$quick" ]; then
        echo "next: ci/release.sh, which runs the items that were not run"
    else
        echo "next: git tag --sign v$version"
    fi
fi
exit "$missing"
