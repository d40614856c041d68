#!/usr/bin/env bash
# The nightly checks: what the gating ones (.ci/run) have no time for. They search with seeds that
# nobody has run, so they may find something old in code that has not changed. Needs a machine of its
# own for the time, root and /dev/fuse for the parts that mount; a part that cannot run says so.
#
#   scripts/nightly.sh [MINUTES | Nh] [PART]...    default: 60 minutes, all parts
#   scripts/nightly.sh --list                      parts, and their shares of the time
#
#   SHOAL_NIGHTLY_SEED=N   first seed of each search (default: seconds of the clock)
#
# Writes date, commit, seeds and counts of each part into docs/testing.md, between the marks of the
# last nightly run, whether something was found or not; rows of parts that were not run stay. What
# each part said is in target/nightly. Exits with 1 if a part failed. A failure says how to repeat it;
# its seed becomes a regression test.
set -euo pipefail
cd "$(dirname "$0")/.."

# Part, its share of the time (of 100), its subject.
parts=(
  'simulator 12 seeded runs with crashes, full volumes, refused memory'
  'batches 4 the same of the profile batches'
  'sessions 4 the same by sessions, all calls that they have'
  'adversary 4 the same of the profile adversary'
  'scheduled 10 whole volumes under a scheduler of threads'
  'planted 4 the defects that only threads reveal, searched for'
  'exhaustive 6 short sequences of operations, crashed after each device operation'
  'linear 4 histories of concurrent calls in the library'
  'doors 2 the same by system calls and sessions of one mount'
  'properties 6 property tests and models of single structures, new seeds'
  'fuzz 10 decoders, requests, damaged volumes'
  'posix 5 calls on a mount beside tmpfs, another share of all situations'
  'kills 6 servers of mounts killed while programs work'
  'soak 5 a busy mount killed again and again'
  'buckets 5 owners in turn, killed at any request, in an object store'
  'mutants 3 changes of the declared format'
  'laboratory 2 every experiment, tiny'
  'loaded 8 the gating tests beside stress-ng, once at least'
)
minutes=60
case ${1:-} in
  --list) printf '%s\n' "${parts[@]}"; exit ;;
  -*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  [0-9]*h) minutes=$((${1%h} * 60)) && shift ;;
  [0-9]*) minutes=$1 && shift ;;
esac
chosen=("$@")
for name in "${chosen[@]}"; do
  printf '%s\n' "${parts[@]}" | grep -q "^$name " || { echo "nightly: no part '$name'" >&2; exit 2; }
done
first=${SHOAL_NIGHTLY_SEED:-$(date +%s)}
said=target/nightly
rm -rf "$said"
mkdir -p "$said"

# Runs a command with the seed in $seed, the next one each time, until the time is over.
rounds() {  # COMMAND
  local begun=$SECONDS count=0
  while ((SECONDS - begun < seconds)); do
    seed=$((first + count)) "$@" >"$said/round" 2>&1 || {
      cat "$said/round"
      echo "seed $((first + count)) failed"
      return 1
    }
    count=$((count + 1))
  done
  echo "$count rounds"
}

