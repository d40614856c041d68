mkdir -p a/b/c; touch -d @1000 a/b/c/x; seq 5000 > seq; cp seq a/; cp -p a/b/c/x a/b/y
cp -a a copy; mv copy/seq copy/moved; ln copy/moved copy/hard; ln -s ../a/b copy/link
ln -s /etc/hostname absolute; ln -s nowhere dangling; readlink copy/link absolute dangling
install -m 640 seq installed; split -l 1000 seq part.; cat part.* | cmp - seq; rm part.a[bc]
sort -rn seq | head -3; sort -S 100k -T . seq | tail -2; tac seq | head -2; wc -l seq
dd if=seq of=seq bs=100 count=3 seek=2 conv=notrunc status=none; cksum seq; truncate -s 70 seq
cat seq copy/link/y absolute > /dev/null; echo $?; stat -c '%n %s %a %h %F' a/b/c/x copy/hard
chmod -R go-rwx copy; chmod 4755 installed; chown 1:2 a/seq; chown -h 3:4 dangling
ls -l copy | tail -n +2 | cut -c1-10; ls -R a; find . -type f -size +0 | sort; du --apparent-size -b a/seq
realpath --relative-to=. copy/link/c; test -e dangling || echo no; tee out < seq | tail -c 5
rmdir a 2>/dev/null || echo full; rm -r a/b; mktemp -p . temp.$(printf X%.0s 1 2 3) > /dev/null; rm temp.*
head -c 100000 /dev/zero > zeros; cp --sparse=always zeros sparse; cmp zeros sparse; tail -c 3 out
