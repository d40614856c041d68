#!/usr/bin/env bash
# Makes packages: a .deb with dpkg-deb, a .rpm with rpmbuild. Both have the same files: the command,
# the helpers of mount(8), umount(8), fsck(8) and mkfs(8), manual pages, completions, the udev rule,
# a service unit, the guide. Debug information is in a package beside each, shoal-dbgsym and
# shoal-debuginfo: debuggers and perf find it by the build id. The same commit and binary give the
# same bytes.
#
#   scripts/package.sh [FOLDER]    where the packages go (default: target/package)
#
#   SHOAL=FILE   use this binary instead of building one, and the libshoal_run.so beside it
#   RELEASE=1    number of the packages of this version
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

case ${1:-} in -*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;; esac
build_shoal
shoal=$(realpath "$shoal")
library=$(dirname "$shoal")/libshoal_run.so
[[ -f $library ]] || library=$(dirname "$shoal")/../lib/shoal/libshoal_run.so
[[ -f $library ]] || die "$library is missing: cargo build --release --package shoal-run"
folder=$(realpath -m "${1:-$(target_folder)/package}")
mkdir -p "$folder"
make_work
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C TZ=UTC
umask 022

version=$("$shoal" --version | cut -d' ' -f2)
release=${RELEASE:-1}
about='Filesystem for shoals of small files'
more=(
  'Shoal keeps a POSIX filesystem in one file or block device, and serves hundreds'
  'of millions of small files fast. A volume can be mounted for all programs to'
  'use, or worked on directly by the command shoal. Every byte has a checksum, and'
  'the state after a crash is that after some prefix of the calls.'
)

