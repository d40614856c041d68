#!/usr/bin/env bash
# A mounted volume in a bucket beside JuiceFS (metadata in a Redis on this machine) on the same
# object store: creates, small files, and an archive unpacked. The programs in turn, five rounds.
#
#   SHOAL=FILE scripts/bucket.sh docs/bench-runs/2026-11-26-juicefs/run.sh JUICEFS
#
# JUICEFS is its program; redis-server must be installed. JuiceFS runs twice: as it is by default,
# where a file is in the store when it is closed, and with --writeback, where it is in a directory
# of this machine first.
set -euo pipefail
juicefs=$(realpath "$1")
repository=$(cd "$(dirname "$0")/../../.." && pwd)
shoal=$(realpath "$SHOAL")
work=$(mktemp -d /var/tmp/juicefs.XXXXXX)
cd "$work"
mkdir shoal juicefs writeback
redis-server --port 6390 --dir "$work" --save '' --daemonize yes --pidfile "$work/redis.pid" >/dev/null
trap 'cd /; for d in shoal juicefs writeback; do umount "$work/$d" || umount -l "$work/$d"; done 2>/dev/null || true
  kill "$(cat "$work/redis.pid")" || true; rm -rf --one-file-system "$work"' EXIT
bucket=${AWS_ENDPOINT_URL}/$(cut -d/ -f3 <<<"$SHOAL_BUCKET")

"$shoal" mkfs --trust-store "$SHOAL_BUCKET/shoal" >/dev/null
"$shoal" mount "$SHOAL_BUCKET/shoal" shoal
for name in juicefs writeback; do
  number=$([[ $name == juicefs ]] && echo 1 || echo 2)
  options=$([[ $name == juicefs ]] || echo --writeback)
  "$juicefs" format --storage s3 --bucket "$bucket" --access-key "$AWS_ACCESS_KEY_ID" \
    --secret-key "$AWS_SECRET_ACCESS_KEY" "redis://127.0.0.1:6390/$number" "bench-$name" >/dev/null 2>&1
  "$juicefs" mount -d $options --cache-dir "$work/cache-$name" "redis://127.0.0.1:6390/$number" "$work/$name" >/dev/null
done
git -C "$repository" archive HEAD crates/engine/src docs/guide | head -c 100000000 >tree.tar
echo "# $(uname -r), $("$shoal" --version), $("$juicefs" version), $(redis-server --version | cut -d' ' -f3)"
echo "# the archive: $(tar tf tree.tar | wc -l) names, $(stat -c %s tree.tar) bytes"
rate() { python3 -c 'import json,sys; print(round(json.loads(sys.stdin.read().splitlines()[-1])["ops_per_second"]))'; }
for round in 1 2 3 4 5; do
  for name in shoal juicefs writeback; do
    creates=$("$shoal" bench create --target dir:"$work/$name" --threads 2 --files 10000 --json | rate)
    small=$("$shoal" bench write-small --target dir:"$work/$name" --threads 2 --files 100 --json | rate)
    mkdir "$name/$round"
    start=$(date +%s.%N)
    tar xf tree.tar -C "$name/$round"
    sync -f "$name/$round"
    end=$(date +%s.%N)
    echo "round $round $name: $creates creates/s, $small files of 4 KiB/s, tar and sync $(echo "$end - $start" | bc) s"
  done
done
