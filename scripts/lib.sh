# shellcheck shell=bash
# Shared by the scripts that use a volume or a mount; read with `source`, not run.
#
# Makes $work, a scratch folder that is unmounted and removed at the end whatever happens, and
# finds $shoal, which is built.

# Where commands are shown, also those whose output goes elsewhere.
exec 3>&1
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

# Milliseconds.
now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# Lines of numbers: the median, the one of 99 %, the largest.
summary() {
  sort -n | awk -v what="$1" '{ of[NR] = $1 } END {
    if (NR) printf "%s: %d, p50 %d ms, p99 %d ms, max %d ms\n",
      what, NR, of[int((NR + 1) / 2)], of[int((NR * 99 + 99) / 100)], of[NR] }'
}

die() { echo "${0##*/}: $*" >&2; exit 1; }
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

# Shows a command, runs it, and says how long it took. Shown short: `shoal`, and paths relative to
# the scratch folder.
run() {
  local shown="$*" start=${EPOCHREALTIME/./}
  shown=${shown//$shoal/shoal}
  shown=${shown//$work\//}
  case $1 in
    mount_volume) shown="shoal mount ${shown#* } --foreground &" ;;
    unmount_volume) shown="shoal umount ${shown#* }" ;;
    kill_server) shown="kill -9 $(server_of_mount)" ;;
    kill_daemon) shown="kill -9 $daemon $(server_of_mount); umount -l ${shown#* }" ;;
  esac
  ((${#shown} <= 110)) || shown="${shown:0:60} ... ${shown: -40}"
  printf '$ %s\n' "$shown" >&3
  "$@"
  printf '  %s(%d ms)%s\n' "$bold" $(((${EPOCHREALTIME/./} - start) / 1000)) "$plain" >&3
}

build_shoal() {  # [PROFILE]
  local profile=${1:-release}
  [[ -n ${SHOAL:-} ]] && { shoal=$SHOAL; return; }
  echo "building ($profile) ..."
  cargo build --profile "$profile" --quiet --package shoal-cli --package shoal-run
  shoal=$(target_folder)/$profile/shoal
}

target_folder() {
  cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

make_work() {  # [FOLDER]: where the scratch folder goes
  work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/shoal.XXXXXX")
  trap clean_up EXIT
}

clean_up() {
  local status=$? dir
  for dir in "$work"/mnt*; do
    if is_mounted "$dir"; then unmount_hard "$dir"; fi
  done
  [[ -n ${daemon:-} ]] && kill "$daemon" 2>/dev/null
  if [[ -n ${keep:-} ]]; then echo "left in $work"; else rm -rf "$work"; fi
  exit "$status"
}

# Whether anything is mounted there, a dead server included.
is_mounted() { grep -qs " $1 " /proc/self/mounts; }

unmount_hard() {
  umount -l "$1" 2>/dev/null || fusermount3 -u -z "$1" 2>/dev/null || true
}

# Whether this machine can mount: the device, and the right to.
can_mount() {
  [[ -c /dev/fuse && -r /dev/fuse && -w /dev/fuse ]] || return 1
  [[ $(id -u) == 0 ]] || command -v fusermount3 >/dev/null
}

# Mounts VOLUME on DIR with a daemon that is our child, so that it can be killed by its number.
mount_volume() {
  local volume=$1 dir=$2 i
  shift 2
  mkdir -p "$dir"
  "$shoal" mount "$volume" "$dir" --foreground "$@" 2>>"$work/mount.log" &
  daemon=$!
  for ((i = 0; i < 600; i++)); do
    # The root of a FUSE mount whose server answers is inode 1.
    if is_mounted "$dir" && [[ $(stat -c %i "$dir" 2>/dev/null) == 1 ]]; then return; fi
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/mount.log" >&2
  die "the mount did not come up"
}

# Returns when everything is on disk and the volume is released.
unmount_volume() {
  "$shoal" umount "$1"
  wait "$daemon" || die "the mount ended with status $?"
  daemon=''
}

# The server that the daemon keeps; nothing, if it serves itself: keeper=off, or a kernel before 6.9.
server_of_mount() { cat "/proc/$daemon/task/$daemon/children" 2>/dev/null | tr -d ' '; }

# Kills the server without warning; its keeper starts another one.
kill_server() { kill -9 "$(server_of_mount)"; }

# Kills the daemon without warning, with the server that it keeps, and clears its dead mount away.
kill_daemon() {
  local server
  server=$(server_of_mount)
  kill -9 "$daemon" ${server:+"$server"}
  wait "$daemon" 2>/dev/null || true
  while [[ -n $server && -e /proc/$server ]]; do sleep 0.05; done
  daemon=''
  unmount_hard "$1"
}
