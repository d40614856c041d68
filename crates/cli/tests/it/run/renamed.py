"""Reads below a directory that another process has renamed since it was opened, with another one in
its place. Without copies or forks before, so that the descriptor is a session's."""

import os
import subprocess

outside = {**os.environ, "SHOAL_RUN": "off", "LD_PRELOAD": ""}
other = subprocess.Popen(["bash"], env=outside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def change(line):
    other.stdin.write(f"{line}; echo done\n")
    other.stdin.flush()
    assert other.stdout.readline() == "done\n"


change("mkdir -p w/r/s w/q/s w/{1..9}; echo old > w/r/s/f; echo other > w/q/s/f; touch w/{1..9}/x")
above = os.open("w/r", os.O_RDONLY | os.O_DIRECTORY)
os.listdir(above)
change("mv w/r w/renamed; mv w/q w/r")
for _ in range(3):
    for directory, _, files in os.walk("w"):
        for name in files:
            os.lstat(os.path.join(directory, name))
inside = os.open("s", os.O_RDONLY | os.O_DIRECTORY, dir_fd=above)
with open(os.open("f", os.O_RDONLY, dir_fd=inside)) as file:
    print(file.read())
other.stdin.close()
other.wait()