# Each part has its seconds in $seconds, and ends with a line that counts.
simulator()  { sim --seed "$first" --seconds "$seconds" --threads "$(nproc)"; }
batches()    { sim --profile batches --seed "$first" --seconds "$seconds" --threads "$(nproc)"; }
sessions()   { sim --sessions --seed "$first" --seconds "$seconds" --threads "$(nproc)"; }
adversary()  { sim --profile adversary --ops 6000 --seed "$first" --seconds "$seconds"; }
linear()     { sim linear --seed "$first" --seconds "$seconds"; }
doors()      { rounds door_tests; }
door_tests() {
  SHOAL_LINEAR_SEED=$((seed * 10000)) SHOAL_LINEAR_SEEDS=10000 \
    cargo test --quiet -p shoal-sim --test it -- --exact linear_mount::processes_at_both_doors
}
exhaustive() {
  sim exhaustive --threads "$(nproc)" --length 0 --sample3 100000000 --seed "$first" \
    --seconds "$seconds"
}
sim()        { cargo run --quiet --release --package shoal-sim -- "$@"; }
scheduled()  { cargo xtask sim --scheduled --seed "$first" --seconds "$seconds"; }
planted()    { SHOAL_SCHEDULED_SEARCH=60000 cargo xtask sim --scheduled --test --nocapture; }
properties() { rounds property_tests; }
property_tests() {
  SHOAL_PROPTEST_SEED=$seed SHOAL_PROPTEST_CASES=20 SHOAL_MODEL_SEED=$seed SHOAL_MODEL_RUNS=2000 \
    cargo test --quiet --workspace --lib
}
fuzz()       { SHOAL_FUZZ_SEED=$first scripts/fuzz.sh replay $((seconds / 30 + 1)); }
posix()      { rounds posix_tests; }
posix_tests() {
  SHOAL_POSIX_SEED=$seed cargo test --quiet -p shoal-fuse --test it posix_differential::
}
kills()      { cargo xtask kills --rounds $((seconds / 2 + 1)); }
soak()       { cargo xtask soak --minutes $((seconds / 60 + 1)) --seed "$first"; }
buckets()    { rounds bucket_tests; }
bucket_tests() {
  SHOAL_BUCKET_SEEDS=$((seed * 60))-$((seed * 60 + 60)) \
    cargo test --quiet -p shoal-bucket --test it failover:: &&
    cargo xtask sim bucket --seed $((seed * 60)) --seeds 300
}
# All of them, once for each state of the sources: .ci/run tries a few, or none where all were.
mutants() {
  local record=crates/format/golden/mutants.txt hash
  hash=$(scripts/format-hash.sh)
  if grep -qsF "$hash" "$record"; then
    echo "tried before ($record)"
    return
  fi
  cargo xtask mutate-format
  echo "$hash $(date -I): all mutants noticed" >"$record"
}
laboratory() {
  cargo xtask lab run --smoke --run "$said/lab" --disk "$said" --report "$said/report"
}
# Runs without a failure add up over nights.
loaded() {
  command -v stress-ng >/dev/null || { echo 'stress-ng is not installed'; return 1; }
  local before
  before=$(grep -oP '^\| loaded: .* \K[0-9]+(?= in a row)' docs/testing.md || echo 0)
  rounds loaded_tests
  echo "$(tail -n 1 "$said/loaded"), $((before + $(tail -n 1 "$said/loaded" | cut -d' ' -f1))) in a row"
}
loaded_tests() {
  local status=0
  stress-ng --quiet --cpu 4 --io 2 &
  scripts/test.sh || status=$?
  kill "$!"
  wait
  return "$status"
}

# The lines of the table in docs/testing.md: part, seconds, last line, what came of it.
failed=()
run="$(date -I) | $(git rev-parse --short HEAD) | $first"
declare -A rows
while IFS= read -r row; do
  name=${row#| } && rows[${name%%:*}]=$row
done < <(sed -n '/^<!-- nightly -->/,/^<!-- end nightly -->/{/^| [a-z]*: /p}' docs/testing.md)
for row in "${parts[@]}"; do
  read -r name share subject <<<"$row"
  ((${#chosen[@]} == 0)) || [[ " ${chosen[*]} " == *" $name "* ]] || continue
  seconds=$((minutes * 60 * share / 100)) begun=$SECONDS result=passed
  echo "== $name: $subject, $seconds s"
  set +e; (set -e; "$name") >"$said/$name" 2>&1; status=$?; set -e
  if ((status)); then
    result=FAILED
    failed+=("$name")
    tail -n 30 "$said/$name"
  fi
  count=$(grep -v '^[[:space:]]*$' "$said/$name" | tail -n 1 | tr '|' '/' | cut -c1-160)
  echo "   $result after $((SECONDS - begun)) s: $count"
  rows[$name]="| $name: $subject | $run | $((SECONDS - begun)) | $count | $result |"
done

{
  echo "The last run of each part, on $(nproc) processors:"
  printf '\n| part | date | commit | first seed | seconds | last line | result |\n'
  printf '| --- | --- | --- | --- | ---: | --- | --- |\n'
  for row in "${parts[@]}"; do printf '%s\n' "${rows[${row%% *}]:-}"; done | sed '/^$/d'
} >"$said/table"
# Between the marks, which stay.
sed -i -e "/^<!-- nightly -->/r $said/table" \
  -e '/^<!-- nightly -->/,/^<!-- end nightly -->/{/^<!-- /!d}' docs/testing.md
((${#failed[@]} == 0)) || { echo "nightly: failed: ${failed[*]}" >&2; exit 1; }
echo "nightly: all passed in $SECONDS s"
