#!/usr/bin/env python3
"""What a mount by FUSE can be at most: fs_mark and tar on a server that does nothing, in turn with
Shoal's mounts and filesystems of the kernel, all there at once.

    SHOAL=PROGRAM NOTHING=PROGRAM KERNEL_FS=PROGRAM ARCHIVE=FILE.tar \\
        nothing.py ROUNDS shoal[:OPTIONS]|nothing[:OPTIONS]|xfs|ext4 ...

NOTHING is crates/fuse/examples/nothing.rs. Prints medians in milliseconds, and in brackets the ratio
to the last system in the same round: median, quartiles. Root; fs_mark; 3 GB of /dev/shm for each.
"""
import os, shutil, statistics, subprocess, sys, tempfile, time

SHOAL, NOTHING, KERNEL_FS, ARCHIVE = (
    os.environ[name] for name in ("SHOAL", "NOTHING", "KERNEL_FS", "ARCHIVE"))
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
FS_MARK = "fs_mark {2} -n {0} -s 0 -t {1} -S 0 -k"
COMPUTE = [sys.executable, "-c", "while True: pass"]


def fs_mark(folder, threads, files=12000):
    folders = " ".join(f"-d {folder}/{n}" for n in range(threads))
    return FS_MARK.format(files // threads, threads, folders)


PROGRAMS = {
    "fs_mark, 1 thread": lambda folder: fs_mark(folder, 1),
    "2 threads": lambda folder: fs_mark(folder, 2),
    "4 threads": lambda folder: fs_mark(folder, 4),
    "1, beside computing": lambda folder: fs_mark(folder, 1),
    "tar -x": lambda folder: f"tar -xf {ARCHIVE} -C {folder}",
}


def run(command):
    subprocess.run(command, check=True, **QUIET)


def mount(system, folder):
    os.mkdir(folder)
    kind, _, options = system.partition(":")
    if kind == "shoal":
        run([SHOAL, "mkfs", f"{folder}.img", "--size", "3G"])
        run([SHOAL, "mount", f"{folder}.img", folder, "-o", options or "suid"])
    elif kind == "nothing":
        # A session of its own, as the default mount has: the scheduler takes a session for a group.
        with open(f"{folder}.log", "w") as log:
            subprocess.Popen([NOTHING, folder, options], start_new_session=True, stdout=log, stderr=log)
        while not os.path.ismount(folder):
            time.sleep(0.05)
    else:
        run([KERNEL_FS, "up", kind, folder, "3G"])


def unmount(system, folder):
    kind = system.partition(":")[0]
    if kind == "shoal":
        run([SHOAL, "umount", folder])
    elif kind == "nothing":
        run(["umount", folder])
    else:
        run([KERNEL_FS, "down", folder])


def main(rounds, systems):
    work = tempfile.mkdtemp(dir="/dev/shm")
    folders = [f"{work}/{n}" for n in range(len(systems))]
    for system, folder in zip(systems, folders):
        mount(system, folder)
    times = {program: [[] for _ in systems] for program in PROGRAMS}
    for number in range(rounds):
        for program, command in PROGRAMS.items():
            beside = [subprocess.Popen(COMPUTE) for _ in range(2 * ("computing" in program))]
            for folder, into in zip(folders, times[program]):
                # Nothing is removed: the server that does nothing lists nothing.
                top = f"{folder}/{number}-{list(PROGRAMS).index(program)}"
                os.mkdir(top)
                begun = time.monotonic()
                subprocess.run(command(top), shell=True, check=True, cwd=work, **QUIET)
                into.append(1000 * (time.monotonic() - begun))
            for process in beside:
                process.kill()
                process.wait()
    for system, folder in zip(systems, folders):
        unmount(system, folder)
    shutil.rmtree(work)
    print(f"{'milliseconds':20}", *(f"{system[-24:]:>26}" for system in systems))
    for program, of in times.items():
        cells = []
        for mine in of:
            low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, of[-1])], n=4)
            cells.append(f"{statistics.median(mine):8.0f} ({middle:4.2f}, {low:4.2f}-{high:4.2f})")
        print(f"{program:20}", *(f"{cell:>26}" for cell in cells))


main(int(sys.argv[1]), sys.argv[2:])
