#!/usr/bin/env bash
# Tries the .deb in a root of its own, which debootstrap makes: installs it, runs the README's tour
# from there, installs it again over itself, uses fstab, remounts, removes it. Takes some minutes.
# As root, with debootstrap and /dev/fuse; says so loudly and does nothing where these are missing.
#
#   scripts/package-test.sh DEB [FOLDER]    FOLDER: where the root is made (default: /var/tmp)
#
#   SHOAL_TEST_SUITE=bookworm   the suite that debootstrap takes
#   SHOAL_TEST_ROOT=FILE.tar    keeps the bare root in this archive, and takes it from there
set -euo pipefail

die() { echo "package-test: $*" >&2; exit 1; }
not_checked() { echo "== NOT CHECKED: the package: $*" >&2; exit 0; }

(($# >= 1)) || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
deb=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../README.md")
[[ $(id -u) == 0 ]] || not_checked 'needs root'
command -v debootstrap >/dev/null || not_checked 'debootstrap is not installed'
[[ -c /dev/fuse ]] || not_checked 'there is no /dev/fuse'

work=$(mktemp -d "${2:-/var/tmp}/shoal-package.XXXXXX")
root=$work/root
mkdir "$root"

# Mount points at or below a folder, the last first, as the kernel lists them.
mounts_below() {
  awk -v top="$1" '{ gsub(/\\040/, " ", $5); if ($5 == top || index($5, top "/") == 1) print $5 }' \
    /proc/self/mountinfo | tac
}

# Nothing is removed while anything is mounted below: a `rm -rf` would go into it. It stays on one
# filesystem besides.
clean_up() {
  local status=$? dir
  mounts_below "$work" | while read -r dir; do umount "$dir" || umount -l "$dir" || true; done
  if [[ -n $(mounts_below "$work") ]]; then
    echo "package-test: something is still mounted below $work: it is left" >&2
    exit 1
  fi
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT

step() { printf '\n== %s\n' "$*"; }
inside() { chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
  "$@"; }

make_root() {
  if [[ -n ${SHOAL_TEST_ROOT:-} && -e ${SHOAL_TEST_ROOT:-} ]]; then
    tar -C "$root" --numeric-owner -xf "$SHOAL_TEST_ROOT"
    return
  fi
  debootstrap --variant=minbase --include=fuse3,mount,procps \
    "${SHOAL_TEST_SUITE:-bookworm}" "$root" >"$work/debootstrap.log" ||
    { tail -5 "$work/debootstrap.log" >&2; die 'debootstrap failed'; }
  if [[ -n ${SHOAL_TEST_ROOT:-} ]]; then
    tar -C "$root" --numeric-owner -cf "$SHOAL_TEST_ROOT" .
  fi
}

step 'A clean root'
make_root
mount -t proc proc "$root/proc"
# The device alone, not all of /dev: nothing of this machine can be removed through it.
[[ -e $root/dev/fuse ]] || mknod -m 666 "$root/dev/fuse" c 10 229
[[ -e $root/dev/full ]] || mknod -m 666 "$root/dev/full" c 1 7
mkdir -p "$root/pkg"
cp "$deb" "$root/pkg/shoal.deb"
before=$(cd "$root" && find usr etc -xdev \( -type f -o -type l \) | sort)

step 'Install'
inside dpkg -i /pkg/shoal.deb
inside shoal --version
for name in mount.shoal mount.fuse.shoal umount.shoal umount.fuse.shoal fsck.shoal mkfs.shoal; do
  inside test -x "/sbin/$name" || die "/sbin/$name is missing"
done
for page in man1/shoal.1 man1/shoal-label.1 man8/mount.shoal.8 man8/fsck.shoal.8; do
  inside gzip -dc "/usr/share/man/$page.gz" | grep -q '^\.SH NAME' || die "no page $page"
done
inside dpkg --verify shoal

step "The README's tour"
mkdir -p "$root/tour"
cp "$(dirname "$readme")"/LICENSE-* "$root/tour"
# Less of the benchmark: the package is tested, not the machine. The build is in the package.
awk '/^```sh/ { block++; inside = 1; next } /^```/ { inside = 0 } inside && block == 1' "$readme" |
  sed 's/^cargo build.*//; s/--files 500000/--files 20000/' >"$root/tour/script"
[[ $(wc -l <"$root/tour/script") -gt 20 ]] || die 'the tour was not found in README.md'
inside bash -euc 'cd /tour && set -o pipefail && source ./script' | tail -5

step 'fstab, remount, the check at boot'
inside bash -eu <<'INSIDE'
mkdir -p /data /srv
mkfs -t shoal --size 256M --label data /srv/vol.img
echo '/srv/vol.img /data shoal allow_other,nofail 0 2' >/etc/fstab
mount -a && mount -a
[[ $(grep -c ' /data fuse.shoal ' /proc/mounts) == 1 ]]
echo hello >/data/file
mount -o remount,ro /data
! touch /data/new 2>/dev/null
mount -o remount,rw /data
touch /data/new
umount /data
shoal info /srv/vol.img | grep -q 'closed  *yes'
fsck.shoal -a /srv/vol.img
shoal mount /srv/vol.img /data
INSIDE

step 'Installed again, while a volume is mounted'
inside dpkg -i /pkg/shoal.deb
inside bash -euc 'cat /data/file && umount /data && mount /data && ls /data && umount /data'

step 'Removed'
inside dpkg -r shoal
inside dpkg -P shoal
after=$(cd "$root" && find usr etc -xdev \( -type f -o -type l \) | sort)
left=$(diff <(echo "$before") <(echo "$after") | grep -v '^[0-9]' | grep -vE 'etc/(fstab|mtab)' || true)
[[ -z $left ]] || die "the package has left something: $left"
inside test -s /srv/vol.img || die 'a volume is gone'
step 'The package works.'
