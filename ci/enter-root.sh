#!/bin/sh
# Makes a system the root directory, and runs a script in it; bare-root.sh calls it in new namespaces of mounts and
# processes. The system gets /proc and a small /dev, and as a container also /sys.
# Usage: ci/enter-root.sh ROOT chroot|pivot USER DIRECTORY shell|command TEXT NAME=VALUE...
# With `shell`, process 1 is a shell that executes TEXT; with `command`, TEXT is one command and becomes process 1.
set -eu
[ $# -ge 6 ] && [ -n "$1" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
root=$1 kind=$2 user=$3 place=$4 process=$5 text=$6
shift 6

# The limit of a user namespace is valid for all namespaces within it.
[ -n "$namespaces" ] || echo 0 >/proc/sys/user/max_user_namespaces
if [ "$kind" = pivot ]; then
    mount --bind "$root" "$root"
    mount -t sysfs -o ro sys "$root/sys" 2>/dev/null || : # a user namespace may have no right to mount it
fi
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 pts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
for name in null zero full random urandom tty; do
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done

# A shell would become the last command of its script; a line after the command prevents this.
if [ "$process" = command ]; then
    text="exec $text"
else
    text="$text
exit \$?"
fi
text="cd $place
$text"
cd "$root"
if [ "$kind" = pivot ]; then
    pivot_root . .
    umount -l .
    root=/
fi
groups=
[ "$user" = root ] || groups=--groups=$user
exec "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" "--userspec=$user:$user" $groups "$root" \
    /usr/bin/env -i "$@" /bin/sh -c "$text"
