#!/usr/bin/env bash
# Opening a volume in file:///DIRECTORY cold, five times: seconds, the most memory (kB), requests.
#
#   cold.sh SHOAL DIRECTORY FILE
set -euo pipefail
for ((n = 0; n < 5; n++)); do
  echo 3 >/proc/sys/vm/drop_caches
  /usr/bin/time -f 'info: %e s, %M kB' "$1" info --json "file://$2" | grep -o '"\(get\|list\|received_bytes\)":[0-9]*' | xargs
  echo 3 >/proc/sys/vm/drop_caches
  /usr/bin/time -f 'stat of a file: %e s, %M kB' "$1" stat "file://$2:$3" >/dev/null
done 2>&1
