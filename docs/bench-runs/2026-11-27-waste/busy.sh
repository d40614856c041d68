#!/usr/bin/env bash
# Empty files in 100 directories for each of two threads, which fill them in turn: each checkpoint
# writes many leaves of the directories anew, and the volume is never idle. Every ten seconds:
# seconds, bytes and number of the objects. Then the files made in a second, what the volume says of
# itself, and the bytes and objects that are in the store after it was closed.
#
#   busy.sh SHOAL DIRECTORY FILES-OF-A-THREAD
set -euo pipefail
shoal=$1 directory=$2 files=$3
rm -rf "$directory"
mkdir -p "$directory"
"$shoal" mkfs "file://$directory" >/dev/null
"$shoal" bench create --target "vol:file://$directory" --reuse --keep --threads 2 \
  --files "$files" --dirs 100 --cache 1G >"$directory.bench" 2>&1 &
pid=$!
begun=$SECONDS
stored() { find "$directory/data" "$directory/log" -type f -printf '%s\n' 2>/dev/null | awk '{ sum += $1 } END { print sum + 0, NR }'; }
while kill -0 $pid 2>/dev/null; do
  echo "$((SECONDS - begun)) $(stored)"
  sleep 10
done
grep -o 'rate .*' "$directory.bench"
"$shoal" info --json "file://$directory" |
  grep -o '"\(live_bytes\|segment_size\|segments\|segments_free\|pieces\|stored_bytes\)":[0-9]*' | xargs
echo "in the store: $(stored)"
rm -rf "$directory" "$directory.bench"
