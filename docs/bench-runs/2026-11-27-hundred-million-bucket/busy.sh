#!/usr/bin/env bash
# Ten million empty files in 100 directories for each of two threads, which fill them in turn: each
# checkpoint writes most leaves of the directories anew, and the volume is never idle. Prints the
# files made in a second, and the bytes of the objects at the end.
#
#   busy.sh DIRECTORY SHOAL...
set -euo pipefail
directory=$1
shift
for shoal in "$@"; do
  rm -rf "$directory/busy"
  mkdir "$directory/busy"
  "$shoal" mkfs "file://$directory/busy" >/dev/null
  rate=$("$shoal" bench create --target "vol:file://$directory/busy" --reuse --keep --threads 2 \
    --files 5000000 --dirs 100 --cache 1G | grep -o 'rate .*')
  stored=$("$shoal" info --json "file://$directory/busy" |
    grep -o '"\(live_bytes\|pieces\|stored_bytes\|segments\|segments_free\)":[0-9]*' | xargs)
  echo "$(basename "$shoal"): $rate; $stored"
done
rm -rf "$directory/busy"
