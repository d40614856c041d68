//! A volume that is copied while it changes from copy to copy: see `runner/copies.rs`.
//! `SHOAL_COPIES_SEEDS=FROM-TO` runs other seeds.

use shoal_sim::runner::copies::{Copies, run_with_copies};

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("SHOAL_COPIES_SEEDS") else { return 1..=20 };
    let (from, to) = text.split_once('-').expect("SHOAL_COPIES_SEEDS is FROM-TO");
    from.parse().expect("a number")..=to.parse().expect("a number")
}

#[test]
fn a_destination_is_the_volume_of_one_copy_or_none_and_the_next_copy_completes_it() {
    let mut all = Copies::default();
    for seed in seeds() {
        all += run_with_copies(seed, 300).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    println!("{all:?}");
    let each = [all.whole, all.increments, all.continued, all.failed, all.volumes];
    assert!(each.iter().all(|count| *count > 0), "{all:?}");
    // Only the moment between the mark and the superblock, at the begin and at the end.
    assert!(all.forced * 3 < all.images, "{all:?}");
}
