"""Times fsync of small files on a mount of a volume in a bucket, and between them bare PUTs of as
many bytes to the same store, in turns.

    fsync.py MOUNT BUCKET COUNT

Takes AWS_ENDPOINT_URL (http), AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the bucket must exist.
The bytes of a PUT are those of the log object of the fsync (about 300).
"""

import base64
import hashlib
import hmac
import http.client
import os
import statistics
import sys
import time
from email.utils import formatdate
from urllib.parse import urlparse

mount, bucket, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
endpoint = urlparse(os.environ["AWS_ENDPOINT_URL"])
connection = http.client.HTTPConnection(endpoint.hostname, endpoint.port)


def put(name, body):
    """Creates an object if it is absent, as a log object is created."""
    date = formatdate(usegmt=True)
    text = f"PUT\n\n\n{date}\n/{bucket}/{name}".encode()
    key = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha1).digest()).decode()
    headers = {
        "Date": date,
        "If-None-Match": "*",
        "Authorization": f"AWS {os.environ['AWS_ACCESS_KEY_ID']}:{signature}",
    }
    connection.request("PUT", f"/{bucket}/{name}", body, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status


def sync(name, body):
    """Makes a file durable; returns the time of the fsync alone."""
    file = os.open(f"{mount}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(file, body)
    begun = time.perf_counter()
    os.fsync(file)
    took = time.perf_counter() - begun
    os.close(file)
    return took


base = f"fsync-{os.getpid()}"
os.mkdir(f"{mount}/{base}")
fsyncs, puts = [], []
for n in range(count + 20):
    took = sync(f"{base}/{n}", b"x" * 100)
    begun = time.perf_counter()
    put(f"{base}/{n}", os.urandom(300))
    if n >= 20:
        fsyncs.append(took)
        puts.append(time.perf_counter() - begun)


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


for name, values in ("fsync", fsyncs), ("PUT", puts):
    print(f"{name}: p50 {quantile(values, 0.5):.2f} ms, p99 {quantile(values, 0.99):.2f} ms")
for share in 0.5, 0.99:
    print(f"ratio p{share * 100:g}: {quantile(fsyncs, share) / quantile(puts, share):.2f}")
parts = [statistics.median(fsyncs[i::5]) / statistics.median(puts[i::5]) for i in range(5)]
print("ratio of medians, five parts:", " ".join(f"{part:.2f}" for part in sorted(parts)))
