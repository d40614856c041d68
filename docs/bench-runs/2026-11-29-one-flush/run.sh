#!/usr/bin/env bash
# Synced writes by mounts of two builds and by the filesystem of a folder, in turns.
#
#   run.sh DIR ROUNDS THREADS FILES NAME=SHOAL...
#
# DIR is on the disk to be measured, NAME the name of the build at the path SHOAL. Prints a line for
# each run: name, threads, files a second (fs_mark: 4 KiB each, fsync of each), and of a mount the
# flushes of the device for each fsync and the median time of an fsync in the server; then for SQLite
# name, journal mode, commits a second. Last, the same from the last build on a volume in a file that
# was written with zeros before ("zeros"), without SQLite.
set -euo pipefail
dir=$1 rounds=$2 threads=$3 files=$4
shift 4
mkdir -p "$dir/mount"

synced() {
  mkdir -p "$2/files"
  (cd "$dir" && fs_mark -d "$2/files" -n "$files" -s 4096 -t "$threads" -S 1 2>/dev/null) |
    tail -1 | awk -v name="$1" -v threads="$threads" '{ printf "%s %s %d", name, threads, $4 }'
  [[ ! ${3:-} ]] || "$3" stats "$2" |
    awk '$1 == "flushes" { n = $2 } $1 == "fsync" && !p { f = $2; p = $4 " " $5 }
      END { printf " %.2f %s", n / f, p }'
  echo
  rm -rf "$2/files"
}

commits() {
  python3 - "$1" "$2" <<'PYTHON'
import os, sqlite3, sys, time
name, where = sys.argv[1:]
for mode in "delete", "wal":
    path = os.path.join(where, mode + ".db")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode=" + mode)
    db.execute("pragma synchronous=full")
    db.execute("create table t(a, b)")
    begun = time.time()
    for i in range(300):
        db.execute("insert into t values(?, ?)", (i, "x" * 100))
    print(name, mode, int(300 / (time.time() - begun)))
    db.close()
    os.remove(path)
PYTHON
}

for _ in $(seq "$rounds"); do
  for build in "$@"; do
    shoal=${build#*=}
    rm -f "$dir/volume"
    "$shoal" mkfs "$dir/volume" --size 2G >/dev/null
    "$shoal" mount "$dir/volume" "$dir/mount"
    synced "${build%%=*}" "$dir/mount" "$shoal"
    commits "${build%%=*}" "$dir/mount"
    "$shoal" umount "$dir/mount"
  done
  synced host "$dir"
  commits host "$dir"
  rm -f "$dir/volume"
  dd if=/dev/zero of="$dir/volume" bs=1M count=512 conv=fsync status=none
  chmod 600 "$dir/volume"
  "$shoal" mkfs "$dir/volume" >/dev/null
  "$shoal" mount -o nodiscard "$dir/volume" "$dir/mount"
  synced zeros "$dir/mount" "$shoal"
  "$shoal" umount "$dir/mount"
done
rm -f "$dir/volume"
