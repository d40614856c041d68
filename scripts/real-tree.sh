#!/usr/bin/env bash
# Proof on real input: unmodified programs on a mounted volume, every result compared with the same
# on the system's own filesystem. Ends with status 0 only when nothing differs.
#
#   scripts/real-tree.sh [--tree DIR]... [--work DIR] [--keep] [-- MOUNT OPTIONS]
#
#   --tree DIR   copy this tree (default: /usr/share; may be given several times)
#   --work DIR   where scratch folder and volume go (default: $TMPDIR or /tmp)
#   --keep       leave them
#   SHOAL=FILE   use this binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

trees=() place='' keep='' options=()
while (($#)); do
  case $1 in
    --tree) trees+=("$(realpath "${2:?}")") && shift 2 ;;
    --work) place=${2:?} && shift 2 ;;
    --keep) keep=1 && shift ;;
    --) shift && options=("$@") && break ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
((${#trees[@]})) || trees=(/usr/share)
can_mount || die "needs /dev/fuse and the right to mount"

# A tar of a tree as a checksum: contents, modes, owners, times, links, in order of names.
tar_sum() { tar -C "$1" --sort=name --numeric-owner -cf - . | sha256sum; }

# What rsync would still have to do; nothing, for a faithful copy.
left_to_do() { rsync -aH --checksum --dry-run --itemize-changes "$1/" "$2/"; }

must_be_empty() {  # TITLE TEXT
  [[ -z $2 ]] || { printf '%s\n' "$2" | head -n 20 >&2; die "$1"; }
  echo "  nothing differs"
}

copy_tree() {
  local from=$1 to=$mnt/${1//\//_}
  step "cp -a $from ($(find "$from" -xdev | wc -l) files)"
  run cp -a "$from" "$to.cp"
  must_be_empty "cp -a: a difference" "$(left_to_do "$from" "$to.cp")"
  step "rsync -aH --checksum $from, twice"
  run rsync -aH --checksum "$from/" "$to.rsync/"
  must_be_empty "the second rsync had work" \
    "$(rsync -aH --checksum --itemize-changes "$from/" "$to.rsync/")"
  step "tar of the copy and of the original"
  [[ $(tar_sum "$to.cp") == "$(tar_sum "$to.rsync")" ]] || die "tar: the two copies differ"
  # Only root can give a copy the original's owners.
  if [[ $(id -u) == 0 ]]; then
    [[ $(tar_sum "$from") == "$(tar_sum "$to.cp")" ]] || die "tar: copy and original differ"
  fi
  run tar -C "$to.cp" -cf "$mnt/tree.tar" .
  mkdir "$to.tar"
  run tar -C "$to.tar" -xpf "$mnt/tree.tar"
  must_be_empty "tar: unpacked differently" "$(left_to_do "$from" "$to.tar")"
  run rm -r "$to.tar" "$mnt/tree.tar"
}

use_git() {
  step "git: a repository on the mount, cloned, with clean status"
  local origin=$mnt/git.origin git=(git -c user.name=a -c user.email=a@b -c init.defaultBranch=main)
  mkdir "$origin"
  git ls-files -z | xargs -0 cp --parents -t "$origin" 2>/dev/null || cp -a crates docs "$origin/"
  run "${git[@]}" -C "$origin" init -q
  run "${git[@]}" -C "$origin" add -A
  run "${git[@]}" -C "$origin" commit -q -m all
  run "${git[@]}" clone -q --no-hardlinks "$origin" "$mnt/git.clone"
  must_be_empty "git status is not clean" "$(git -C "$mnt/git.clone" status --porcelain)"
  run git -C "$mnt/git.clone" fsck --full --strict --no-progress
  run git -C "$mnt/git.clone" gc -q
  must_be_empty "git status is not clean after gc" "$(git -C "$mnt/git.clone" status --porcelain)"
}

use_sqlite() {
  local mode database rows
  for mode in delete wal; do
    step "SQLite, journal mode $mode"
    database=$mnt/$mode.db
    { echo "PRAGMA journal_mode=$mode; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);"
      for ((n = 0; n < 200; n++)); do
        echo "BEGIN; INSERT INTO t(b) SELECT hex(randomblob(60)) FROM generate_series(1,50); COMMIT;"
      done
      echo "DELETE FROM t WHERE a % 3 = 0; VACUUM;"; } >"$work/$mode.sql"
    run sqlite3 "$database" ".read $work/$mode.sql" >/dev/null
    rows=$(sqlite3 "$database" 'SELECT count(*) FROM t; PRAGMA integrity_check;' | tr '\n' ' ')
    [[ $rows == "6667 ok " ]] || die "SQLite says: $rows"
    echo "  6667 rows, integrity ok"
  done
}

use_cargo() {
  step "cargo build, with source and target folder on the mount"
  mkdir -p "$mnt/hello/src"
  printf '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n' \
    >"$mnt/hello/Cargo.toml"
  echo 'fn main() { println!("built on the mount"); }' >"$mnt/hello/src/main.rs"
  (cd "$mnt/hello" && CARGO_TARGET_DIR="$mnt/hello/target" run cargo build --quiet --offline)
  [[ $("$mnt/hello/target/debug/hello") == "built on the mount" ]] || die "the program does not run"
  touch -d '+2 seconds' "$mnt/hello/src/main.rs"
  (cd "$mnt/hello" && CARGO_TARGET_DIR="$mnt/hello/target" run cargo build --quiet --offline)
  echo "  it runs"
}

build_shoal
make_work "$place"
volume=$work/vol.img mnt=$work/mnt
step "A volume, mounted"
run "$shoal" mkfs "$volume" --size 64G
run mount_volume "$volume" "$mnt" "${options[@]}"
for tree in "${trees[@]}"; do copy_tree "$tree"; done
use_git
use_sqlite
use_cargo
step "Unmount, check, mount again: still the same?"
run unmount_volume "$mnt"
run "$shoal" fsck "$volume"
run mount_volume "$volume" "$mnt" "${options[@]}"
for tree in "${trees[@]}"; do
  must_be_empty "after mounting again" "$(left_to_do "$tree" "$mnt/${tree//\//_}.cp")"
  must_be_empty "after mounting again" "$(left_to_do "$tree" "$mnt/${tree//\//_}.rsync")"
done
must_be_empty "git status after mounting again" "$(git -C "$mnt/git.clone" status --porcelain)"
step "Remove everything, unmount, check"
run rm -r "${mnt:?}"/*
[[ -z $(ls -A "$mnt") ]] || die "something is left"
run unmount_volume "$mnt"
run "$shoal" fsck "$volume"
step "Nothing differed"
