#!/usr/bin/env bash
# The hash of what declares the format, by which a run of all its mutants is remembered
# (crates/format/golden/mutants.txt).
set -euo pipefail
cd "$(dirname "$0")/../crates/format"
find src tests -name '*.rs' -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum | cut -d' ' -f1
