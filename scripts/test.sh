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
# Interrupted, it leaves no row running.
row=''
trap '[[ ! $row ]] || kill "$row" 2>/dev/null; rm -f "$SHOAL_SKIPPED" "$SHOAL_SKIPPED.row"' EXIT
# Ends a binary with a test that waits forever; the harness names it after 60 seconds. The slowest
# binary takes 100 s here.
host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
declare -x "CARGO_TARGET_${host}_RUNNER=timeout --foreground --kill-after=10 600"

# The names of the test programs of crates, as arguments of cargo test.
programs() {
  local file
  for file in "$@"; do
    [[ $file == *.rs || -e $file/main.rs ]] || continue
    echo "--test=$(basename "$file" .rs)"
  done | sort -u
}
# Cargo runs one program after another, and the slowest test of most is alone for a while, or waits
# for another process. So two rows of programs run beside each other: those that mount, which set the
# kernel's one switch for rings, in one row, all others in the other. Its output comes when it ends.
both_rows() {
  local mounting others status=0
  mounting=$(programs crates/{fuse,cli}/tests/* crates/sim/tests/{kill9*,linear_mount,soak}.rs)
  others=$(programs crates/*/tests/* | grep -vxF -e "$mounting")
  cargo test --workspace --no-run || return
  # shellcheck disable=SC2086
  cargo test --workspace --lib --bins $others >"$SHOAL_SKIPPED.row" 2>&1 &
  row=$!
  # shellcheck disable=SC2086
  cargo test --workspace $mounting || status=$?
  wait "$row" || status=$?
  row=''
  cat "$SHOAL_SKIPPED.row"
  ((status == 0)) || return "$status"
  cargo test --workspace --doc
}

start=$SECONDS status=0
if (($#)); then
  cargo test --workspace "$@" || status=$?
else
  both_rows || status=$?
fi
# A line for each reason, with its tests; some tests run twice, over /dev/fuse and through rings.
sort -t $'\t' -k2 -k1,1 "$SHOAL_SKIPPED" | uniq | awk -F '\t' '
  { tests[$2] = tests[$2] (tests[$2] ? ", " : "") $1; count[$2]++ }
  END { for (why in tests) printf "skipped %d: %s (%s)\n", count[why], why, tests[why] }' | sort
((status == 0)) || exit "$status"
skipped=$(sort -u "$SHOAL_SKIPPED" | wc -l)
echo "all tests passed in $((SECONDS - start)) s, $skipped skipped"
