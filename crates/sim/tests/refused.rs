//! Allocations refused in the middle of calls. In a binary of its own: the reserve of memory is the
//! process's, and so a refusal may fail a call of another test.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::runner::run_short_of_memory;

#[test]
fn a_call_without_memory_has_changed_nothing() {
    let (first, mut unserved) = (from_environment("SHOAL_SIM_FIRST", 0), 0);
    for seed in first..first + from_environment("SHOAL_SIM_SEEDS", 24) {
        unserved += within(300, &format!("seed {seed}"), move || {
            let run = run_short_of_memory(seed, 400);
            run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")).unserved
        });
    }
    println!("{unserved} calls without memory");
    assert!(unserved > 0);
}
