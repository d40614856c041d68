#!/usr/bin/env bash
# All tests: of every crate, across crates, in the documentation, and the house rules.
# Ends with the slow tests, the tests that were skipped and why (crates/skip), and the sums. Where
# root and /dev/fuse exist, a test that skips itself for want of a mount fails; SHOAL_REQUIRE_MOUNT=
# (empty) lets it.
#
#   scripts/test.sh [ARGUMENTS OF cargo test]
#
#   SHOAL_TEST_JOBS=N    test programs at a time (default: one more than processors)
set -euo pipefail
cd "$(dirname "$0")/.."

# One profile and one folder for everything: dev, which this workspace optimises lightly, because
# with assertions and overflow checks the tests find more, and a second profile would build twice.
# Not nextest: it does not run the tests in the documentation, and would build into the same time.
scripts/setup.sh || echo "going on with what there is"
if ((EUID == 0)) && [[ -c /dev/fuse ]]; then
  export SHOAL_REQUIRE_MOUNT=${SHOAL_REQUIRE_MOUNT-1}
fi
work=$(mktemp -d)
export SHOAL_SKIPPED=$work/skipped SHOAL_PROGRAMS=$work/programs
mkdir "$SHOAL_PROGRAMS"
: >"$SHOAL_SKIPPED"
# Interrupted, it leaves no program running: each is a child of a job.
end() {
  local job
  for job in $(jobs -p); do
    pkill -P "$job" || true
    kill "$job" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap end EXIT

host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
runner=CARGO_TARGET_${host}_RUNNER
# A program with a test that waits forever; the harness names the test after 60 seconds. Half an
# hour: the slowest takes three minutes on two quiet processors, and the machine may be busy.
limit=(timeout --foreground --kill-after=10 1800)

# Cargo runs one program after another, and the slowest test of most is alone for a while, or waits
# for another process. So cargo only writes down how each would be run, and they run some at a time.
cat >"$work/write-down" <<'SCRIPT'
#!/usr/bin/env bash
file=$(mktemp "$SHOAL_PROGRAMS/XXXXXX")
name=$(basename "$1")
{
  echo "# $CARGO_PKG_NAME ${name%-*}"
  export -p
  printf 'cd %q && exec' "$PWD"
  printf ' %q' "$@"
  # What the one who runs it adds.
  echo ' "$@"'
} >"$file"
SCRIPT

# Runs one program, and prints what it has said in one piece.
program() {
  local file=$1 name arguments=() start=$SECONDS status=0
  name=$(sed -n '1s/^# //p' "$file")
  # Times of single tests are an option of the harness that Rust calls unstable.
  [[ $name == *shared_lines ]] || arguments=(-Zunstable-options --report-time)
  "${limit[@]}" bash -c "source '$file'"' "$@"' "$name" "${arguments[@]}" >"$file.out" 2>&1 ||
    status=$?
  {
    flock 9
    printf '== %s: %d s\n' "$name" $((SECONDS - start))
    # The shortest of what has passed: a line for each test would hide what has not.
    grep -vE '^test .* \.\.\. ok <[0-9.]+s>$' "$file.out" || true
    ((status == 0)) || echo "$name FAILED with status $status" | tee -a "$work/failed"
  } 9>"$work/printing"
  return "$status"
}

# The programs, those that take longest first.
in_order() {
  local file name
  for file in "$SHOAL_PROGRAMS"/??????; do
    name=$(sed -n '1s/^# //p' "$file")
    case $name in
      'shoal-cli it' | 'shoal-fuse it') echo "0 $file" ;;
      'shoal-sim it') echo "1 $file" ;;
      'shoal-engine it') echo "2 $file" ;;
      'shoal it' | 'shoal-bucket it' | 'shoal-sim planted') echo "3 $file" ;;
      *) echo "4 $file" ;;
    esac
  done | sort | cut -d' ' -f2
}

everything() {
  local file jobs=${SHOAL_TEST_JOBS:-$(($(nproc) + 1))} running=0 status=0
  cargo test --workspace --no-run || return
  echo "built after $SECONDS s"
  declare -x "$runner=bash $work/write-down"
  cargo test --workspace --lib --bins --tests 2>/dev/null || return
  unset "$runner"
  export RUSTC_BOOTSTRAP=1
  for file in $(in_order); do
    if ((running == jobs)); then
      wait -n || status=$?
      running=$((running - 1))
    fi
    program "$file" &
    running=$((running + 1))
  done
  unset RUSTC_BOOTSTRAP
  while ((running)); do
    wait -n || status=$?
    running=$((running - 1))
  done
  cargo test --workspace --doc >"$SHOAL_PROGRAMS/doc.out" 2>&1 || {
    status=$?
    echo "documentation FAILED" >>"$work/failed"
  }
  cat "$SHOAL_PROGRAMS/doc.out"
  return "$status"
}

# Tests of more than 20 s, for which every change waits, with their programs.
slow() {
  local file name
  for file in "$SHOAL_PROGRAMS"/??????; do
    name=$(sed -n '1s/^# //p' "$file")
    sed -nE "s/^test (.*) \.\.\. ok <([0-9]+)\.[0-9]+s>$/\2 $name \1/p" "$file.out"
  done | sort -rn | awk '$1 >= 20 { printf "slow: %s %s %s, %d s\n", $2, $3, $4, $1 }'
}

sums() {
  sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; .*/\1 \2/p' "$SHOAL_PROGRAMS"/*.out |
    awk -v skipped="$1" '{ passed += $1; failed += $2 }
      END { printf "tests: %d passed, %d failed, %d skipped\n", passed, failed, skipped }'
}

SECONDS=0 status=0
if (($#)); then
  cargo test --workspace "$@" || status=$?
else
  everything || status=$?
  slow
fi
# A line for each reason, with its tests; some tests run twice, over /dev/fuse and through rings.
sort -t $'\t' -k2 -k1,1 "$SHOAL_SKIPPED" | uniq | awk -F '\t' '
  { tests[$2] = tests[$2] (tests[$2] ? ", " : "") $1; count[$2]++ }
  END { for (why in tests) printf "skipped %d: %s (%s)\n", count[why], why, tests[why] }' | sort
[[ ! -e $work/failed ]] || cat "$work/failed"
skipped=$(sort -u "$SHOAL_SKIPPED" | wc -l)
((status)) || echo "all tests passed in $SECONDS s, $skipped skipped"
(($#)) || sums "$skipped"
exit "$status"
