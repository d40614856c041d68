#!/usr/bin/env bash
# Measures how fast a standby takes a volume in a bucket over, and how far a replica is behind.
#
# Each round: an owner in namespaces of its own (so that nothing but the bucket tells the standby
# that it lives) makes files, each followed by fsync, and is killed with all its programs at a random
# moment. A program on the standby tries to write all the while. Then every file whose fsync had
# returned must be there, with its content. Prints a line for each round, and a summary.
#
#   scripts/bucket.sh scripts/failover.sh [ROUNDS]
#   SHOAL_BUCKET=file:///empty/directory scripts/failover.sh [ROUNDS]
#
#   PLANNED=1    unmount the owner instead of killing it
#   SHOAL=FILE   use this binary instead of building one
#   OPTIONS=...  options of the standby's mount
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

rounds=${1:-20}
volume=${SHOAL_BUCKET:?set it to the URL of an empty bucket}/failover
if [[ ${SHOAL:-} ]]; then
  shoal=$(realpath "$SHOAL")
else
  cargo build --release --quiet
  shoal=$PWD/target/release/shoal
fi
[[ $volume != file://* ]] || mkdir -p "${volume#file://}"
work=$(mktemp -d "${TMPDIR:-/tmp}/shoal-failover.XXXXXX")
here=$work/here there=$work/there
mkdir "$here" "$there"
owner=''

clean_up() {
  local status=$?
  [[ ! $owner ]] || kill -9 "$owner" 2>/dev/null || true
  mountpoint -q "$here" && { "$shoal" umount "$here" || umount -l "$here"; }
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT

# Runs as the first process of its namespaces. $1: the directory, $2: the round.
own() {
  "$shoal" mount "$volume" "$there"
  mkdir -p "$there/$1"
  local n=0
  while [[ ! -e $work/stop ]]; do
    n=$((n + 1))
    echo "content of $1 $n" | dd of="$there/$1/$n" conv=fsync status=none || break
    echo $n >>"$work/durable"
    echo "$EPOCHREALTIME" >"$there/clock"
  done
  "$shoal" umount "$there"
  touch "$work/unmounted"
}
export -f own
export shoal volume there work

# The age of what a replica shows while the owner writes.
watch_replica() {
  local shown last='' at
  while [[ ! -e $work/killed ]]; do
    if read -r shown <"$here/clock" && [[ $shown != "$last" && $shown ]]; then
      at=${shown/[.,]/}
      echo $((${EPOCHREALTIME/[.,]/} / 1000 - at / 1000)) >>"$work/lag"
      last=$shown
    fi
    sleep 0.05
  done 2>/dev/null
}

check() {
  local n last
  last=$(tail -n 1 "$work/durable")
  for ((n = 1; n <= last; n++)); do
    [[ $(<"$here/$1/$n") == "content of $1 $n" ]] || die "round $1: file $n of $last is lost"
  done
  echo "$last" >>"$work/all"
}

round() {
  rm -f "$work"/{stop,killed,durable,unmounted}
  setsid unshare --fork --pid --kill-child --mount-proc bash -c "own $1" >"$work/owner" 2>&1 &
  owner=$!
  local limit=$((SECONDS + 60))
  until [[ -s $work/durable ]]; do
    ((SECONDS < limit)) || die "the owner does not write: $(cat "$work/owner")"
    sleep 0.05
  done
  # shellcheck disable=SC2086
  "$shoal" mount --standby ${OPTIONS:-} "$volume" "$here"
  watch_replica &
  local watcher=$!
  sleep "2.$((RANDOM % 1000))"
  local begun
  if [[ ${PLANNED:-} ]]; then
    # The owner ends its last write, and unmounts: both count.
    begun=$(now)
    touch "$work/stop"
  else
    begun=$(now)
    kill -9 "$owner"
  fi
  touch "$work/killed"
  until { : >"$here/first-$1"; } 2>/dev/null; do sleep 0.002; done
  local took=$(($(now) - begun))
  sync "$here/first-$1"
  wait $watcher || true
  { wait "$owner" || true; } 2>/dev/null
  owner=''
  check "$1"
  echo "round $1: $took ms, $(wc -l <"$work/durable") files durable before"
  echo $took >>"$work/took"
  rm -r "${here:?}/$1"
  "$shoal" umount "$here"
}

"$shoal" mkfs --trust-store "$volume" >/dev/null
for ((n = 1; n <= rounds; n++)); do round $n; done
"$shoal" fsck "$volume"
summary "from the end of the owner to the first write on the standby" <"$work/took"
summary "age of what a replica shows (of files that are followed by fsync)" <"$work/lag"
awk '{ all += $1 } END { printf "files durable before a kill: %d, lost: 0\n", all }' "$work/all"
