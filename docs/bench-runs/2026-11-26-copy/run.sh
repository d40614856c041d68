#!/usr/bin/env bash
# A volume of two million files, a million by each thread, is copied, and brought up to date after
# 20,000 of them, everywhere in the tree, have been written: by shoal copy, and by what else does it.
# Everything is in memory.
#
#   run.sh SHOAL KERNEL_FS     needs root, /dev/fuse, btrfs-progs, rsync, python3, 16 GiB of memory
#
# KERNEL_FS makes and mounts a fresh filesystem: KERNEL_FS up btrfs DIR SIZE, KERNEL_FS down DIR.
set -euo pipefail
shoal=$1 kernel_fs=$2
work=$(mktemp -d /dev/shm/copy.XXXXXX)
cd "$work"
mkdir m old new
trap 'cd /; "$shoal" umount "$work/m" 2>/dev/null || true; for d in old new; do "$kernel_fs" down "$work/$d" || true; done
  rm -rf "$work"' EXIT

timed() { # NAME COMMAND: seconds of wall time
  local start end
  start=$(date +%s.%N)
  bash -c "$2" >out 2>err || { cat err >&2; exit 1; }
  end=$(date +%s.%N)
  echo "$1 $(echo "$end - $start" | bc)"
}
# Writes 100 bytes to each hundredth file below a directory, beginning with the nth.
change() {
  python3 - "$1" "$2" <<'P'
import os, sys
top, n = sys.argv[1], int(sys.argv[2])
if not os.path.exists('list'):
    with open('list', 'w') as out:
        for folder, _, files in os.walk(top):
            for name in files:
                out.write(os.path.relpath(os.path.join(folder, name), top) + '\n')
for line in sorted(open('list').read().splitlines())[n::100]:
    with open(os.path.join(top, line), 'wb') as out:
        out.write(b'x' * 100)
P
}

echo "# $(uname -r), $("$shoal" --version), $(btrfs --version), $(rsync --version | head -1)"
"$shoal" bench create --target vol:"$work/v" --threads 2 --files 1000000 --keep >/dev/null
echo "# first copies"
for round in 1 2 3 4 5; do
  rm -f w; timed "round $round whole shoal-copy" "$shoal copy --json v w"
  cat out
  rm -f x; timed "round $round whole cp" "cp --sparse=always v x && sync -d x"
  rm -f x; timed "round $round whole dump-restore" "$shoal dump v | $shoal restore - x"
done
cp --sparse=always v r

"$kernel_fs" up btrfs "$work/old" 8G >/dev/null
"$kernel_fs" up btrfs "$work/new" 8G >/dev/null
btrfs subvolume create old/src >/dev/null
"$shoal" bench create --target dir:"$work/old/src" --threads 2 --files 1000000 --keep >/dev/null
btrfs subvolume snapshot -r old/src old/s0 >/dev/null
timed "btrfs whole send-receive" "btrfs send -q old/s0 | btrfs receive -q new && sync -f new"

echo "# 20,000 of two million files changed"
for round in 1 2 3 4 5; do
  "$shoal" mount v m
  change "$work/m" "$round"
  "$shoal" umount m
  timed "round $round increment shoal-copy" "$shoal copy --json v w"
  cat out
  timed "round $round increment rsync-inplace" "rsync --inplace --no-whole-file v r && sync -d r"
  [[ $round == 1 ]] && mv list list.v
  top=$(echo old/src/*)
  [[ $round == 1 ]] || mv list.b list
  change "$work/$top" "$round"
  mv list list.b; cp list.v list
  btrfs subvolume snapshot -r old/src "old/s$round" >/dev/null
  timed "round $round increment btrfs-send-receive" \
    "btrfs send -q -p old/s$((round - 1)) old/s$round | btrfs receive -q new && sync -f new"
done
"$shoal" fsck w | tail -1
