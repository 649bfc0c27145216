# build-rdma-unit-test.sh builds the tests in unit/ of Google's rdma-unit-test as one program for the guest, with packages of Debian only.
# $1: the source tree, which is not changed; $2: the path of the new program; $3: a directory for the system with the
# compiler, which the next build uses again. Runs as root, for about ten minutes on two cores.
# The program uses libibverbs and the C library of the guest's Debian suite; all other libraries are linked statically.
set -eu
for argument in "${1-}" "${2-}" "${3-}"; do
    [ -n "$argument" ] || { sed -n '1,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
done
root=$3
[ -e "$root/usr/bin/g++" ] || mmdebstrap --variant=apt --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --include=g++,pkgconf,libabsl-dev,libgmock-dev,libibverbs-dev,libmagicenum-dev forky "$root"
rm -rf "$root/tests"
cp -r "$1" "$root/tests"
# The tests' description of rxe lacks RC queue pairs and re-registration, which the mended driver supports. Tests that
# the description excludes are also run: peers.py does not count a test that fails without a mutant.
sed -i -e 's/SupportsRcQp() const override { return false/SupportsReRegMr() const override { return true/' \
    -e '/^        [{/" ].*[,}]$/d' "$root/tests/internal/introspection_rxe.h"
# The tests bind type 2 windows to keys without the window's index, and expect the new key in the window's structure,
# which librxe does not set. The edits use only the lowest byte of the test's key, and set the new key.
sed -i -e 's/^  bind.bind_mw.rkey = rkey;/  bind.bind_mw.rkey = (mw->rkey \& ~0xffu) | (rkey \& 0xff);/' \
    -e 's/^  PostSend(qp, bind);/& mw->rkey = bind.bind_mw.rkey;/' "$root/tests/public/verbs_util.cc"
chroot "$root" sh -eu <<'END'
cd /tests
ls unit/*.cc public/*.cc internal/*.cc | xargs -t -P "$(nproc)" -I FILE \
    g++ -std=c++20 -O1 -w -I. -I/usr/include/magic_enum -c FILE -o FILE.o
absl=$(pkg-config --static --libs-only-l absl_check absl_failure_signal_handler absl_flags_parse absl_log \
    absl_log_initialize absl_statusor absl_synchronization)
g++ -static-libstdc++ -static-libgcc -s -o program */*.o -Wl,-Bstatic -lgmock -lgtest $absl -Wl,-Bdynamic -libverbs
END
cp "$root/tests/program" "$2"
