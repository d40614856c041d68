#!/usr/bin/env bash
# One round of one system: programs.sh DIR [shoal run --]. Environment: TAR (3,000 files, 47 MiB), REPOSITORY, SCRATCH
# (with loop.py: 3,000 files of 1,000 bytes written, read, listed with attributes). Prints hundredths of milliseconds.
D=$1; R=$2
t() { local n=$1; shift; local a=$(date +%s%N); "$@" >/dev/null 2>"$SCRATCH/err" || { echo "FAILED $n"; head -3 "$SCRATCH/err"; }; local b=$(date +%s%N); printf "%s %d " $n $(( (b-a)/10000 )); }
rm -rf $D/w $D/w2 $D/c $D/p; mkdir -p $D/w
t tarx $R tar -xf "$TAR" -C $D/w
t tarc $R tar -cf "$SCRATCH/out.tar" -C $D/w .
t cpa $R cp -a $D/w $D/w2
t find $R find $D/w -not -user nobody
t du $R du -s $D/w
t lslR $R ls -lR $D/w
t rsync $R rsync -a $D/w/ $D/w2/
t diff $R diff -r $D/w $D/w2
t rm $R rm -rf $D/w2
mkdir -p $D/p; t py $R python3 "$SCRATCH/loop.py" $D/p/py
t fsmark $R fs_mark -d $D/p/f -n 3000 -s 0 -S 0 -t 1 -L 1 -k
t clone $R git clone -q "$REPOSITORY" $D/c
t status $R git -C $D/c status
echo
