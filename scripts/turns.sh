#!/usr/bin/env bash
# Kills the owner of a volume in a bucket, its standby, or both, in turn, for an hour.
#
# Two nodes, in namespaces of their own, so that nothing but the bucket tells one of the other. Each
# mounts the volume as a standby, and a program on each makes files as soon as it can, each followed by
# fsync. Every few seconds `kill -9` ends a node with all its programs, and it begins anew. At the end
# every file whose fsync had returned must be there. Prints a line for each kill, and a summary.
#
#   scripts/bucket.sh scripts/turns.sh [SECONDS]
#   SHOAL_BUCKET=file:///empty/directory scripts/turns.sh [SECONDS]
#
#   SHOAL=FILE   use this binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

seconds=${1:-3600}
volume=${SHOAL_BUCKET:?set it to the URL of an empty bucket}/turns
build_shoal
shoal=$(realpath "$shoal")
[[ $volume != file://* ]] || mkdir -p "${volume#file://}"
make_work
declare -A node=()
: >"$work/durable"
: >"$work/lost"
: >"$work/took"

end_nodes() {
  local name
  for name in "${!node[@]}"; do kill -9 "${node[$name]}" 2>/dev/null || true; done
  clean_up
}
trap end_nodes EXIT

# Runs as the first process of its namespaces. $1: the node, $2: the number of its life.
live() {
  local mount=$work/$1 n=0 is_owner=''
  until "$shoal" mount --standby "$volume" "$mount"; do sleep 0.2; done
  while [[ ! -e $work/stop ]]; do
    n=$((n + 1))
    local name=$1-$2-$n
    if { mkdir -p "$mount/$1-$2" && echo "content of $name" |
      dd of="$mount/$1-$2/$n" conv=fsync status=none; } 2>/dev/null; then
      echo "$(now) $1 $1-$2/$n" >>"$work/durable"
      is_owner=1
    else
      [[ ! $is_owner ]] || echo "$name" >>"$work/lost"
      is_owner=''
      sleep 0.01
    fi
  done
  "$shoal" umount "$mount"
}
export -f live now
export shoal volume work

begin() {
  mkdir -p "$work/$1"
  setsid unshare --fork --pid --kill-child --mount-proc bash -c "live $1 $2" >>"$work/$1.log" 2>&1 &
  node[$1]=$!
}

end() {
  kill -9 "${node[$1]}"
  { wait "${node[$1]}" || true; } 2>/dev/null
}

# The node that made the last durable file. One that has just been replaced may be named.
owner() { tail -n 1 "$work/durable" | cut -d' ' -f2; }
other() { [[ $1 == here ]] && echo there || echo here; }

# Waits for a durable file of a node, made after a moment; prints when that was.
first_of() {
  local limit=$((SECONDS + 120)) found
  while ((SECONDS < limit)); do
    found=$(tail -n 200 "$work/durable" |
      awk -v of="$1" -v since="$2" '$2 == of && $1 > since { print $1; exit }')
    [[ ! $found ]] || { echo "$found"; return; }
    sleep 0.02
  done
  die "no durable file on the node '$1' within two minutes: $(tail -n 5 "$work/$1.log")"
}

"$shoal" mkfs --trust-store "$volume" >/dev/null
lives=1
begin here 1
first_of here 0 >/dev/null
begin there 1
limit=$((SECONDS + seconds))
for ((turn = 0; SECONDS < limit; turn++)); do
  sleep "4.$((RANDOM % 1000))"
  now=$(owner) next=$(other "$(owner)") since=$(now)
  lives=$((lives + 1))
  case $((turn % 3)) in
    0)
      end "$now"
      took=$(($(first_of "$next" "$since") - since))
      echo $took >>"$work/took"
      echo "turn $turn: the owner, $now; $next writes after $took ms"
      begin "$now" $lives
      ;;
    1)
      end "$next"
      first_of "$now" "$since" >/dev/null
      echo "turn $turn: the standby, $next"
      begin "$next" $lives
      ;;
    2)
      end "$now"
      end "$next"
      begin "$next" $lives
      echo "turn $turn: both; $next writes after $(($(first_of "$next" "$since") - since)) ms"
      begin "$now" $lives
      ;;
  esac
done
touch "$work/stop"
for name in "${!node[@]}"; do { wait "${node[$name]}" || true; } 2>/dev/null; done
node=()
mkdir "$work/mnt"
"$shoal" mount --force "$volume" "$work/mnt"
# A process for each file would take longer than all the kills.
found=$(cd "$work/mnt" && cut -d' ' -f3 "$work/durable" |
  { xargs -d '\n' grep -H '' /dev/null || true; } |
  awk -F: '{ name = $1; sub("/", "-", name); n += $2 == "content of " name } END { print n + 0 }')
lost=$(($(wc -l <"$work/durable") - found))
"$shoal" umount "$work/mnt"
"$shoal" fsck "$volume"
summary "from the kill of an owner to the first durable file of the other node" <"$work/took"
echo "files durable: $(wc -l <"$work/durable"), lost: $lost"
echo "times that a living node could not write any more: $(wc -l <"$work/lost")"
((lost == 0))
