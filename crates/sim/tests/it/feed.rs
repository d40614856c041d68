//! The change feed over random runs: see `shoal_sim::feed`.

use shoal_sim::feed::{FeedReport, run};

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// `SHOAL_FEED_SEEDS` seeds from `SHOAL_FEED_SEED` on, of `SHOAL_FEED_OPS` operations each.
#[test]
fn copies_kept_by_the_feed_are_the_tree() {
    let (first, count) = (from_env("SHOAL_FEED_SEED", 0), from_env("SHOAL_FEED_SEEDS", 60));
    let ops = from_env("SHOAL_FEED_OPS", 300) as usize;
    let mut sum = FeedReport::default();
    for seed in first..first + count {
        sum += run(seed, ops).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    println!("{sum:?}");
    let seen = [sum.crashes, sum.reopened, sum.compared, sum.removed, sum.renamed, sum.complete];
    assert!(count < 50 || seen.iter().all(|n| *n > 0), "not everything happened: {sum:?}");
}
