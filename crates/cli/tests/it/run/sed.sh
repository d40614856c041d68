for n in $(seq 30); do echo line $n > s$n; done; sed -i 's/line/row/' s*; cat s* | cksum
sed -i.old -e 1d s1; ls s1*; grep -l 'row 1' s* | sort; grep -rc row . | sort | head -3
