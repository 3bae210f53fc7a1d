#!/usr/bin/env bash
# Runs README.md's two commands, as they stand there, in a minimal Debian that has nothing of this machine's Python.
#
#     tools/fresh_root.sh [first|second]...        both, where none is named
#
# The root is made by debootstrap out of Debian's packages: python3-venv, g++ and git. Debian 12's Rust is too old for us,
# so this machine's toolchain is shown in it, read-only, as rustup would have brought it. The last commit of this checkout
# is cloned into it; crates and wheels come from the registries anew, by the settings of this machine. Each command gets a
# root of its own, and what it took is printed: seconds by the clock and of processors' work (which other programs do not
# change), and the MB that the environment, the build and the downloads hold.
#
# Where it can't run (not root, no debootstrap) it says "skipped: ..." and ends with 0. FRESH_ROOT names the folder to work
# in (a few GB, deleted at the end), FRESH_SUITE and FRESH_MIRROR another Debian.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${FRESH_SUITE:-bookworm}
packages=python3-venv,g++,git,ca-certificates

skip() {
    echo "skipped: $1"
    exit 0
}

# The README's commands: its indented lines that begin with `pip install` and do something with what they installed.
commands() {
    sed -n 's/^    \(pip install .* && .*\)$/\1/p' "$repository/README.md"
}

# Where this machine's apt gets Debian from.
mirror() {
    { apt-get indextargets --format '$(REPO_URI)' 2>/dev/null || true; } | grep -m 1 '/debian/*$' || echo http://deb.debian.org/debian
}

# NAME=VALUE of what the registries' clients are told by the environment here.
registries() {
    env | grep -E '^(PIP_(CERT|CONFIG|DEFAULT|EXTRA|INDEX|PROXY|RETRIES|TIMEOUT|TRUSTED)|CARGO_(HTTP|NET|REGISTR|SOURCE)|SSL_CERT_|CURL_CA_|REQUESTS_CA_|([A-Za-z]+_proxy|[A-Z]+_PROXY)=)' || true
}

# Copies a file of this machine, or what it links to, to the same place in the root.
bring() {
    [ ! -e "$1" ] || install -D -m 644 "$(readlink -f "$1")" "$root$1"
}

make_root() {
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" "${FRESH_MIRROR:-$(mirror)}" >"$root.log" 2>&1 ||
        { tail "$root.log"; return 1; }
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do bring "$file"; done
    if [ -e "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then
        install -D -m 644 "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$root/root/.cargo/config.toml"
    fi
    git clone --quiet --depth 1 "file://$repository" "$root/root/neurenix"
    mkdir -p "$root/opt/rust"
}

# What the mount namespace runs: the mounts go when it ends, however it ends.
inside='
root=$1 rust=$2 command=$3
shift 3
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind "$rust" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin:/bin:/opt/rust/bin "$@" \
    bash -euc "cd ~/neurenix && python3 -m venv ~/venv && . ~/venv/bin/activate && $command"
'

megabytes() {
    du -smc "$@" 2>/dev/null | tail -n 1 | cut -f 1
}

# Seconds of processors' work that ended children of this shell have done.
work() {
    local fields
    read -r -a fields <"/proc/$$/stat"
    echo $(((fields[15] + fields[16]) / $(getconf CLK_TCK)))
}

run() {
    local name=$1 command=$2 start before status=0
    root=$folder/$name
    make_root
    echo "== $command"
    echo "   in $(. "$root/etc/os-release" && echo "$PRETTY_NAME"), $("$rust/bin/rustc" --version), $(nproc) cores; the root has $(megabytes "$root") MB"
    mapfile -t settings < <(registries)
    start=$SECONDS before=$(work)
    unshare --mount --pid --fork --kill-child --propagation private \
        bash -euc "$inside" inside "$root" "$rust" "$command" "${settings[@]}" </dev/null || status=$?
    echo "== $name command: status $status, $((SECONDS - start)) s ($(($(work) - before)) s of work); environment $(megabytes "$root/root/venv") MB," \
        "build $(megabytes "$root/root/neurenix/target") MB, downloads $(megabytes "$root/root/.cache" "$root/root/.cargo") MB"
    rm -rf --one-file-system "$root" "$root.log"
    return "$status"
}

[ "$(id -u)" = 0 ] || skip "debootstrap, mounts and chroot want root"
for tool in debootstrap unshare chroot git rustc; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
rust=$(cd "$repository" && rustc --print sysroot)
mapfile -t found < <(commands)
[ "${#found[@]}" = 2 ] || { echo "README.md has ${#found[@]} commands, not 2" >&2; exit 1; }

if [ -n "${FRESH_ROOT:-}" ]; then mkdir -p "$FRESH_ROOT"; fi
folder=$(mktemp -d "${FRESH_ROOT:-/var/tmp}/fresh_root.XXXXXX")
trap 'rm -rf --one-file-system "$folder"' EXIT

[ $# -gt 0 ] || set -- first second
for name in "$@"; do
    case $name in
    first) run first "${found[0]}" ;;
    second) run second "${found[1]}" ;;
    *) echo "neither first nor second: $name" >&2; exit 2 ;;
    esac
done
