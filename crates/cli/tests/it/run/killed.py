"""Walks through a tree, kills the server, and sees what is changed at the next one."""

import os
import subprocess
import sys


def walk():
    return [os.stat(os.path.join(above, file)) for above, _, files in os.walk("k") for file in files]


walk()
walk()
outside = {**os.environ, "SHOAL_RUN": "off", "LD_PRELOAD": ""}
subprocess.run(["bash", "-c", f"kill -9 {sys.argv[1]}; echo x > k/5/new"], env=outside, check=True)
print(os.path.exists("k/5/new"), len(walk()))
