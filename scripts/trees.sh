#!/usr/bin/env bash
# Commands that walk trees, on a mail server's tree of 543,337 files: the usual ones on kernel
# filesystems and on Shoal's mount, and `shoal` itself, in one run, everything on RAM. Prints
# seconds, medians and all rounds; lines for a file go to --out. Beyond `cargo xtask lab --only
# trees,calls` it mounts Shoal anew for each cold command, so that nothing is in its server's cache,
# with other options too, and changes the tree of a volume that is not mounted.
#
#   KERNEL_FS=PROGRAM scripts/trees.sh [OPTIONS]
#
# PROGRAM makes a fresh kernel filesystem on RAM: `PROGRAM up KIND DIR [SIZE]`, `PROGRAM down DIR`.
# Needs root and rsync; bfs and fd (fdfind) are measured where they are installed.
#
#   --files N        files of the tree (default: 543337)
#   --rounds N       rounds (default: 5)
#   --kinds LIST     kernel filesystems (default: "xfs-parent ext4")
#   --mounts LIST    options of Shoal's mounts (default: "default no_xattr,no_btime")
#   --only REGEX     commands to measure (default: all)
#   --out FILE       lines "system, state, command, seconds" (default: none)
#   SHOAL=FILE       use this binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

files=543337 rounds=5 kinds="xfs-parent ext4" mounts="default no_xattr,no_btime" only=. out=''
while (($#)); do
  case $1 in
    --files) files=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --mounts) mounts=$2 && shift 2 ;;
    --only) only=${2:?} && shift 2 ;;
    --out) out=$(realpath "${2:?}") && shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
[[ -z $kinds || -x ${KERNEL_FS:-} ]] || die "set KERNEL_FS to the program that mounts kernel filesystems"
[[ $EUID == 0 ]] && can_mount || die "needs root and /dev/fuse"
command -v rsync >/dev/null || die "needs rsync"

# The commands, by name. $T is the tree, $C a copy of it elsewhere, $V the same as VOLUME:/path.
usual=(
  'ls -lR|ls -lR $T'
  'find -not -user|find $T -not -user root'
  'find -size|find $T -size +20k'
  'du -s|du -s $T'
  'rsync -a no change|rsync -a $T/ $C/'
  'tar incremental|tar -C $T -g $work/snapshot -cf - . | cat'
)
changing=(
  'chown -R|chown -R $owner $T'
  'chmod -R|chmod -R $mode $T'
)
parallel=()
command -v bfs >/dev/null && parallel+=('bfs: find -not -user|bfs $T -not -user root'
  'bfs: find -size|bfs $T -size +20k')
fd=$(command -v fd || command -v fdfind || true)
[[ -z $fd ]] || parallel+=('fd: find -size|$fd --unrestricted --size +20k . $T')
command -v dua >/dev/null && parallel+=('dua: du -s|dua aggregate $T')
own=(
  'shoal: ls -lR|$shoal ls -lR $T'
  'shoal: find -not -user|$shoal find $T -not -user root'
  'shoal: find -size|$shoal find $T -size +20k'
  'shoal: du -s|$shoal du -s $T'
  'shoal: du -s --kept|$shoal du -s --kept $T'
)
own_changing=(
  'shoal: chown -R|$shoal chown -R $owner $T'
  'shoal: chmod -R|$shoal chmod -R $mode $T'
)
unmounted=(
  'shoal unmounted: chown -R|$shoal chown -R $owner $V'
  'shoal unmounted: chmod -R|$shoal chmod -R $mode $V'
)

# Runs one command and notes its time.
timed() {  # STATE NAME COMMAND
  local start end
  [[ $2 =~ $only ]] || return 0
  start=${EPOCHREALTIME/./}
  eval "$3" >/dev/null
  end=${EPOCHREALTIME/./}
  note "$1" "$2" $((end - start))
}

note() {  # STATE NAME MICROSECONDS
  printf '%s, %s, %s, %d.%03d\n' "$system" "$1" "$2" $(($3 / 1000000)) $(($3 / 1000 % 1000)) |
    tee -a "$work/lines" ${out:+"$out"}
}

