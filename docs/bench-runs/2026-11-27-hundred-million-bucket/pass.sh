#!/usr/bin/env bash
# All attributes of files in some directories of a volume in file:///DIRECTORY, through a mount with
# cache=64M, by several programs in turn. Each line: the program, seconds, the most memory that the
# server had (kB), requests to the store, bytes received.
#
#   pass.sh DIRECTORY LIST ROUNDS SHOAL...     LIST: a file with names of directories
set -euo pipefail
volume=file://$1 list=$2 rounds=$3
shift 3
mount=$(mktemp -d)
mapfile -t places <"$list"
for ((round = 0; round < rounds; round++)); do
  for shoal in "$@"; do
    "$shoal" mount -o ro,cache=64M,keeper=off "$volume" "$mount"
    pid=$("$shoal" info --json "$mount" | sed 's/.*"server":\([0-9]*\).*/\1/')
    begun=$(date +%s%N)
    (cd "$mount" && "$shoal" find "${places[@]}" -newermt 2030-01-01)
    ended=$(date +%s%N)
    memory=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")
    requests=$("$shoal" stats "$mount" |
      awk '$1 == "store_get" { get = $2 } $1 == "store_received_bytes" { print get, $2 }')
    echo "$(basename "$shoal") $(((ended - begun) / 1000000))e-3 $memory $requests"
    "$shoal" umount "$mount"
  done
done
rmdir "$mount"
