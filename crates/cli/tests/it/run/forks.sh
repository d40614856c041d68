for n in 1 2 3 4 5; do echo > w$n; done
for n in $(seq 20); do (echo $n >> shared) & done; wait; sort -n -o shared shared; cksum shared
{ for n in $(seq 50); do echo $n; done; } | while read n; do echo $n > n$n; done; ls | wc -l
( exec 5>fd5; bash -c 'echo inherited >&5'; echo after >&5 ); cat fd5
