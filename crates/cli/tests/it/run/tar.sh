mkdir -p src/deep/er; for n in $(seq 40); do echo $n > src/deep/$n; ln src/deep/$n src/deep/er/$n; done
ln -s ../deep src/link; chmod 444 src/deep/7; touch -d @5000 src/deep/* src/deep/er src; mkfifo src/fifo
tar -cf t.tar src; mkdir out; tar -xpf t.tar -C out; diff -r src/deep out/src/deep && echo same
tar -df t.tar && echo equal; tar -tvf t.tar | wc -l; rm -rf src; rm t.tar; find out | sort | cksum
