export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
export GIT_AUTHOR_DATE='2020-01-01 00:00:00Z' GIT_COMMITTER_DATE='2020-01-01 00:00:00Z'
git init -q -b main repo; cd repo; git config gc.auto 0; mkdir -p d/e
for n in $(seq 60); do echo $n > d/f$n; echo $n > d/e/g$n; done
git add .; git commit -qm one; git rev-parse HEAD; git checkout -q -b other; echo x > d/f1; rm d/f2
git commit -qam two; git rev-parse HEAD; git checkout -q main; cat d/f1; git status --short; git stash list
git merge -q other; git log --oneline | wc -l; git gc -q; git fsck; git clone -q . ../clone
cd ..; diff -r repo/d clone/d && echo same; cd clone && git status --short | wc -l; git ls-files | cksum
rm -rf ../repo/.git ../clone/.git
