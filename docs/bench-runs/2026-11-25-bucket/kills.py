"""Kills the server of a mount of a volume in a bucket while a program makes files durable, mounts it
again, and looks for every file of which the program was told that it is durable.

    kills.py SHOAL VOLUME MOUNT ROUNDS
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

shoal, volume, mount, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def server():
    """The process that serves the mount."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"mount" in words and volume.encode() in words and b"--foreground" in words:
            return int(pid)
    raise SystemExit("no server")


def start():
    subprocess.run([shoal, "mount", volume, mount], check=True)


def work(told):
    """Makes files durable until the mount is gone."""
    n = len(told)
    try:
        while True:
            file = os.open(f"{mount}/kills/{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(file, b"content of %d" % n)
            os.fsync(file)
            told.append(n)
            os.close(file)
            n += 1
    except OSError:
        pass


start()
os.makedirs(f"{mount}/kills", exist_ok=True)
told, pauses, lost = [], [], 0
for number in range(rounds):
    thread = threading.Thread(target=work, args=(told,))
    thread.start()
    time.sleep(random.uniform(0.2, 1.5))
    os.kill(server(), signal.SIGKILL)
    begun = time.perf_counter()
    thread.join()
    subprocess.run(["umount", "-l", mount], check=True)
    start()
    with open(f"{mount}/kills/first-{number}", "w") as file:
        file.flush()
        os.fsync(file.fileno())
    pauses.append(time.perf_counter() - begun)
    for n in told:
        try:
            with open(f"{mount}/kills/{n}", "rb") as file:
                lost += file.read() != b"content of %d" % n
        except OSError:
            lost += 1
    # What was under way may be there or not.
    try:
        os.unlink(f"{mount}/kills/{len(told)}")
    except OSError:
        pass
subprocess.run([shoal, "umount", mount], check=True)
pauses.sort()
print(f"{rounds} kills, {len(told)} files told to be durable, {lost} lost")
print(
    f"kill to the first durable write after it: median {pauses[len(pauses) // 2] * 1000:.0f} ms, "
    f"p99 {pauses[int(len(pauses) * 0.99)] * 1000:.0f} ms, longest {pauses[-1] * 1000:.0f} ms"
)
