#!/usr/bin/env python3
"""Programs in turn on mounts that are all there at once, and fs_mark beside programs that compute.

    SHOAL=PROGRAM KERNEL_FS=PROGRAM ARCHIVE=FILE.tar programs.py ROUNDS OPTIONS|xfs|ext4 ...

Prints medians, and in brackets the ratio to the first system in the same round: median, quartiles.
Volumes and filesystems are in /dev/shm, which needs 4 GB for each. Root; fs_mark, git.
"""
import os, shutil, statistics, subprocess, sys, tempfile, time

SHOAL, KERNEL_FS, ARCHIVE = (os.environ[name] for name in ("SHOAL", "KERNEL_FS", "ARCHIVE"))
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LOOP = """
import os, sys
os.mkdir(sys.argv[1])
for n in range(5000): open(f"{sys.argv[1]}/{n}", "wb").write(b"x" * 1000)
for n in range(5000): open(f"{sys.argv[1]}/{n}", "rb").read()
os.listdir(sys.argv[1])
"""
PROGRAMS = {
    "tar -x": f"mkdir {{0}}/t && tar -xf {ARCHIVE} -C {{0}}/t",
    "ls -lR": "ls -lR {0}/t",
    "git clone": "git clone -q {1}/repository {0}/g",
    "Python": "python3 {1}/loop.py {0}/p",
    "fs_mark, 2 threads": "fs_mark -d {0}/f1 -d {0}/f2 -n 3000 -s 0 -t 2 -S 0",
    "fs_mark": "fs_mark -d {0}/m1 -n 1000 -s 1000 -t 1 -S 0",
    "beside computing": "fs_mark -d {0}/m2 -n 1000 -s 1000 -t 1 -S 0",
    "rm -rf": "rm -rf {0}/t {0}/g {0}/p {0}/f1 {0}/f2 {0}/m1 {0}/m2",
}
COMPUTE = [sys.executable, "-c", "while True: pass"]


def run(command):
    subprocess.run(command, check=True, **QUIET)


def mount(system, image, folder):
    os.mkdir(folder)
    if system in ("xfs", "ext4"):
        return run([KERNEL_FS, "up", system, folder, "3G"])
    run([SHOAL, "mkfs", image, "--size", "3G"])
    run([SHOAL, "mount", image, folder, "-o", system])


def main(rounds, systems):
    work = tempfile.mkdtemp(dir="/dev/shm")
    with open(f"{work}/loop.py", "w") as file:
        file.write(LOOP)
    made = f"mkdir {work}/repository && cd {work}/repository && git init -q && tar -xf {ARCHIVE} && " \
        "git add -A && git -c user.name=a -c user.email=a@b commit -qm all"
    subprocess.run(made, shell=True, check=True, **QUIET)
    folders = [f"{work}/{n}" for n in range(len(systems))]
    for system, folder in zip(systems, folders):
        mount(system, f"{folder}.img", folder)
    times = {program: [[] for _ in systems] for program in PROGRAMS}
    for _ in range(rounds):
        for program, command in PROGRAMS.items():
            beside = [subprocess.Popen(COMPUTE) for _ in range(2 * (program == "beside computing"))]
            for folder, into in zip(folders, times[program]):
                begun = time.monotonic()
                subprocess.run(command.format(folder, work), shell=True, check=True, **QUIET)
                into.append(1000 * (time.monotonic() - begun))
            for process in beside:
                process.kill()
                process.wait()
    for system, folder in zip(systems, folders):
        run([KERNEL_FS, "down", folder] if system in ("xfs", "ext4") else [SHOAL, "umount", folder])
    shutil.rmtree(work)
    print(f"{'milliseconds':20}", *(f"{system[-24:]:>26}" for system in systems))
    for program, of in times.items():
        cells = []
        for mine in of:
            low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, of[0])], n=4)
            cells.append(f"{statistics.median(mine):8.0f} ({middle:4.2f}, {low:4.2f}-{high:4.2f})")
        print(f"{program:20}", *(f"{cell:>26}" for cell in cells))


main(int(sys.argv[1]), sys.argv[2:])
