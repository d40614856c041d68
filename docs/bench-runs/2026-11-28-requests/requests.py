#!/usr/bin/env python3
"""Requests that the kernel sends to a mount for each file, beside the system calls of the program.

    SHOAL=PROGRAM ARCHIVE=FILE.tar [PROJECT=DIR] requests.py [OPTIONS]

PROJECT has a package.json and its lock file; npm gets the packages from the network. Each program runs twice, on
trees of its own: once for the requests, once under strace. Needs strace, git, rsync; root.
"""
import collections, json, os, re, shutil, subprocess, sys, tempfile

SHOAL, ARCHIVE = os.environ["SHOAL"], os.environ["ARCHIVE"]
PROJECT = os.environ.get("PROJECT")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LOOP = """
import os, sys
os.mkdir(sys.argv[1])
for n in range(2000): open(f"{sys.argv[1]}/{n}", "wb").write(b"x" * 1000)
for n in range(2000): open(f"{sys.argv[1]}/{n}", "rb").read()
os.listdir(sys.argv[1])
"""
# {0}: a directory of the mount, which has the archive's tree in t; {1}: a directory beside it.
PROGRAMS = {
    "tar -x": "tar -xf {archive} --one-top-level={0}/x",
    "cp -a": "cp -a {0}/t {0}/c",
    "git clone": "git clone -q {1}/repository {0}/g",
    "git status": "git -C {0}/r status",
    "npm ci": "npm ci --no-audit --no-fund --prefix {0}/p",
    "Python's loop": "python3 {1}/loop.py {0}/l",
    "ls -lR": "ls -lR {0}/t",
    "find -not -user": "find {0}/t -not -user root",
    "rsync -a, no change": "rsync -a {1}/source/ {0}/t/",
    "mv, other filesystem": "mv {1}/moved {0}/m",
    "rm -rf": "rm -rf {0}/t",
}


def run(command):
    subprocess.run(command, shell=True, check=True, **QUIET)


def requests(folder):
    text = subprocess.run([SHOAL, "stats", "--json", folder], check=True, capture_output=True)
    return collections.Counter({name: of["count"] for name, of in json.loads(text.stdout)["operations"].items()})


def prepare(work, options):
    volume, folder = f"{work}/v", f"{work}/m"
    os.mkdir(folder)
    run(f"{SHOAL} mkfs {volume} --size 2G && {SHOAL} mount {volume} {folder} {'-o ' + options if options else ''}")
    run(f"tar -xf {ARCHIVE} --one-top-level={folder}/t")
    run(f"git clone -q {work}/repository {folder}/r")
    run(f"cp -a {work}/source {work}/moved")
    if PROJECT:
        run(f"mkdir {folder}/p && cp {PROJECT}/package.json {PROJECT}/package-lock.json {folder}/p")
    return folder


def main(options):
    work = tempfile.mkdtemp(dir="/dev/shm")
    with open(f"{work}/loop.py", "w") as file:
        file.write(LOOP)
    run(f"mkdir {work}/repository && cd {work}/repository && git init -q && tar -xf {ARCHIVE} && "
        "git add -A && git -c user.name=a -c user.email=a@b commit -qm all")
    run(f"tar -xf {ARCHIVE} --one-top-level={work}/source")
    files = int(subprocess.run(f"find {work}/source -type f | wc -l", shell=True, capture_output=True).stdout)
    for name, command in PROGRAMS.items():
        if name == "npm ci" and not PROJECT:
            continue
        count = {"Python's loop": 2000}.get(name, files)
        counts = []
        for strace in (False, True):
            folder = prepare(work, options)
            line = command.format(folder, work, archive=ARCHIVE)
            # As long after: what was made is known to the kernel.
            before = requests(folder)
            if strace:
                run(f"strace -f -qq -c -U name,calls -o {work}/calls {line}")
                pairs = re.findall(r"^(\w+) +(\d+)$", open(f"{work}/calls").read(), re.M)
                counts.append(collections.Counter({a: int(b) for a, b in pairs if a != "total"}))
            else:
                run(line)
                counts.append(requests(folder) - before)
            if name == "npm ci":
                count = int(subprocess.run(f"find {folder}/p -type f | wc -l", shell=True, capture_output=True).stdout)
            run(f"{SHOAL} umount {folder} && rmdir {folder} && rm -rf {work}/v {work}/moved")
        print(f"{name} ({count} files)")
        for title, of in zip(("requests", "system calls"), counts):
            for own in ("statx", "ioctl"):
                if title == "requests":
                    del of[own]
            many = [(a, b / count) for a, b in of.most_common() if b >= count / 50]
            total = sum(of.values()) / count
            print(f"  {title:13} {total:6.2f}: " + ", ".join(f"{b:.2f} {a}" for a, b in many))
        sys.stdout.flush()
    shutil.rmtree(work)


main(sys.argv[1] if len(sys.argv) > 1 else "")
