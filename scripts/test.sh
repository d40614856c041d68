#!/usr/bin/env bash
# All tests: of every crate, across crates, in the documentation, and the house rules.
# The tests that need a mount skip themselves, saying so, where there is no /dev/fuse.
#
#   scripts/test.sh [ARGUMENTS OF cargo test]
set -euo pipefail
cd "$(dirname "$0")/.."

# One profile and one folder for everything: dev, which this workspace optimises lightly, because
# with assertions and overflow checks the tests find more, and a second profile would build twice.
# Not nextest: it does not run the tests in the documentation, and would build into the same time.
scripts/setup.sh || echo "going on with what there is"
start=$SECONDS
cargo test --workspace "$@"
echo "all tests passed in $((SECONDS - start)) s"
