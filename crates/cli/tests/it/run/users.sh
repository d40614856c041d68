chmod 777 .; mkdir own; chown 1234:1234 own; mkdir -m 700 closed; echo secret > closed/s; echo r > readable
chmod 600 closed/s; cp /bin/cat own/; chmod 755 own/cat
setpriv --reuid 1234 --regid 1234 --clear-groups env SHOAL_RUN_STATS=$COUNTS bash -c '
  cd own; for n in 1 2 3 4 5 6; do echo $n > f$n; done; umask 222; echo ro > ro && cat ro; umask 022
  echo more 2>/dev/null >> ro || echo refused; cat ../readable; cat ../closed/s 2>/dev/null || echo closed
  echo x 2>/dev/null > ../readable || echo no; chmod 600 ../readable 2>/dev/null || echo not mine
  mkdir -p a/b; mv f1 a/b; rm -r a; ls; cp ro copy; stat -c "%a %u %g" ro f2 copy; chown 0 f2 2>/dev/null || echo no
  tar -cf - f2 ro | tar -xf - -C /dev/null 2>/dev/null || echo no; ./cat f3'
mkdir -p tree/{1..6}/{open,unlisted,unsearched,closed}; for d in tree/*/*; do echo f > $d/f; done
chmod 711 tree/*/unlisted; chmod 744 tree/*/unsearched; chmod 700 tree/*/closed; chmod 600 tree/*/open/f
setpriv --reuid 1234 --regid 1234 --clear-groups env SHOAL_RUN_STATS=$COUNTS bash -c '
  find tree -printf "%p %m %u\n" 2>&1 | sort; ls -lR tree 2>&1 | grep -v ^total | awk "{ print \$1, \$3, \$4, \$NF }"
  find tree -name f 2>&1 | sort; cat tree/1/unlisted/f; cat tree/1/closed/f tree/1/unsearched/f 2>&1'
