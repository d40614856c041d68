# shellcheck shell=bash
# Shared by the scripts that measure mounts side by side; read with `source` after lib.sh, not run.
#
# The script sets $kinds, $mounts, $nothings, $rounds, and defines `measure SYSTEM [SERVER]`, which
# works in $work/mnt and appends a JSON line with "system" to $work/all; SERVER is the number of the
# process that serves the mount.

# Seconds of processor time a process has used; 0 without one.
used_by() { [[ -z $1 ]] && echo 0 || awk '{ print ($14 + $15) / 100 }' "/proc/$1/stat"; }

build_nothing() {
  [[ -n ${NOTHING:-} ]] && { nothing=$NOTHING; return; }
  cargo build --release --quiet --package shoal-fuse --example nothing
  nothing=$(target_folder)/release/examples/nothing
}

on_kernel() {  # KIND
  "$KERNEL_FS" up "$1" "$work/mnt" 16G >/dev/null
  measure "$1"
  "$KERNEL_FS" down "$work/mnt"
}

on_shoal() {  # OPTIONS
  "$shoal" mkfs "$work/vol.img" --size 16G >/dev/null
  mount_volume "$work/vol.img" "$work/mnt" -o "$1"
  measure "shoal $1" "$daemon"
  unmount_volume "$work/mnt"
  rm "$work/vol.img"
}

on_nothing() {  # OPTIONS
  "$nothing" "$work/mnt" "$1" >/dev/null 2>&1 &
  daemon=$!
  until is_mounted "$work/mnt"; do sleep 0.05; done
  measure "nothing $1" "$daemon"
  umount "$work/mnt"
  wait "$daemon"
  daemon=''
}

# Every system in turn, $rounds times, each on a fresh filesystem.
run_rounds() {
  local round options kind
  [[ -z $kinds || -x ${KERNEL_FS:-} ]] || die "set KERNEL_FS to the program that mounts kernel filesystems"
  build_shoal
  [[ -z $nothings ]] || build_nothing
  make_work /dev/shm
  mkdir -p "$work/mnt"
  for ((round = 1; round <= rounds; round++)); do
    step "round $round of $rounds"
    for options in $nothings; do on_nothing "$options"; done
    for options in $mounts; do on_shoal "$options"; done
    for kind in $kinds; do on_kernel "$kind"; done
  done
}
