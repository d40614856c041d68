#!/usr/bin/env python3
"""Times of a file that is made, written in pieces and closed: opened O_RDWR, and O_WRONLY, in turn.

    made.py DIRECTORY BYTES PIECES
"""
import os, statistics, sys, time

TOP, BYTES, PIECES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def make(folder, flags, files=200):
    os.mkdir(folder)
    piece, begun = b"x" * BYTES, time.monotonic()
    for n in range(files):
        file = os.open(f"{folder}/{n}", os.O_CREAT | os.O_EXCL | flags, 0o644)
        for _ in range(PIECES):
            os.write(file, piece)
        os.close(file)
    return (time.monotonic() - begun) / files * 1e6


pairs = [(make(f"{TOP}/a{n}", os.O_RDWR), make(f"{TOP}/b{n}", os.O_WRONLY)) for n in range(40)]
low, middle, high = statistics.quantiles([b / a for a, b in pairs], n=4)
a, b = (statistics.median(of) for of in zip(*pairs))
print(f"{BYTES} bytes {PIECES} times: O_RDWR {a:.1f} us, O_WRONLY {b:.1f} us, {middle:.2f} ({low:.2f}-{high:.2f})")
