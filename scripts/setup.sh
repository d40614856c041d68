#!/usr/bin/env bash
# Installs what building, testing and showing Shoal needs beyond Rust itself, on Debian or Ubuntu.
# Quiet, and does nothing where all is there. Without root it only says what is missing.
#
#   scripts/setup.sh [--check]     --check: install nothing
set -euo pipefail
cd "$(dirname "$0")/.."

# Command → Debian package that has it. cc links every Rust program; the rest is for the tests on
# a mount and for the tour, which fall back to the library, saying so, where fuse3 is missing.
needed=(
  cc:gcc ld:binutils git:git
  fusermount3:fuse3 rsync:rsync sqlite3:sqlite3 setfacl:acl getfattr:attr
  tar:tar findmnt:util-linux mount:mount pgrep:procps
)

missing=()
for row in "${needed[@]}"; do
  command -v "${row%%:*}" >/dev/null || missing+=("${row##*:}")
done
# gcc alone has no C library to link against.
[[ -e /usr/include/stdlib.h ]] || missing+=(libc6-dev)

if ((${#missing[@]})); then
  if [[ ${1:-} == --check || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "setup: missing: ${missing[*]}; install them (as root: apt-get install ${missing[*]})" >&2
    [[ ${1:-} != --check ]] || exit 1
  else
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq &&
      apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } ||
      { echo "setup: apt-get could not install ${missing[*]}" >&2; exit 1; }
  fi
fi

if ! command -v cargo >/dev/null; then
  version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  echo "setup: no cargo; install Rust $version or newer from https://rustup.rs" >&2
  exit 1
fi
for part in rustfmt clippy; do
  tool=$part; [[ $part == clippy ]] && tool=clippy-driver
  if ! command -v "$tool" >/dev/null || ! "$tool" --version >/dev/null 2>&1; then
    echo "setup: adding $part"
    rustup component add "$part" >/dev/null 2>&1 || {
      echo "setup: cannot add $part; install your system's package of it" >&2
      exit 1
    }
  fi
done
