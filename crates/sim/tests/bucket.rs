//! The engine on a bucket whose store misbehaves, and one owner after the other: see
//! `runner/bucket.rs`. `SHOAL_BUCKET_SEEDS=FROM-TO` runs other seeds.

use shoal_sim::runner::bucket::run_in_bucket;
use shoal_sim::seeds::of_test;

#[test]
fn each_owner_finds_a_state_that_there_was_and_everything_acknowledged() {
    let (mut steps, mut crashes) = (0, 0);
    for seed in of_test("SHOAL_BUCKET_SEEDS", 1..=30) {
        let report = run_in_bucket(seed, 250).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        steps += report.steps;
        crashes += report.crashes;
    }
    println!("{steps} operations, {crashes} take-overs");
    assert!(steps > 0 && crashes > 0);
}
