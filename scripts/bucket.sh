#!/usr/bin/env bash
# A volume in a bucket of a real object store: starts a Ceph cluster on this machine (monitor,
# manager, three OSDs, S3 gateway; all data in a scratch folder), makes a volume in it, fills and
# mounts it, kills its owner, takes it over, loses an OSD, restarts and stalls the gateway and takes the
# keys away under load, uses up a quota, checks everything, and stops the cluster. Takes some minutes.
#
# Needs root and the packages ceph-mon, ceph-mgr, ceph-osd, ceph-common, radosgw, curl and openssl; says so
# loudly and does nothing where these are missing.
#
#   scripts/bucket.sh [--keep] [COMMAND...]
#
#   --keep       leaves the cluster running, and prints how to use and how to stop it
#   COMMAND      runs this instead of the test, with the variables of the cluster's gateway and
#                SHOAL_BUCKET, the URL of an empty bucket
#   SHOAL=FILE   use this binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

not_checked() { echo "== NOT CHECKED: a volume in a bucket: $*" >&2; exit 0; }
keep=''
[[ ${1:-} == --keep ]] && keep=1 && shift
[[ ${1:-} == --help ]] && sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2

[[ $(id -u) == 0 ]] || not_checked 'needs root'
for program in ceph-mon ceph-mgr ceph-osd ceph radosgw radosgw-admin monmaptool curl openssl; do
  command -v $program >/dev/null || not_checked "$program is not installed"
done

port=${SHOAL_CEPH_PORT:-7480}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/shoal-ceph.XXXXXX")
cluster=$work
conf=$cluster/ceph.conf
mount=$cluster/mnt

