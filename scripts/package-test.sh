#!/usr/bin/env bash
# Tries packages, each in a root of its own, which debootstrap makes: installs one, runs the README's
# tour from there, uses fstab, remounts, installs it again and a newer one while a volume is mounted,
# removes it. Takes some minutes. A .rpm is installed by this machine's rpm, with the root's C library
# as a package that provides what it really has. As root, with debootstrap and /dev/fuse; says so
# loudly and does nothing where these, or rpm for a .rpm, are missing.
#
#   scripts/package-test.sh PACKAGE...
#
#   SHOAL_TEST_FOLDER=/var/tmp  where the root is made
#   SHOAL_TEST_SUITE=bookworm   the suite that debootstrap takes
#   SHOAL_TEST_ROOT=FILE.tar    keeps the bare root in this archive, and takes it from there
set -euo pipefail

die() { echo "package-test: $*" >&2; exit 1; }
not_checked() { echo "== NOT CHECKED: the package: $*" >&2; exit 0; }

(($# >= 1)) || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
repository=$(realpath "$(dirname "$0")/..")
readme=$repository/README.md
for package in "$@"; do
  [[ -f $package && $package == *.@(deb|rpm) ]] || die "$package is no .deb or .rpm"
done
[[ $(id -u) == 0 ]] || not_checked 'needs root'
command -v debootstrap >/dev/null || not_checked 'debootstrap is not installed'
[[ -c /dev/fuse ]] || not_checked 'there is no /dev/fuse'

work=$(mktemp -d "${SHOAL_TEST_FOLDER:-/var/tmp}/shoal-package.XXXXXX")
root=$work/root

# Mount points at or below a folder, the last first, as the kernel lists them.
mounts_below() {
  awk -v top="$1" '{ gsub(/\\040/, " ", $5); if ($5 == top || index($5, top "/") == 1) print $5 }' \
    /proc/self/mountinfo | tac
}

# Removes a folder. Not while anything is mounted below: a `rm -rf` would go into it. It stays on
# one filesystem besides.
remove() {
  local dir
  mounts_below "$1" | while read -r dir; do umount "$dir" || umount -l "$dir" || true; done
  [[ -z $(mounts_below "$1") ]] || die "something is still mounted below $1: it is left"
  rm -rf --one-file-system "$1"
}
clean_up() { local status=$?; remove "$work"; exit "$status"; }
trap clean_up EXIT

step() { printf '\n== %s\n' "$*"; }
inside() { chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
  "$@"; }
# This machine's rpm on the root: its scripts run inside.
in_rpm() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }

make_root() {
  local bare=${SHOAL_TEST_ROOT:-$work/bare.tar}
  if [[ ! -e $bare ]]; then
    mkdir "$root"
    debootstrap --variant=minbase --include=fuse3,mount,procps \
      "${SHOAL_TEST_SUITE:-bookworm}" "$root" >"$work/debootstrap.log" ||
      { tail -5 "$work/debootstrap.log" >&2; die 'debootstrap failed'; }
    tar -C "$root" --numeric-owner -cf "$bare" .
    remove "$root"
  fi
  mkdir "$root"
  tar -C "$root" --numeric-owner -xf "$bare"
  mount -t proc proc "$root/proc"
  # The device alone, not all of /dev: nothing of this machine can be removed through it.
  [[ -e $root/dev/fuse ]] || mknod -m 666 "$root/dev/fuse" c 10 229
  [[ -e $root/dev/full ]] || mknod -m 666 "$root/dev/full" c 1 7
  mkdir -p "$root/pkg"
}

# What a package may leave nothing of, folders included.
files() { (cd "$root" && find usr etc -xdev | sort); }

# The root's C library and shell as a package of rpm: it provides what the libraries themselves say.
make_base_rpm() {
  local libraries spec=$work/base.spec
  libraries=$(find "$root"/lib/*-linux-gnu* "$root"/lib64 -name 'libc.so.6' -o -name 'libm.so.6' \
    -o -name 'libgcc_s.so.1' -o -name 'ld-linux*.so*')
  {
    printf 'Name: base\nVersion: 1\nRelease: 1\nSummary: The root\nLicense: none\n'
    printf 'Provides: /bin/sh rtld(GNU_HASH)\n'
    /usr/lib/rpm/find-provides <<<"$libraries" | sort -u | sed 's/^/Provides: /'
    printf '%%description\nThe root.\n%%files\n'
  } >"$spec"
  rpmbuild -bb --quiet --define "_topdir $work/base" --define "_rpmdir $work" \
    --define '_rpmfilename base.rpm' "$spec"
}

install_deb() { inside dpkg -i "/pkg/$(basename "$1")"; }
verify_deb() { inside dpkg --verify shoal; }
again_deb() { install_deb "$1"; }
remove_deb() { inside dpkg -r shoal; inside dpkg -P shoal; }

install_rpm() {
  local why
  in_rpm --initdb
  if why=$(in_rpm -i "$1" 2>&1); then die 'the .rpm needs no C library'; fi
  grep -q 'libc\.so\.6.* is needed by shoal' <<<"$why" || die "the .rpm does not say why: $why"
  make_base_rpm
  in_rpm -i "$work/base.rpm"
  in_rpm -i "$1"
}
verify_rpm() { in_rpm -V shoal; }
again_rpm() {
  if in_rpm -i "$1" 2>/dev/null; then die 'installed twice'; fi
  in_rpm -U --replacepkgs "$1"
}
remove_rpm() { in_rpm -e shoal; }

check_files() {
  local name page
  inside shoal --version
  for name in mount.shoal mount.fuse.shoal umount.shoal umount.fuse.shoal fsck.shoal mkfs.shoal; do
    inside test -x "/sbin/$name" || die "/sbin/$name is missing"
  done
  for page in man1/shoal.1 man1/shoal-label.1 man8/mount.shoal.8 man8/fsck.shoal.8; do
    inside gzip -dc "/usr/share/man/$page.gz" | grep -q '^\.SH NAME' || die "no page $page"
  done
}

tour() {
  mkdir -p "$root/tour"
  cp "$repository"/LICENSE-* "$root/tour"
  # Less of the benchmark: the package is tested, not the machine. The build is in the package.
  awk '/^```sh/ { block++; inside = 1; next } /^```/ { inside = 0 } inside && block == 1' "$readme" |
    sed 's/^cargo build.*//; s/--files 500000/--files 20000/' >"$root/tour/script"
  [[ $(wc -l <"$root/tour/script") -gt 20 ]] || die 'the tour was not found in README.md'
  inside bash -euc 'cd /tour && set -o pipefail && source ./script' | tail -5
}

fstab() {
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
}

# The same binary as a package with a higher number.
make_newer() {
  SHOAL=$root/usr/bin/shoal RELEASE=2 "$repository/scripts/package.sh" "$work/newer" \
    >"$work/newer.log" 2>&1 || grep -q 'NOT MADE' "$work/newer.log" ||
    { cat "$work/newer.log" >&2; die 'no newer package'; }
}

try() {
  local kind=$1 package=$2 before after left newer
  step "A clean root for $(basename "$package")"
  make_root
  # Every system with rpm has it.
  [[ $kind == deb ]] || mkdir -p "$root/usr/share/licenses"
  cp "$package" "$root/pkg"
  before=$(files)
  step 'Install'
  "install_$kind" "$package"
  check_files
  "verify_$kind"
  step "The README's tour"
  tour
  step 'fstab, remount, the check at boot'
  fstab
  step 'Installed again, and a newer one, while a volume is mounted'
  "again_$kind" "$package"
  make_newer
  newer=$(find "$work/newer" -name "*.$kind")
  cp "$newer" "$root/pkg"
  case $kind in deb) install_deb "$newer" ;; rpm) in_rpm -U "$newer" ;; esac
  check_files
  "verify_$kind"
  inside bash -euc 'cat /data/file && umount /data && mount /data && ls /data && umount /data'
  step 'Removed'
  "remove_$kind"
  after=$(files)
  left=$(diff <(echo "$before") <(echo "$after") | grep -v '^[0-9]' | grep -vE 'etc/(fstab|mtab)' || true)
  [[ -z $left ]] || die "the package has left something: $left"
  inside test -s /srv/vol.img || die 'a volume is gone'
  remove "$root"
  step "$(basename "$package") works."
}

for package in "$@"; do
  case $package in
  *.deb) try deb "$(realpath "$package")" ;;
  *.rpm)
    if ! command -v rpmbuild >/dev/null; then
      echo "== NOT CHECKED: $(basename "$package"): rpm is not installed" >&2
      continue
    fi
    try rpm "$(realpath "$package")"
    ;;
  esac
done