# Fills $root with the files of a package. ZSH: the folder of zsh's completions differs.
stage() {
  local root=$1 zsh=$2 name
  local doc=$root/usr/share/doc/shoal man=$root/usr/share/man
  install -D "$shoal" "$root/usr/bin/shoal"
  strip --strip-debug "$root/usr/bin/shoal"
  install -Dm644 "$library" "$root/usr/lib/shoal/libshoal_run.so"
  strip --strip-debug "$root/usr/lib/shoal/libshoal_run.so"
  mkdir -p "$root/usr/sbin" "$man/man1" "$man/man8"
  for name in mount.shoal mount.fuse.shoal umount.shoal umount.fuse.shoal fsck.shoal mkfs.shoal; do
    ln -s ../bin/shoal "$root/usr/sbin/$name"
  done
  "$shoal" generate man "$work/man"
  cp "$work"/man/*.1 "$man/man1"
  cp "$work"/man/*.8 "$man/man8"
  gzip -9n "$man"/man?/*
  ln -s mount.shoal.8.gz "$man/man8/mount.fuse.shoal.8.gz"
  ln -s umount.shoal.8.gz "$man/man8/umount.fuse.shoal.8.gz"
  ln -s ../man1/shoal-fsck.1.gz "$man/man8/fsck.shoal.8.gz"
  ln -s ../man1/shoal-mkfs.1.gz "$man/man8/mkfs.shoal.8.gz"
  "$shoal" generate completions "$work/completions"
  install -Dm644 "$work/completions/shoal.bash" "$root/usr/share/bash-completion/completions/shoal"
  install -Dm644 "$work/completions/_shoal" "$root/usr/share/zsh/$zsh/_shoal"
  install -Dm644 "$work/completions/shoal.fish" \
    "$root/usr/share/fish/vendor_completions.d/shoal.fish"
  install -Dm644 packaging/60-shoal.rules "$root/usr/lib/udev/rules.d/60-shoal.rules"
  install -Dm644 packaging/shoal@.service "$root/usr/lib/systemd/system/shoal@.service"
  install -Dm644 -t "$doc/examples" packaging/data.mount
  install -Dm644 -t "$doc" README.md CHANGELOG.md docs/{monitoring,glossary,posix}.md
  install -Dm644 -t "$doc" docs/shoal-alerts.yml
  gzip -9n "$doc/CHANGELOG.md"
  if [[ -d docs/guide ]]; then
    install -Dm644 -t "$doc/guide" docs/guide/*.md
  fi
  find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
}

# Fills a folder with the debug information that `stage` strips from the binary.
stage_debug() {
  local id folder
  id=$(readelf -n "$shoal" | sed -n 's/.*Build ID: \([0-9a-f]*\)$/\1/p')
  [[ $id ]] || die "$shoal has no build id: debug information could not be found by it"
  folder=$1/usr/lib/debug/.build-id/${id:0:2}
  mkdir -p "$folder"
  objcopy --only-keep-debug "$shoal" "$folder/${id:2}.debug"
  chmod 644 "$folder/${id:2}.debug"
}

# What the binaries need of the C library: the newest version of a symbol in them.
libc_needed() {
  objdump -T "$shoal" "$library" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2
}

make_deb() {
  local root=$work/deb architecture
  command -v dpkg-deb >/dev/null || { skipped 'the .deb: dpkg-deb is not installed'; return; }
  architecture=$(dpkg --print-architecture)
  stage "$root" vendor-completions
  {
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    printf '\nFiles: *\nCopyright: the contributors of Shoal\nLicense: MIT or Apache-2.0\n'
    printf '\nLicense: MIT\n'
    sed 's/^$/./; s/^/ /' LICENSE-MIT
    printf '\nLicense: Apache-2.0\n On Debian: /usr/share/common-licenses/Apache-2.0\n'
  } >"$root/usr/share/doc/shoal/copyright"
  mkdir "$root/DEBIAN"
  install -m755 packaging/postinst "$root/DEBIAN/postinst"
  install -m755 packaging/postrm "$root/DEBIAN/postrm"
  build_deb "$root" shoal admin "libc6 (>= $(libc_needed)), libgcc-s1" "$about" "${more[@]}"
  stage_debug "$root-debug"
  install -Dm644 "$root/usr/share/doc/shoal/copyright" \
    "$root-debug/usr/share/doc/shoal-dbgsym/copyright"
  mkdir "$root-debug/DEBIAN"
  build_deb "$root-debug" shoal-dbgsym debug "shoal (= $version-$release)" \
    'Debug information of Shoal' 'For debuggers and profilers, which find it by the build id.'
}

# Makes a .deb of a folder.
build_deb() {  # FOLDER PACKAGE SECTION DEPENDS SUMMARY DESCRIPTION...
  local root=$1 package=$2 out=$folder/$2_$version-${release}_$architecture.deb
  {
    cat <<EOC
Package: $package
Version: $version-$release
Architecture: $architecture
Maintainer: The contributors of Shoal <shoal@example.invalid>
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: $4
EOC
    [[ $package != shoal ]] || echo 'Recommends: fuse3'
    cat <<EOC
Section: $3
Priority: optional
Homepage: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
Description: $5
EOC
    printf ' %s\n' "${@:6}"
  } >"$root/DEBIAN/control"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
  echo "$out"
}

make_rpm() {
  local root=$work/rpm build=$work/rpmbuild spec=$work/shoal.spec
  command -v rpmbuild >/dev/null || { skipped 'the .rpm: rpmbuild is not installed'; return; }
  stage "$root" site-functions
  install -Dm644 -t "$root/usr/share/licenses/shoal" LICENSE-MIT LICENSE-APACHE
  stage_debug "$work/rpm-debug"
  {
    cat <<EOF
Name: shoal
Version: $version
Release: $release
Summary: $about
License: MIT OR Apache-2.0
URL: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
Recommends: fuse3

%description
EOF
    printf '%s\n' "${more[@]}"
    printf '\n%%package debuginfo\nSummary: Debug information of Shoal\n'
    printf 'Requires: shoal = %%{version}-%%{release}\n'
    printf '\n%%description debuginfo\nFor debuggers and profilers, which find it by the build id.\n'
    printf '\n%%install\ncp -a %s/. %s/. %%{buildroot}\n' "$root" "$work/rpm-debug"
    # The same commands as in the .deb, without its arguments.
    printf '\n%%post\n'
    sed 1d packaging/postinst
    printf '\n%%postun\n'
    sed 1d packaging/postrm
    printf '\n%%files\n%%defattr(-,root,root,-)\n'
    # Folders that no package has for certain are its own, or they would stay when it is removed.
    (cd "$root" && find . ! -type d | sed 's/^\.//; s|^/usr/share/licenses/|%license &|' | sort)
    (cd "$root" && find usr/share/{doc/shoal,licenses/shoal,fish,zsh} -type d | sed 's|^|%dir /|')
    printf '\n%%files debuginfo\n%%defattr(-,root,root,-)\n'
    (cd "$work/rpm-debug" && find . -type f | sed 's/^\.//')
  } >"$spec"
  rpmbuild -bb --quiet --define "_topdir $build" --define "_rpmdir $folder" \
    --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
    --define 'clamp_mtime_to_source_date_epoch 1' --define '__os_install_post %{nil}' \
    --define 'debug_package %{nil}' --define '_build_id_links none' \
    --define '_binary_payload w9.xzdio' "$spec"
  # A name that both packages had would be that of one.
  ls "$folder"/shoal{,-debuginfo}-"$version-$release.$(uname -m).rpm"
}

skipped() { echo "== NOT MADE: $1" >&2; missing=1; }

missing=''
make_deb
make_rpm
[[ -z $missing ]]
