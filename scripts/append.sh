#!/usr/bin/env bash
# Writes files in order, a little at a time, on Shoal's mount, on a FUSE server that does nothing and
# on kernel filesystems, interleaved, and prints a table of medians: what mail, logs, tar and
# compilers do. For Shoal also the bytes written to the device for each byte, checkpoint included.
#
#   KERNEL_FS=PROGRAM scripts/append.sh [OPTIONS]
#
# PROGRAM makes a fresh kernel filesystem on RAM: `PROGRAM up KIND DIR [SIZE]`, `PROGRAM down DIR`.
# Needs root.
#
#   --files N       files for each thread (default: 32)
#   --bytes SIZE    bytes of each (default: 4M)
#   --block SIZE    bytes of each write (default: 4K)
#   --together N    files of a thread that are written in turns (default: 1)
#   --threads N     threads (default: 1)
#   --rounds N      rounds, each with every system on a fresh filesystem (default: 5)
#   --kinds LIST    kernel filesystems (default: "xfs")
#   --mounts LIST   Shoal's mounts, by their options (default: "io_uring=off io_uring=on")
#   --nothing LIST  mounts of the server that does nothing (default: "io_uring=off io_uring=on")
#   --out FILE      raw results, a JSON line each (default: none)
#   SHOAL=FILE NOTHING=FILE   use these binaries instead of building them
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
source scripts/mounts.sh

files=32 bytes=4M block=4K together=1 threads=1 rounds=5 kinds=xfs out=/dev/null
mounts="io_uring=off io_uring=on" nothings=$mounts
while (($#)); do
  case $1 in
    --files) files=${2:?} && shift 2 ;;
    --bytes) bytes=${2:?} && shift 2 ;;
    --block) block=${2:?} && shift 2 ;;
    --together) together=${2:?} && shift 2 ;;
    --threads) threads=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --mounts) mounts=$2 && shift 2 ;;
    --nothing) nothings=$2 && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done

# Bytes that a mount of Shoal has written: journal, checkpoints, data.
device_bytes() {
  "$shoal" stats "$work/mnt" --json | tr ',{}' '\n' |
    awk -F: '/"(journal_bytes|checkpoint_bytes|data_bytes_written)"/ { sum += $2 } END { print sum + 0 }'
}

measure() {  # SYSTEM [SERVER]
  local server before=0 written=0
  [[ $1 == shoal* ]] && before=$(device_bytes)
  server=$(used_by "${2:-}")
  "$shoal" bench append --target "dir:$work/mnt" --files "$files" --threads "$threads" --json \
    --file-bytes "$bytes" --block-bytes "$block" --together "$together" >"$work/bench.out"
  server=$(awk -v a="$server" -v b="$(used_by "${2:-}")" 'BEGIN { print b - a }')
  # The bench ends with a sync, whose checkpoint is the last that is written for this.
  [[ $1 == shoal* ]] && written=$(($(device_bytes) - before))
  awk -v name="$1" -v server="$server" -v written="$written" -v block="$(numfmt --from=iec "$block")" \
    -v load="$(cut -d' ' -f1 /proc/loadavg)" '
    function field(name) { match($0, "\"" name "\":[0-9.]+"); return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) }
    { ops = field("ops")
      printf "{\"system\":\"%s\",\"block\":%d,\"us_per_write\":%.3f,", name, block, field("seconds") * 1e6 / ops
      printf "\"cpu_us_per_write\":%.3f,\"device_bytes_per_byte\":%.3f,\"load\":%s}\n", \
        (field("cpu_seconds") + server) * 1e6 / ops, written / (ops * block), load }' \
    "$work/bench.out" | tee -a "$out" "$work/all"
}

print_table() {
  printf '\n| %s bytes at a time, %s together | µs a write | CPU µs | device bytes a byte |\n' "$block" "$together"
  printf '| --- | ---: | ---: | ---: |\n'
  sed 's/.*"system":"\([^"]*\)".*"us_per_write":\([0-9.]*\),"cpu_us_per_write":\([0-9.]*\),"device_bytes_per_byte":\([0-9.]*\).*/\1\t\2\t\3\t\4/' \
    "$work/all" | sort -t $'\t' -k1,1 -k2,2n | awk -F '\t' '
    function flush() { if (n) printf "| %s | %.2f | %.2f | %s |\n", name, r[int((n + 1) / 2)], cpu / n, bytes ? sprintf("%.2f", bytes / n) : "" }
    $1 != name { flush(); name = $1; n = 0; cpu = 0; bytes = 0 }
    { r[++n] = $2; cpu += $3; bytes += $4 }
    END { flush() }'
}

run_rounds
print_table
