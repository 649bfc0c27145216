#!/bin/sh
# Runs the README's commands, or another shell script, in a new minimal Debian in which nothing of this machine is
# visible: ci/bare-root.sh [OPTION]... [SCRIPT]
#   --release NAME     the Debian release (default: bookworm)
#   --user             an ordinary user runs the commands, and root only installs what they ask for
#   --pivot            the system is the root of its mounts, as in a container (default: a plain chroot)
#   --no-namespaces    user namespaces are refused, as in many containers
#   --process-1        SCRIPT is one command, which is process 1 (default: process 1 is a shell)
#   --keep DIR         uses the system in DIR, and makes it first if necessary (default: a temporary directory)
# The system has mmdebstrap's variant minbase, ca-certificates, git, and a clone of this checkout with its changes. It
# uses the mirror, the proxies and the certificates of this machine. It has no terminal. Needs root.
set -eu

refuse() {
    echo "ci/bare-root.sh: $1" >&2
    exit 3
}

suite=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
release=bookworm
user=root
home=/root
kind=chroot
export namespaces=yes # also read by enter-root.sh
process=shell
keep=
usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1:${2-} in
        : | --release: | --keep: | --release:-* | --keep:-*) usage ;;
    esac
    case $1 in
        --release) release=$2 && shift ;;
        --user) user=tester home=/home/tester ;;
        --pivot) kind=pivot ;;
        --no-namespaces) namespaces= ;;
        --process-1) process=command ;;
        --keep) keep=$2 && shift ;;
        -*) usage ;;
        *) break ;;
    esac
    shift
done

[ "$(id -u)" = 0 ] || refuse "only root can make a system"
for package in mmdebstrap python3; do
    command -v "$package" >/dev/null && continue
    reason=$(RDMA_CTS_YES=1 sh "$suite/fixtures/system/install-packages.sh" "$package") || refuse "$reason"
done

work=$(mktemp -d "${TMPDIR:-/var/tmp}/rdma-cts-bare-XXXXXX")
chmod 755 "$work" # an ordinary user passes through this directory
root=${keep:-$work/root}
trap 'rm -rf --one-file-system "$work"' EXIT
# A shell acts on a signal only while it does not wait for a program in the foreground: see `waited`.
child= signal=TERM
trap 'stop; exit 130' INT HUP
trap 'stop; exit 143' TERM

# Ends the program that runs. All processes of a namespace end with it (unshare --kill-child); unshare ignores SIGTERM.
stop() {
    [ -z "$child" ] || kill -s "$signal" "$child" 2>/dev/null || :
}

# Runs a program to its end; a signal ends both.
waited() {
    "$@" </dev/null &
    child=$!
    ended=0
    wait "$child" || ended=$?
    child=
    return "$ended"
}

make_system() {
    mkdir -p "$root"
    apt-config dump Acquire | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Retries)[: ]' >"$work/apt.conf" || :
    mirror=$(cd "$suite" && python3 -c 'from fixtures.guest.mirror import host_mirror; print(host_mirror())')
    waited mmdebstrap --variant=minbase --include=ca-certificates,git "--aptopt=$work/apt.conf" --dpkgopt=force-unsafe-io \
        "$release" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        refuse "the system could not be made"
    }
    # The certificates that the administrator of this machine has added.
    for certificate in /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$certificate" ] || cp "$certificate" "$root/usr/local/share/ca-certificates/"
    done
    chroot "$root" update-ca-certificates >"$work/log" 2>&1
    chroot "$root" useradd --create-home --shell /bin/sh tester
    : >"$root/complete"
}

# Clones the checkout, and repeats its changes that are not committed.
copy_suite() {
    copy=$root$home/rdma-cts
    rm -rf "$copy"
    git -c safe.directory='*' clone --quiet --no-hardlinks "$suite" "$copy"
    (
        cd "$suite"
        git -c safe.directory='*' diff --binary HEAD >"$work/changes"
        git -c safe.directory='*' ls-files -z --others --exclude-standard | xargs -0 -r cp --parents -t "$copy"
    )
    [ ! -s "$work/changes" ] || git -C "$copy" apply --whitespace=nowarn "$work/changes"
    chroot "$root" chown -R "$user:" "$home/rdma-cts"
}

# Runs a shell script in the system, as a user and with the user's usual environment.
enter() {
    who=$1 place=$2 text=$3
    path=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
    [ "$who" != root ] || path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    set -- "HOME=${place%/rdma-cts}" "PATH=$path" "LANG=C.UTF-8"
    for name in http_proxy https_proxy no_proxy RDMA_CTS_MIRROR; do
        eval "value=\${$name:-}"
        [ -z "$value" ] || set -- "$@" "$name=$value"
    done
    set -- sh "$suite/ci/enter-root.sh" "$root" "$kind" "$who" "$place" "$process" "$text" "$@"
    set -- unshare --mount --pid --fork --kill-child -- "$@"
    set -- setsid --wait "$@"
    signal=KILL
    if [ -n "$namespaces" ]; then
        waited "$@"
    else
        without_namespaces "$@"
    fi
}

# Runs a command in a user namespace in which no other can be created; its users are those of this machine.
without_namespaces() {
    rm -f "$work/mapped"
    mkfifo "$work/mapped"
    # shellcheck disable=SC2016 # the inner shell expands the words
    unshare --user --mount sh -c 'read -r _ <"$0" && exec "$@"' "$work/mapped" "$@" </dev/null &
    child=$!
    until [ "$(readlink "/proc/$child/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do sleep 0.1; done
    for ids in uid gid; do
        echo 0 0 65536 >"/proc/$child/${ids}_map"
    done
    echo >"$work/mapped"
    ended=0
    wait "$child" || ended=$?
    child=
    return "$ended"
}

# Runs the script. If it asks an ordinary user for packages, root installs them with the command that was printed.
attempt() {
    [ "$user" != root ] || { enter root "$home/rdma-cts" "$1" && return || return; }
    for attempt in 1 2 3; do
        rm -f "$work/pipe"
        mkfifo "$work/pipe"
        tee "$work/output" <"$work/pipe" &
        tee=$!
        status=0
        enter "$user" "$home/rdma-cts" "$1" >"$work/pipe" 2>&1 || status=$?
        wait "$tee"
        command=$(grep -o 'sudo apt-get .*' "$work/output" | tail -n 1 | sed 's/sudo //g; s/$/ --yes/')
        [ "$status" = 3 ] && [ -n "$command" ] || return "$status"
        echo "+ $command"
        enter root / "$command" >"$work/log" 2>&1 || {
            tail -n 20 "$work/log" >&2
            refuse "the command that the suite printed has failed: $command"
        }
    done
    return "$status"
}

[ -e "$root/complete" ] || make_system
copy_suite
if [ $# -gt 0 ]; then
    attempt "$*"
    exit
fi
# The commands of the README, word for word. A run of Soft-RoCE finds violations, which is status 1.
sed -n '/^## Two commands$/,/^## /s/^    \(\.\/rdma-cts [^#]*[^# ]\) *#.*/\1/p' "$suite/README.md" >"$work/commands"
while read -r command; do
    echo "+ $command"
    status=0
    attempt "$command" <&- || status=$?
    case $status:$command in
        0:* | "1:./rdma-cts run "*) ;;
        *) exit "$status" ;;
    esac
done <"$work/commands"
