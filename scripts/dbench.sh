#!/usr/bin/env bash
# Runs dbench, a file server's mix of calls, on Shoal's mount and on kernel filesystems,
# interleaved, and prints a table of medians.
#
#   KERNEL_FS=PROGRAM scripts/dbench.sh [OPTIONS]
#
# PROGRAM makes a fresh kernel filesystem on RAM: `PROGRAM up KIND DIR [SIZE]`, `PROGRAM down DIR`.
# Needs root and dbench (Debian: dbench).
#
#   --clients N     clients, each a process (default: 4)
#   --seconds N     seconds of each run (default: 20)
#   --rounds N      rounds, each with every system on a fresh filesystem (default: 5)
#   --kinds LIST    kernel filesystems (default: xfs)
#   --mounts LIST   Shoal's mounts, by their options (default: "io_uring=off io_uring=on")
#   --out FILE      raw results, a JSON line each (default: none)
#   SHOAL=FILE      use this binary instead of building it
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
source scripts/mounts.sh

# The server that does nothing keeps no contents: not a peer here.
clients=4 seconds=20 rounds=5 kinds=xfs out=/dev/null mounts="io_uring=off io_uring=on" nothings=''
while (($#)); do
  case $1 in
    --clients) clients=${2:?} && shift 2 ;;
    --seconds) seconds=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --mounts) mounts=$2 && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
command -v dbench >/dev/null || die "no dbench: install dbench"

measure() {  # SYSTEM
  dbench --timelimit "$seconds" --directory "$work/mnt" "$clients" \
    >"$work/dbench.out"
  awk -v name="$1" -v clients="$clients" -v load="$(cut -d' ' -f1 /proc/loadavg)" '
    /^Throughput/ {
      split($NF == "ms" ? $(NF - 1) : $NF, latency, "=")
      printf "{\"system\":\"%s\",\"clients\":%d,\"mb_per_second\":%.1f,\"max_latency_ms\":%.3f,\"load\":%s}\n", \
        name, clients, $2, latency[2], load
    }' "$work/dbench.out" | tee -a "$out" "$work/all"
}

print_table() {
  printf '\n| dbench, %s clients | MB/s | longest call, ms |\n| --- | ---: | ---: |\n' "$clients"
  sed 's/.*"system":"\([^"]*\)".*"mb_per_second":\([0-9.]*\),"max_latency_ms":\([0-9.]*\).*/\1\t\2\t\3/' \
    "$work/all" | sort -t $'\t' -k1,1 -k2,2n | awk -F '\t' '
    function flush() { if (n) printf "| %s | %.1f | %.1f |\n", name, r[int((n + 1) / 2)], worst }
    $1 != name { flush(); name = $1; n = 0; worst = 0 }
    { r[++n] = $2; if ($3 > worst) worst = $3 }
    END { flush() }'
}

run_rounds
print_table