pids() { cat "$cluster"/run/*.pid 2>/dev/null || true; }

clean_up() {
  local status=$?
  mountpoint -q "$mount" && { umount "$mount" || umount -l "$mount"; }
  if [[ $keep ]]; then
    echo "the cluster runs; to stop it: kill $(pids | tr '\n' ' '); rm -rf $cluster" >&2
    exit "$status"
  fi
  local pid
  for pid in $(pids); do kill "$pid" 2>/dev/null || true; done
  sleep 1
  for pid in $(pids); do kill -9 "$pid" 2>/dev/null || true; done
  [[ $status == 0 ]] || tail -n 20 "$cluster"/log/start.log >&2
  rm -rf --one-file-system "$cluster"
  exit "$status"
}
trap clean_up EXIT

configure() {
  mkdir -p "$cluster"/{mon,mgr,osd.0,osd.1,osd.2,rgw,run,log,mnt}
  cat >"$conf" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_initial_members = a
mon_host = 127.0.0.1:6789
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
keyring = $cluster/keyring
mon_data = $cluster/mon
mgr_data = $cluster/mgr
run_dir = $cluster/run
admin_socket = $cluster/run/\$name.asok
pid_file = $cluster/run/\$name.pid
log_file = $cluster/log/\$name.log
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_crush_chooseleaf_type = 0
osd_memory_target = 939524096
bluestore_block_size = 8589934592
mon_allow_pool_delete = true
ms_bind_port_min = 16800
ms_bind_port_max = 17000
[osd.0]
osd_data = $cluster/osd.0
[osd.1]
osd_data = $cluster/osd.1
[osd.2]
osd_data = $cluster/osd.2
[client.rgw]
rgw_data = $cluster/rgw
# Else each small reply waits 40 ms for an acknowledgement (Nagle's algorithm).
rgw_frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1
CONF
}

start_cluster() {
  local id fsid
  fsid=$(sed -n 's/^fsid = //p' "$conf")
  {
    monmaptool --create --add a 127.0.0.1:6789 --fsid "$fsid" "$cluster/monmap"
    ceph-authtool --create-keyring "$cluster/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-mon -c "$conf" --mkfs -i a --monmap "$cluster/monmap" --keyring "$cluster/keyring"
    ceph-mon -c "$conf" -i a
    ceph-mgr -c "$conf" -i x
  } >"$cluster/log/start.log" 2>&1
  wait_for 30 ceph -c "$conf" --connect-timeout 3 -s
  # An OSD that registers at once may be refused.
  sleep 1
  for id in 0 1 2; do start_osd_first $id; done
  start_gateway
}

start_osd_first() {
  local uuid
  uuid=$(cat /proc/sys/kernel/random/uuid)
  {
    ceph -c "$conf" osd new "$uuid" "$1"
    ceph-osd -c "$conf" -i "$1" --mkfs --osd-uuid "$uuid"
  } >>"$cluster/log/start.log" 2>&1
  # A monitor that has just started refuses it now and then ("wrong fsid").
  wait_for 20 ceph-osd -c "$conf" -i "$1"
}

start_gateway() {
  radosgw -c "$conf" -n client.rgw >>"$cluster/log/start.log" 2>&1
  wait_for 60 curl -s -o /dev/null "http://127.0.0.1:$port"
}

# Repeats a command until it succeeds, at most so many seconds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || die "no success for too long: $*"
    sleep 0.5
  done
}

# Creates a bucket by a request with a signature of version 2, which needs no library.
put_bucket() {
  local date signature
  date=$(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S GMT')
  signature=$(printf 'PUT\n\n\n%s\n/%s' "$date" "$1" |
    openssl dgst -sha1 -hmac "$AWS_SECRET_ACCESS_KEY" -binary | base64)
  curl -sf -X PUT -H "Date: $date" -H "Authorization: AWS $AWS_ACCESS_KEY_ID:$signature" \
    "$AWS_ENDPOINT_URL/$1"
}

make_bucket() {
  export AWS_ACCESS_KEY_ID=shoal AWS_SECRET_ACCESS_KEY=shoalsecret AWS_REGION=us-east-1
  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  radosgw-admin -c "$conf" user create --uid=shoal --display-name=shoal --access-key=shoal \
    --secret-key=shoalsecret >>"$cluster/log/start.log" 2>&1
  # A gateway may answer before it has read its users.
  wait_for 60 put_bucket shoal
  export SHOAL_BUCKET=s3://shoal
}

# Makes files, each durable, until told to stop; writes the number of each to its output.
write_durably() {
  local n=0
  while [[ ! -e $cluster/stop ]]; do
    n=$((n + 1))
    echo "content of $n" | dd of="$mount/durable/$n" conv=fsync status=none || return 1
    echo $n
  done
}

# Every file that was reported durable must be there, with its content.
check_durable() {
  local last n
  last=$(tail -n 1 "$cluster/durable.log")
  for ((n = 1; n <= last; n++)); do
    [[ $(cat "$mount/durable/$n" 2>&1) == "content of $n" ]] || die "file $n of $last is lost"
  done
  echo "$last files, each there"
}

mount_bucket() { "$shoal" mount "$@" "$volume" "$mount"; }

# Kills the process that serves the mount.
kill_owner() {
  local pid
  pid=$(pgrep -f "mount --foreground .*$volume $mount\$" | head -n 1)
  kill -9 "$pid"
  umount -l "$mount"
}

under_load() {
  rm -f "$cluster/stop"
  mkdir "$mount/durable"
  write_durably >"$cluster/durable.log" 2>"$cluster/durable.err" &
  local writer=$!
  sleep 3
  "$@"
  sleep 5
  touch "$cluster/stop"
  wait $writer || true
  [[ -s $cluster/durable.log ]] || die "nothing was written: $(cat "$cluster/durable.err")"
}

lose_an_osd() { kill -9 "$(cat "$cluster/run/osd.2.pid")"; }
restart_gateway() {
  kill -9 "$(cat "$cluster/run/client.rgw.pid")"
  sleep 4
  start_gateway
}

refuse_keys() {
  admin user suspend --uid=shoal
  sleep 5
  read_cached
  admin user enable --uid=shoal
}
stall_gateway() {
  local gateway
  gateway=$(cat "$cluster/run/client.rgw.pid")
  kill -STOP "$gateway"
  for _ in $(seq 10); do
    sleep 2
    read_cached
  done
  kill -CONT "$gateway"
}

admin() { radosgw-admin -c "$conf" "$@" >>"$cluster/log/start.log" 2>&1; }

# What is in memory needs no store: a tenth of the time after which a request would be given up.
read_cached() {
  timeout 6 ls -l "$mount/cached" >/dev/null || die "a listing waits for the store"
  timeout 6 diff -r /usr/share/common-licenses "$mount/cached" || die "a read waits for the store"
}

# Durable files of 1 MiB until the store has no room; removals, reads, and a higher quota.
use_up_quota() {
  local n=0 error
  mkdir "$mount/quota"
  admin quota set --quota-scope=bucket --bucket=shoal --max-size=$(($(stored) + (32 << 20)))
  admin quota enable --quota-scope=bucket --bucket=shoal
  while error=$(file_of $((n + 1)) | LC_ALL=C dd of="$mount/quota/$((n + 1))" bs=1M conv=fsync status=none 2>&1); do
    n=$((n + 1))
    ((n < 200)) || die "a quota of 32 MiB is not used up by $n MiB"
  done
  [[ $error == *'No space left on device'* ]] || die "the quota's error: $error"
  echo "$n files, then: $error"
  rm "$mount/quota/1"
  read_cached
  check_quota_files 2 $n
  admin quota disable --quota-scope=bucket --bucket=shoal
  wait_for 30 "$shoal" sync "$mount"
  file_of 1 | dd of="$mount/quota/1" bs=1M conv=fsync status=none
  run "$shoal" umount "$mount"
  mount_bucket
  check_quota_files 1 $n
  rm -r "$mount/quota"
}

# 1 MiB that cannot be compressed, the same for each number.
file_of() { openssl enc -aes-128-ctr -nosalt -pass "pass:$1" -pbkdf2 -iter 1 -in /dev/zero 2>/dev/null | head -c 1M || true; }

check_quota_files() {
  local n
  for ((n = $1; n <= $2; n++)); do
    cmp -s <(file_of $n) "$mount/quota/$n" || die "file $n of $2 is lost"
  done
}

# Bytes in the bucket.
stored() {
  radosgw-admin -c "$conf" bucket stats --bucket=shoal 2>/dev/null |
    sed -n 's/^ *"size": \([0-9]*\),/\1/p' | head -n 1
}

test_volume() {
  volume=$SHOAL_BUCKET/test
  step "Make a volume (the store is tested first: 64 writers, 1,000 objects)"
  run "$shoal" mkfs "$volume"
  step "Fill it with a real tree, look at it, check it, without a mount"
  run "$shoal" cp -r /usr/share/doc "$volume:/doc"
  run "$shoal" ls "$volume:/doc" | tail -n 3
  run "$shoal" fsck "$volume"
  run "$shoal" info "$volume" | grep -E 'objects|price|live'
  [[ -c /dev/fuse ]] || { echo "== NOT CHECKED: a mount of it: no /dev/fuse" >&2; return; }

  step "Mount it, compare"
  mount_bucket
  diff -r --no-dereference /usr/share/doc "$mount/doc"
  step "A second mount is refused"
  mkdir "$cluster/second"
  if "$shoal" mount "$volume" "$cluster/second" 2>"$cluster/refused"; then
    die "it was mounted twice"
  fi
  cat "$cluster/refused"

  step "An OSD is lost, then the gateway is away for 4 s, under load: nobody gets an error"
  under_load lose_an_osd
  check_durable
  rm -r "$mount/durable"
  under_load restart_gateway
  [[ ! -s $cluster/durable.err ]] || die "$(cat "$cluster/durable.err")"
  check_durable

  step "The keys are refused for 5 s, then the gateway stalls for 20 s: calls wait, the cache is read"
  cp -r /usr/share/common-licenses "$mount/cached"
  rm -r "$mount/durable"
  under_load refuse_keys
  [[ ! -s $cluster/durable.err ]] || die "$(cat "$cluster/durable.err")"
  check_durable
  rm -r "$mount/durable"
  under_load stall_gateway
  [[ ! -s $cluster/durable.err ]] || die "$(cat "$cluster/durable.err")"
  check_durable

  step "A quota is used up: an error, and nothing is lost; without it everything goes on"
  use_up_quota

  step "kill -9 of the owner under load; the next one finds every durable file"
  rm -r "$mount/durable"
  under_load kill_owner
  mount_bucket
  check_durable

  step "Unmount, check, remove"
  run "$shoal" umount "$mount"
  run "$shoal" fsck "$volume"
  run "$shoal" rm -r "$volume:/doc"
  run "$shoal" info "$volume" | grep -E 'objects|price|live'
}

if [[ ${SHOAL:-} ]]; then
  shoal=$(realpath "$SHOAL")
else
  cargo build --release --quiet
  shoal=$PWD/target/release/shoal
fi
step "Start a Ceph cluster"
configure
start_cluster
make_bucket
if (($#)); then
  "$@"
else
  test_volume
fi
