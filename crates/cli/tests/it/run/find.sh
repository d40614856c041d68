for d in 1 2 3 4 5; do mkdir -p d$d/e; for n in 1 2 3 4; do echo $d$n > d$d/f$n; done; done
find . -name 'f[12]' -delete; find . -type f -exec cat {} + | sort | cksum
find . -type f -print0 | xargs -0 -P 4 -n 1 chmod 600; find . -perm 600 | wc -l
find d1 -depth | sort; cd d2/e && echo $PWD | sed 's/.*d2/d2/' && ls .. && touch ../g ../../top
