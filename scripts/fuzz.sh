#!/usr/bin/env bash
# Fuzzes: each target for some seconds, from the corpus in fuzz/corpus. What is found lies in
# fuzz/artifacts/TARGET, with the command that replays it; new inputs of interest in fuzz/found.
# Needs a nightly toolchain and `cargo install cargo-fuzz --locked`.
#
#   scripts/fuzz.sh [TARGET|all] [SECONDS]    default: all targets, 30 seconds each
#   scripts/fuzz.sh seed                      after a change of the format, and of the frozen images: makes
#                                             the corpus anew, of a fresh volume and of these
#   scripts/fuzz.sh replay [SECONDS]          on the stable toolchain, without libFuzzer: the corpus,
#                                             and random changes of it, so long for each target; all
#                                             tests (scripts/test.sh) try a fixed number of them
#
# SHOAL_FUZZ_SANITIZER=address|none (default none), SHOAL_FUZZ_RUNS=N: stops after so many; replay
# has further variables (fuzz/targets/lib.rs), and with a sanitizer needs nightly, not cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-all} seconds=${2:-30}
case $target in
  seed) exec cargo run --quiet --package shoal-fuzz --example seed ;;
  replay)
    export SHOAL_FUZZ_SECONDS=${2:-1}
    if [[ ${SHOAL_FUZZ_SANITIZER:-none} != none ]]; then
      # Needs nightly, and says which target so that build scripts go without.
      export RUSTFLAGS="-Zsanitizer=$SHOAL_FUZZ_SANITIZER -Cdebug-assertions -Coverflow-checks"
      asan=detect_odr_violation=0:detect_stack_use_after_return=0:max_allocation_size_mb=256
      # Most of the time would go to keeping freed memory, and who had asked for it.
      export ASAN_OPTIONS=${ASAN_OPTIONS:-$asan:quarantine_size_mb=4:malloc_context_size=1}
      exec cargo +nightly test --release --target x86_64-unknown-linux-gnu \
        --package shoal-fuzz --lib -- --nocapture
    fi
    exec cargo test --package shoal-fuzz --lib -- --nocapture
    ;;
  all) mapfile -t targets < <(basename -s .rs -a fuzz/targets/bin/*.rs) ;;
  *) targets=("$target") ;;
esac

cargo fuzz --version >/dev/null || {
  echo "fuzz: no cargo-fuzz: cargo install cargo-fuzz --locked" >&2
  exit 1
}
# No sanitizer by default: hardly any of the code is unsafe, and without one a target runs several
# times as often. Coverage, assertions and overflow checks are what finds things here.
fuzz=(cargo +nightly fuzz)
sanitizer=${SHOAL_FUZZ_SANITIZER:-none}
# A link of the whole workspace takes long, and gains nothing here.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
"${fuzz[@]}" build --features libfuzzer --sanitizer "$sanitizer" "${targets[@]:0:$((${#targets[@]} == 1))}"

failed=()
for name in "${targets[@]}"; do
  echo "== $name: $seconds s"
  # Found inputs go to the first folder, the corpus is only read.
  mkdir -p "fuzz/found/$name"
  limits=(-max_total_time="$seconds" -runs="${SHOAL_FUZZ_RUNS:--1}")
  limits+=(-timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=256)
  "${fuzz[@]}" run --features libfuzzer --sanitizer "$sanitizer" "$name" "fuzz/found/$name" "fuzz/corpus/$name" \
    -- "${limits[@]}" -print_final_stats=1 || failed+=("$name")
done
((${#failed[@]} == 0)) || { echo "fuzz: found something: ${failed[*]}" >&2; exit 1; }
