#!/usr/bin/env bash
# Measures Shoal beside kernel filesystems, interleaved, in one run on one machine, and prints a
# table of medians. Raw results go to docs/bench-runs/DATE/.
#
#   KERNEL_FS=PROGRAM scripts/compare.sh [OPTIONS]
#
# PROGRAM makes a fresh kernel filesystem on RAM: `PROGRAM up KIND DIR [SIZE]`, `PROGRAM down DIR`.
# Needs root. Volumes of Shoal go to /dev/shm, so that all of them are on RAM.
#
#   --files N        files for each thread (default: 100000)
#   --threads N      threads (default: 2)
#   --rounds N       rounds, each with every system on a fresh filesystem (default: 5)
#   --kinds LIST     kernel filesystems (default: "tmpfs xfs xfs-parent ext4 btrfs")
#   --workloads LIST (default: "create stat readdirplus unlink")
#   --no-mount       without Shoal's mount
#   --out DIR        raw results (default: docs/bench-runs/DATE)
#   SHOAL=FILE       use this binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

files=100000 threads=2 rounds=5 kinds="tmpfs xfs xfs-parent ext4 btrfs" mounted=1
workloads="create stat readdirplus unlink" out=docs/bench-runs/$(date +%F)
while (($#)); do
  case $1 in
    --files) files=${2:?} && shift 2 ;;
    --threads) threads=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --workloads) workloads=${2:?} && shift 2 ;;
    --no-mount) mounted='' && shift ;;
    --out) out=${2:?} && shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
[[ -z $kinds || -x ${KERNEL_FS:-} ]] || die "set KERNEL_FS to the program that mounts kernel filesystems"
[[ -z $mounted ]] || can_mount || die "cannot mount here: use --no-mount"

measure() {  # SYSTEM WORKLOAD TARGET
  local line rate
  line=$("$shoal" bench "$2" --target "$3" --files "$files" --threads "$threads" --json | tail -n 1)
  # The raw line, with the system's name first, and without the scratch folder's.
  line="{\"system\":\"$1\",${line#\{}"
  printf '%s\n' "${line//$work/SCRATCH}" >>"$out/$2.jsonl"
  rate=$(sed -n 's/.*"ops_per_second":\([0-9.]*\).*/\1/p' <<<"$line")
  printf '%s %s %s\n' "$2" "$1" "$rate" | tee -a "$work/rates"
}

on_kernel() {  # KIND WORKLOAD
  "$KERNEL_FS" up "$1" "$work/mnt" 16G >/dev/null
  measure "$1" "$2" "dir:$work/mnt"
  "$KERNEL_FS" down "$work/mnt"
}

on_mount() {  # WORKLOAD
  "$shoal" mkfs "$work/vol.img" --size 16G >/dev/null
  mount_volume "$work/vol.img" "$work/mnt"
  measure shoal-mount "$1" "dir:$work/mnt"
  unmount_volume "$work/mnt"
  rm "$work/vol.img"
}

describe_machine() {
  echo "date: $(date -u +%FT%TZ)"
  echo "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ' with changes')"
  echo "kernel: $(uname -r)"
  echo "processors: $(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
  echo "memory: $(awk '/MemTotal/{printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
  echo "run: $threads threads, $files files each, $rounds rounds, everything on RAM"
}

# A row for each system, a column for each workload, medians in thousands a second.
print_table() {
  local system workload
  # shellcheck disable=SC2086  # the list is split on purpose
  printf '\n| thousands/s |'; printf ' %s |' $workloads
  printf '\n| --- |'; printf ' ---: |%.0s' $workloads; printf '\n'
  for system in shoal-library ${mounted:+shoal-mount} $kinds; do
    printf '| %s |' "$system"
    for workload in $workloads; do
      awk -v w="$workload" -v s="$system" '$1 == w && $2 == s { print $3 }' "$work/rates" | sort -n |
        awk '{ r[NR] = $1 } END { m = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
               printf " %.1f |", m / 1000 }'
    done
    printf '\n'
  done
}

build_shoal
make_work /dev/shm
mkdir -p "$work/mnt" "$out"
describe_machine | tee "$out/machine.txt"
for ((round = 1; round <= rounds; round++)); do
  step "round $round of $rounds"
  for workload in $workloads; do
    measure shoal-library "$workload" "vol:$work/vol.img"
    [[ -z $mounted ]] || on_mount "$workload"
    for kind in $kinds; do on_kernel "$kind" "$workload"; done
  done
done
print_table | tee "$out/medians.md"
