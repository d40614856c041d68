#!/usr/bin/env bash
# Creates empty files with fs_mark on Shoal's mount, on a FUSE server that does nothing and on kernel
# filesystems, interleaved, and prints a table of medians. `cargo xtask lab --only fs-mark` measures
# the default mount alone: not each transport, no server that does nothing, no sizes.
#
#   KERNEL_FS=PROGRAM scripts/fs-mark.sh [OPTIONS]
#
# PROGRAM makes a fresh kernel filesystem on RAM: `PROGRAM up KIND DIR [SIZE]`, `PROGRAM down DIR`.
# Needs root and fs_mark (Debian: fsmark). Where other work runs at the same time, look at the
# processor time for each file, too.
#
#   --files N       files for each thread (default: 100000)
#   --size N        bytes of each (default: 0)
#   --threads N     threads, each with a directory of its own (default: 2)
#   --rounds N      rounds, each with every system on a fresh filesystem (default: 5)
#   --kinds LIST    kernel filesystems (default: "xfs ext4")
#   --mounts LIST   Shoal's mounts, by their options (default: "io_uring=off io_uring=on")
#   --nothing LIST  mounts of the server that does nothing (default: "io_uring=off io_uring=on")
#   --out FILE      raw results, a JSON line each (default: none)
#   SHOAL=FILE NOTHING=FILE   use these binaries instead of building them
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
source scripts/mounts.sh

files=100000 size=0 threads=2 rounds=5 kinds="xfs ext4" out=/dev/null
mounts="io_uring=off io_uring=on" nothings=$mounts
while (($#)); do
  case $1 in
    --files) files=${2:?} && shift 2 ;;
    --size) size=${2:?} && shift 2 ;;
    --threads) threads=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --mounts) mounts=$2 && shift 2 ;;
    --nothing) nothings=$2 && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
command -v fs_mark >/dev/null || die "no fs_mark: install fsmark"

measure() {  # SYSTEM [SERVER]
  local dirs=() i server
  for ((i = 0; i < threads; i++)); do dirs+=(-d "$work/mnt/$i"); done
  TIMEFORMAT='%U %S'
  { time (cd "$work" && fs_mark -D 1000 -S 0 -n "$files" -s "$size" -L 1 -k "${dirs[@]}" \
    -l "$work/fs_mark.log" >"$work/fs_mark.out" 2>&1); } 2>"$work/time"
  server=$(used_by "${2:-}")
  awk -v name="$1" -v server="$server" -v n=$((files * threads)) -v threads="$threads" \
    -v size="$size" -v load="$(cut -d' ' -f1 /proc/loadavg)" '
    NR == FNR { own = $1 + $2; next }
    $1 ~ /^[0-9]+$/ && NF >= 5 {
      printf "{\"system\":\"%s\",\"threads\":%d,\"size\":%d,\"files_per_second\":%.1f,", \
        name, threads, size, $4
      printf "\"cpu_us_per_file\":%.2f,\"load\":%s}\n", (own + server) * 1e6 / n, load
    }' "$work/time" "$work/fs_mark.out" | tee -a "$out" "$work/all"
}

print_table() {
  printf '\n| %s threads, %s bytes | files/s | CPU µs/file |\n| --- | ---: | ---: |\n' "$threads" "$size"
  sed 's/.*"system":"\([^"]*\)".*"files_per_second":\([0-9.]*\).*file":\([0-9.]*\).*/\1\t\2\t\3/' \
    "$work/all" | sort -t $'\t' -k1,1 -k2,2n | awk -F '\t' '
    function flush() { if (n) printf "| %s | %.0f | %.1f |\n", name, r[int((n + 1) / 2)], cpu / n }
    $1 != name { flush(); name = $1; n = 0; cpu = 0 }
    { r[++n] = $2; cpu += $3 }
    END { flush() }'
}

run_rounds
print_table
