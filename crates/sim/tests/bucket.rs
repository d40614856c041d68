//! The engine on a bucket whose store misbehaves, and one owner after the other: see
//! `runner/bucket.rs`. `SHOAL_BUCKET_SEEDS=FROM-TO` runs other seeds.

use shoal_sim::runner::bucket::run_in_bucket;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("SHOAL_BUCKET_SEEDS") else { return 1..=30 };
    let (from, to) = text.split_once('-').expect("SHOAL_BUCKET_SEEDS is FROM-TO");
    from.parse().expect("a number")..=to.parse().expect("a number")
}

#[test]
fn each_owner_finds_a_state_that_there_was_and_everything_acknowledged() {
    let (mut steps, mut crashes) = (0, 0);
    for seed in seeds() {
        let report = run_in_bucket(seed, 250).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        steps += report.steps;
        crashes += report.crashes;
    }
    println!("{steps} operations, {crashes} take-overs");
    assert!(steps > 0 && crashes > 0);
}
