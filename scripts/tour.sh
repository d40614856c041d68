#!/usr/bin/env bash
# A tour of Shoal on a real directory tree: make a volume, fill it, mount it, list it, kill its
# server without warning while programs go on, then its keeper too, recover, check, remove. Without
# FUSE, the same without the mount. Leaves nothing behind.
#
#   scripts/tour.sh [--tree DIR] [--files N] [--keep]
#
#   --tree DIR   tree to fill the volume with (default: /usr/share)
#   --files N    stop filling after about N files (default: 50000)
#   --keep       leave volume and scratch folder
#   SHOAL=FILE   use this binary instead of building one, which is built for a first look, quickly
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

tree=/usr/share files=50000 keep=''
while (($#)); do
  case $1 in
    --tree) tree=${2:?} && shift 2 ;;
    --files) files=${2:?} && shift 2 ;;
    --keep) keep=1 && shift ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
[[ -d $tree ]] || die "$tree is not a directory"

# Entries of the tree until there are enough files.
choose_entries() {
  local entry count=0
  entries=()
  for entry in "$tree"/*; do
    ((count >= files)) && break
    entries+=("$entry")
    count=$((count + $(find "$entry" -xdev | wc -l)))
  done
  ((${#entries[@]})) || die "$tree is empty"
  echo "$count files and directories, $(du -sch -x "${entries[@]}" | tail -1 | cut -f1), from $tree"
}

# Everything about a tree that must survive a copy: types, modes, sizes, times, targets, contents.
fingerprint() {
  (cd "$1" && find . -mindepth 1 \( -type d -printf '%p %y %m\n' \) -o \
    \( -type l -printf '%p %y %l\n' \) -o -printf '%p %y %m %s %T@\n' | LC_ALL=C sort | cksum
   find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum | cksum)
}

library_part() {
  step "Look into it without a mount"
  run "$shoal" ls -l "$volume:/tree" | tail -n 6
  run "$shoal" stat "$volume:/tree/${entries[0]##*/}"
  step "Take it out again: is it the same?"
  run "$shoal" cp -r "$volume:/tree" "$work/out"
  compare "$work/out"
  step "Check everything"
  run "$shoal" fsck "$volume"
  step "Remove it"
  run "$shoal" rm -r "$volume:/tree"
  run "$shoal" fsck "$volume"
}

subvolumes_part() {
  step "A subvolume: a tree with inodes of its own, deleted at once, freed in the background"
  run "$shoal" subvolume create "$volume" scratch
  run "$shoal" cp -r "${entries[0]}" "$volume:/scratch" | tail -n 1
  run "$shoal" subvolume list "$volume"
  run "$shoal" subvolume delete "$volume" scratch
  run "$shoal" info "$volume" | grep -E 'subvolumes|inodes'
  run "$shoal" fsck "$volume"
}

compare() {
  mkdir -p "$work/in"
  [[ -e $work/in/done ]] || { cp -a "${entries[@]}" "$work/in/"; fingerprint "$work/in" >"$work/want"; }
  touch "$work/in/done"
  if [[ $(fingerprint "$1") == "$(cat "$work/want")" ]]; then
    echo "identical: names, types, modes, times, contents"
  else
    die "$1 differs from the original"
  fi
}

mount_part() {
  local mnt=$work/mnt acknowledged=$work/acknowledged
  step "Mount it, and use it with the system's own programs"
  run mount_volume "$volume" "$mnt"
  run ls -l "$mnt"
  echo "$(run find "$mnt" -ls | wc -l) lines of find -ls"
  run stat -c '%n: %F, %s bytes, inode %i' "$mnt/tree/${entries[0]##*/}"
  compare "$mnt/tree"
  step "Write files, each acknowledged by fsync; kill -9 the server in the middle"
  # From within: once the dead mount is gone, the same path is a plain folder, where writing works.
  # And what was written is known beforehand: reading from a dying mount may find nothing.
  (cd "$mnt" && for ((n = 0; ; n++)); do
    head -c 900 /dev/urandom >"$work/note"
    dd if="$work/note" of="note.$n" conv=fsync status=none 2>/dev/null || exit 0
    cksum <"$work/note" | sed "s/$/ note.$n/" >>"$acknowledged"
  done) 2>/dev/null &
  local writer=$!
  sleep 1
  if [[ -n $(server_of_mount) ]]; then
    local before
    for n in 1 2 3; do
      before=$(wc -l <"$acknowledged")
      run kill_server
      sleep 0.5
      echo "$(($(wc -l <"$acknowledged") - before)) files were acknowledged since: the writer goes on"
    done
    kill -0 "$writer" 2>/dev/null || die "the writer has failed"
    step "Kill the keeper too, so that nobody is left"
  fi
  run kill_daemon "$mnt"
  wait "$writer" 2>/dev/null || true
  step "Mount again: recovery, then every acknowledged file must be there"
  run mount_volume "$volume" "$mnt"
  local lost=0 sum size name
  while read -r sum size name; do
    [[ -n $name && "$(cksum <"$mnt/$name")" != "$sum $size" ]] && lost=$((lost + 1))
  done <"$acknowledged"
  echo "$(wc -l <"$acknowledged") files were acknowledged, $lost are missing or wrong"
  ((lost == 0)) || die "acknowledged files were lost"
  compare "$mnt/tree"
  run unmount_volume "$mnt"
  step "Check everything"
  run "$shoal" fsck "$volume"
  step "Remove the tree"
  run mount_volume "$volume" "$mnt"
  run rm -r "$mnt/tree"
  run df -h "$mnt"
  run unmount_volume "$mnt"
  run "$shoal" fsck "$volume"
}

scripts/setup.sh || echo "going on with what there is"
build_shoal quick
make_work
volume=$work/vol.img
step "Make a volume"
run "$shoal" mkfs "$volume" --size 8G
step "Fill it with a real tree"
choose_entries
run "$shoal" mkdir "$volume:/tree"
run "$shoal" cp -r "${entries[@]}" "$volume:/tree" | tail -n 3
du -h "$volume" | sed "s|$work/||"
subvolumes_part
if can_mount; then
  mount_part
else
  echo "no /dev/fuse, or no right to use it: going on without a mount"
  library_part
fi
step "How fast is it here? (library, 2 threads; a release is about twice as fast; shoal bench --help)"
run "$shoal" bench create --target "vol:$work/bench.img" --threads 2 --files 200000
step "The tour is done: all checks passed"
