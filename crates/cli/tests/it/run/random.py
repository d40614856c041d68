"""Makes random changes and questions, some by sessions and some by another process on the mount, and
compares what both see after each: random.py SEED STEPS. The other process is this program too."""

import json
import os
import random
import subprocess
import sys

NAMES = ["a", "b", "c", "d"]


def facts(path, **how):
    found = os.stat(path, follow_symlinks=False, **how)
    links = 0 if found.st_mode >> 12 == 4 else found.st_nlink
    times = [found.st_mtime_ns, found.st_ctime_ns]
    return [found.st_ino, found.st_mode, links, found.st_uid, found.st_size, found.st_blocks, *times]


def write(path, how, text):
    with open(path, how) as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


QUESTIONS = {
    "facts": facts,
    "list": lambda path: sorted(os.listdir(path)),
    "xattrs": lambda path: sorted(os.listxattr(path, follow_symlinks=False)),
    "read": read,
}
CHANGES = {
    "create": lambda path, _: write(path, "w", "new"),
    "append": lambda path, _: write(path, "a", "more"),
    "unlink": lambda path, _: os.unlink(path),
    "mkdir": lambda path, _: os.mkdir(path),
    "rmdir": lambda path, _: os.rmdir(path),
    "rename": os.rename,
    "link": os.link,
    "symlink": lambda path, _: os.symlink("a", path),
    "chmod": lambda path, other: os.chmod(path, 0o600 + 0o11 * len(other)),
    "truncate": lambda path, other: os.truncate(path, len(other)),
    "utime": lambda path, other: os.utime(path, (len(other), len(other))),
    "setxattr": lambda path, other: os.setxattr(path, "user.k", other.encode()),
}


def make(what, *args):
    """The result of a call, or the number of its error."""
    try:
        result = {**QUESTIONS, **CHANGES}[what](*args)
    except OSError as error:
        return f"error {error.errno}"
    return result if what in QUESTIONS else None


def serve():
    for line in sys.stdin:
        print(json.dumps(make(*json.loads(line))), flush=True)


class Other:
    """The other process."""

    def __init__(self):
        outside = {**os.environ, "SHOAL_RUN": "off", "LD_PRELOAD": ""}
        self.process = subprocess.Popen(
            [sys.executable, __file__], env=outside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def make(self, *call):
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main(seed, steps):
    rng, other, held = random.Random(seed), Other(), []

    def path():
        return "/".join(["t"] + [rng.choice(NAMES) for _ in range(rng.randint(1, 3))])

    for above in NAMES:
        for name in NAMES:
            os.makedirs(f"t/{above}/{name}")
            for file in NAMES:
                write(f"t/{above}/{name}/{file}", "w", file)
    for step in range(steps):
        kind = rng.random()
        if kind < 0.12:
            call = (rng.choice(list(CHANGES)), path(), path())
            (other.make if rng.random() < 0.6 else make)(*call)
        elif kind < 0.2:
            for above, _, files in os.walk("t"):
                for file in files:
                    facts(os.path.join(above, file))
        elif kind < 0.25:
            try:
                place = path()
                held.append((place, os.open(place, os.O_RDONLY | os.O_DIRECTORY)))
            except OSError:
                pass
            if len(held) > 5:
                os.close(held.pop(0)[1])
        elif kind < 0.35 and held:
            # What is in a directory that is open, if its path still leads to it.
            place, opened = rng.choice(held)
            there = other.make("facts", place)
            if isinstance(there, list) and there[0] == os.fstat(opened).st_ino:
                name = rng.choice(NAMES)
                try:
                    mine = facts(name, dir_fd=opened)
                except OSError as error:
                    mine = f"error {error.errno}"
                assert mine == other.make("facts", f"{place}/{name}"), (seed, step, place, name, mine)
                assert sorted(os.listdir(opened)) == other.make("list", place), (seed, step, place)
        else:
            call = (rng.choice(["facts", "facts", "facts", *QUESTIONS]), path())
            mine, others = make(*call), other.make(*call)
            assert mine == others, (seed, step, call, mine, others)
    other.process.stdin.close()
    other.process.wait()
    print("the same")


if len(sys.argv) == 1:
    serve()
else:
    main(int(sys.argv[1]), int(sys.argv[2]))
