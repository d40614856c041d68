#!/usr/bin/env bash
# Files of 100 bytes, each made durable, in directories chosen at random, on a mount of
# file:///DIRECTORY. Prints what was sent meanwhile and at the end (the last checkpoint and the last
# manifest), and the manifests that were written: number, bytes.
#
#   fsyncs.sh SHOAL DIRECTORY FILES SEED
set -euo pipefail
shoal=$1 directory=$2 files=$3 seed=$4
mount=$(mktemp -d)
"$shoal" mount "file://$directory" "$mount" >/dev/null
sent() {
  "$shoal" stats --json "$mount" | grep -o '"store_\(sent_bytes\|put_log\|put_data\|put_manifest\)":[0-9]*' | xargs
}
echo "at first: $(sent)"
python3 - "$mount" "$files" "$seed" <<'P'
import os, random, sys
mount, files, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
tops = [f'{mount}/{top}' for top in sorted(os.listdir(mount))]
names = [os.listdir(top) for top in tops]
for n in range(files):
    top = random.randrange(len(tops))
    name = f'{tops[top]}/{random.choice(names[top])}/new-{seed}-{n}'
    file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(file, b'x' * 100)
    os.fsync(file)
    os.close(file)
P
echo "$files files: $(sent)"
# The last manifest is written in the background.
sleep 2
"$shoal" umount "$mount" >/dev/null
rmdir "$mount"
echo "manifests: $(find "$directory/manifest" -type f -size +112c -newermt "-1 hour" -printf '%f %s\n' | sort | sed 's/^0*//' | tail -12 | xargs)"
