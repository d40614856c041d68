#!/usr/bin/env bash
# All tests: of every crate, across crates, in the documentation, and the house rules.
# Ends with the tests that were skipped, and why (crates/skip). Where root and /dev/fuse exist, a test
# that skips itself for want of a mount fails; SHOAL_REQUIRE_MOUNT= (empty) lets it.
#
#   scripts/test.sh [ARGUMENTS OF cargo test]
set -euo pipefail
cd "$(dirname "$0")/.."

# One profile and one folder for everything: dev, which this workspace optimises lightly, because
# with assertions and overflow checks the tests find more, and a second profile would build twice.
# Not nextest: it does not run the tests in the documentation, and would build into the same time.
scripts/setup.sh || echo "going on with what there is"
if ((EUID == 0)) && [[ -c /dev/fuse ]]; then
  export SHOAL_REQUIRE_MOUNT=${SHOAL_REQUIRE_MOUNT-1}
fi
SHOAL_SKIPPED=$(mktemp)
export SHOAL_SKIPPED
trap 'rm -f "$SHOAL_SKIPPED"' EXIT
# Ends a binary with a test that waits forever; the harness names it after 60 seconds. The slowest
# binary takes 100 s here.
host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
declare -x "CARGO_TARGET_${host}_RUNNER=timeout --foreground --kill-after=10 600"
start=$SECONDS status=0
cargo test --workspace "$@" || status=$?
# A line for each reason, with its tests; some tests run twice, over /dev/fuse and through rings.
sort -t $'\t' -k2 -k1,1 "$SHOAL_SKIPPED" | uniq | awk -F '\t' '
  { tests[$2] = tests[$2] (tests[$2] ? ", " : "") $1; count[$2]++ }
  END { for (why in tests) printf "skipped %d: %s (%s)\n", count[why], why, tests[why] }' | sort
((status == 0)) || exit "$status"
skipped=$(sort -u "$SHOAL_SKIPPED" | wc -l)
echo "all tests passed in $((SECONDS - start)) s, $skipped skipped"
