for n in 1 2 3 4 5 6 7 8 9; do echo $n > f$n; done
exec 3>log 4<f1; echo one >&3; (echo two >&3); cat <&4 >&3; exec 3>&- 4<&-
{ echo a; echo b; } > both; echo c >> both; cat both log f? | wc -c; cat <<< here > here
wc -c < here; (echo x; exit 3) > sub; echo $?; cat none 2>&1 | sed 's/.*: //'