# The programs themselves are read again, so that no time is for that.
drop() {
  local program
  sync && echo 3 >/proc/sys/vm/drop_caches
  for program in ls find du rsync tar chown chmod bfs "$fd" dua "$shoal"; do
    "$program" --version >/dev/null 2>&1 || true
  done
}

# Every command after its caches were dropped, and again.
measure() {  # "remount" or nothing, COMMANDS ...
  local cold=$1 line
  shift
  for line in "$@"; do
    [[ ${line%%|*} =~ $only ]] || continue
    if [[ $line == tar* ]]; then rm -f "$work/snapshot" && eval "${line#*|}" >/dev/null; fi
    $cold
    timed cold "${line%%|*}" "${line#*|}"
    timed warm "${line%%|*}" "${line#*|}"
  done
}

# Changes that change something each time.
measure_changes() {  # COMMANDS ...
  local line
  for line in "$@"; do
    owner=1000:1000 mode=go-rwx
    timed first "${line%%|*}" "${line#*|}"
    owner=1001:1001 mode=go+rX
    timed again "${line%%|*}" "${line#*|}"
  done
}

plant() {
  "$shoal" bench make-tree --target "dir:$work/mnt" --files "$files" --keep --json >/dev/null
  T=$(echo "$work"/mnt/*/mail)
  sync
}

on_kernel() {  # KIND
  system=$1
  "$KERNEL_FS" up "$1" "$work/mnt" 12G >/dev/null
  plant
  [[ -d $C ]] || cp -a "$T" "$C"
  # Its times are those of this tree.
  rsync -a "$T/" "$C/"
  measure drop "${usual[@]}" ${parallel[@]+"${parallel[@]}"}
  measure_changes "${changing[@]}"
  "$KERNEL_FS" down "$work/mnt"
}

remount() {
  unmount_volume "$work/mnt"
  drop
  mount_volume "$work/vol.img" "$work/mnt" ${options:+-o "$options"}
}

on_shoal() {  # OPTIONS
  system="shoal $1" options=${1#default}
  "$shoal" mkfs "$work/vol.img" --size 12G >/dev/null
  mount_volume "$work/vol.img" "$work/mnt" ${options:+-o "$options"}
  plant
  "$shoal" quota set "$T" --bytes none
  rsync -a "$T/" "$C/"
  measure remount "${usual[@]}" ${parallel[@]+"${parallel[@]}"} "${own[@]}"
  measure_changes "${changing[@]}" "${own_changing[@]}"
  unmount_volume "$work/mnt"
  V="$work/vol.img:${T#"$work/mnt"}"
  measure_changes "${unmounted[@]}"
  rm "$work/vol.img"
}

# Medians of the rounds, by state and command, a column for each system.
print_table() {
  awk -F ', ' '
    { key = $3 ", " $2 }
    !(key in seen) { seen[key] = ++keys; name[keys] = key }
    !($1 in column) { column[$1] = ++systems; title[systems] = $1 }
    { n = ++number[key, $1]; time[key, $1, n] = $4 }
    END {
      printf "\n| seconds |"; for (s = 1; s <= systems; s++) printf " %s |", title[s]
      printf "\n| --- |"; for (s = 1; s <= systems; s++) printf " ---: |"; printf "\n"
      for (k = 1; k <= keys; k++) {
        printf "| %s |", name[k]
        for (s = 1; s <= systems; s++) {
          n = number[name[k], title[s]]
          for (i = 1; i <= n; i++) for (j = i; j > 1; j--) {
            a = time[name[k], title[s], j - 1]; b = time[name[k], title[s], j]
            if (a > b) { time[name[k], title[s], j - 1] = b; time[name[k], title[s], j] = a }
          }
          if (n) printf " %.2f |", time[name[k], title[s], int((n + 1) / 2)]; else printf " |"
        }
        printf "\n"
      }
    }' "$work/lines"
}

build_shoal
make_work /dev/shm
mkdir -p "$work/mnt"
C=$work/copy
for ((round = 1; round <= rounds; round++)); do
  step "round $round of $rounds"
  for kind in $kinds; do on_kernel "$kind"; done
  for mount in $mounts; do on_shoal "$mount"; done
done
print_table
