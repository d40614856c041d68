"""Walks through trees, and sees at once what others change meanwhile."""

import os
import subprocess
import sys

# Changes are made by another process, on the mount.
outside = {**os.environ, "SHOAL_RUN": "off"}
outside.pop("LD_PRELOAD", None)
other = subprocess.Popen(["bash"], env=outside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def change(line):
    other.stdin.write(f"{line}; echo done\n")
    other.stdin.flush()
    while (said := other.stdout.readline()) != "done\n":
        assert said, line


def facts(path, **how):
    try:
        found = os.stat(path, follow_symlinks=False, **how)
    except OSError as error:
        return error.strerror
    size = found.st_size if os.path.isfile(path) else "-"
    return f"{found.st_mode:o} {size} {found.st_uid} {int(found.st_mtime) if found.st_mtime < 1e9 else '-'}"


def walk(top="w"):
    """Often enough to be answered from copies."""
    for _ in range(2):
        seen = []
        for above, dirs, files in os.walk(top):
            dirs.sort()
            for name in sorted(dirs + files):
                path = os.path.join(above, name)
                seen.append((path, facts(path), sorted(os.listxattr(path, follow_symlinks=False))))
    return sorted(seen)


def show(what, *values):
    print(what, *values)


change("mkdir -p w/d{1..6}/e w/large; for n in w/d*/f{1..4} w/large/{1..300}; do echo $n > $n; done")
change("ln -s d1 w/link; ln -s nothing w/dangling; chmod 640 w/d1/f1")
for entry in walk():
    show(*entry)

CHANGES = [
    ("touch w/d1/new", "w/d1/new"),
    ("rm w/d1/new", "w/d1/new"),
    ("chmod 600 w/d2/f1", "w/d2/f1"),
    ("chown 7 w/d2/f2", "w/d2/f2"),
    ("echo longer than it was > w/d2/f3", "w/d2/f3"),
    ("echo more >> w/d2/f3", "w/d2/f3"),
    ("truncate -s 3 w/d2/f3", "w/d2/f3"),
    ("touch -d @12345 w/d2/f4", "w/d2/f4"),
    ("printf x | dd of=w/d2/f4 conv=notrunc status=none; touch -d @23456 w/d2/f4", "w/d2/f4"),
    ("ln w/d3/f1 w/d3/hard", "w/d3/hard"),
    ("mv w/d3/f2 w/d3/renamed", "w/d3/f2"),
    ("mv w/d4 w/d5/below", "w/d5/below/f1"),
    ("rm -r w/d5/below", "w/d5/below/f1"),
    ("mkdir w/d4", "w/d4"),
    ("rmdir w/d4", "w/d4"),
    ("rm w/link; ln -s d2 w/link", "w/link/f1"),
    ("rm -r w/large; mkdir w/large", "w/large/7"),
]
for line, path in CHANGES:
    walk()
    change(line)
    show(line, "|", facts(path), os.path.exists(path), sorted(os.listdir(os.path.dirname(path) or "."))[:9]
         if os.path.isdir(os.path.dirname(path)) else "no directory")

# Its own changes.
walk()
os.mkdir("w/own")
show(os.path.isdir("w/own"), "own" in os.listdir("w"))
walk()
os.rmdir("w/own")
show(os.path.isdir("w/own"), "own" in os.listdir("w"))
with open("w/d1/f2", "a") as file:
    walk()
    file.write("appended")
    file.flush()
    show(facts("w/d1/f2"), os.fstat(file.fileno()).st_size)
walk()
os.setxattr("w/d1/f3", "user.k", b"v")
show(os.listxattr("w/d1/f3"), os.getxattr("w/d1/f3", "user.k"))
try:
    os.getxattr("w/d1/f4", "user.k")
except OSError as error:
    show(error.strerror)

# A directory that was opened before it was renamed or removed.
change("mkdir -p w/z{1..9}/y; for n in w/z*/y/f w/z*/f; do echo $n > $n; done")
walk()
opened = [os.open(f"w/z{n}", os.O_RDONLY | os.O_DIRECTORY) for n in range(1, 10)]
show(facts("f", dir_fd=opened[0]))
change("mv w/z1 w/moved; echo more >> w/moved/f; rm -r w/z2")
show(facts("f", dir_fd=opened[0]), sorted(os.listdir(opened[0])))
show(facts("f", dir_fd=opened[1]), os.listdir(opened[1]))
with open(os.open("f", os.O_RDONLY, dir_fd=opened[0])) as file:
    show(file.read())
os.unlink("f", dir_fd=opened[2])
show(sorted(os.listdir(opened[2])), os.path.exists("w/z3/f"))
os.fchdir(opened[3])
show(sorted(os.listdir(".")), open("f").read())
os.chdir("../..")

# Times of access of what it has read itself.
change("touch -a -d @1000 w/z5/f w/z5/y/f; sync")
walk()
before = os.stat("w/z5/f").st_atime
open("w/z5/f").read()
show(before, os.stat("w/z5/f").st_atime > before)

other.stdin.close()
other.wait()
sys.stdout.flush()
