//! The command `cargo xtask sim bucket`.

use super::run_in_bucket;
use crate::runner::Report;
use crate::seeds::Seeds;
use std::time::Instant;

/// Options of runs in a bucket.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Seeds, one by default
    #[command(flatten)]
    seeds: Seeds,
    /// Operations of each run
    #[arg(long, value_name = "M", default_value_t = 250)]
    ops: usize,
}

/// Runs seeds until one fails. Returns whether none did.
pub fn cli(arguments: &Arguments) -> bool {
    let Arguments { seeds, ops } = arguments;
    let began = Instant::now();
    let (mut total, mut runs) = (Report::default(), 0);
    for seed in (0..seeds.count(1)).map(|i| seeds.seed.wrapping_add(i)) {
        if seeds.is_over(began) {
            break;
        }
        match run_in_bucket(seed, *ops) {
            Ok(report) => total += report,
            Err(failure) => {
                println!("seed {seed} fails at operation {}:\n{failure}", failure.ops.len());
                println!("replay: cargo xtask sim bucket --seed {seed} --ops {ops}");
                return false;
            }
        }
        runs += 1;
    }
    println!("{runs} seeds in {:.1} s: {}", began.elapsed().as_secs_f64(), described(&total));
    true
}

/// The counts of runs in a bucket.
pub fn described(total: &Report) -> String {
    let Report { steps, refused, crashes, closed, weathers, .. } = total;
    let Report { kept_out, at_once, left, damaged, reported, device_ops, .. } = total;
    format!(
        "{steps} operations ({refused} without space), {device_ops} requests, {crashes} take-overs \
         ({closed} of a closed volume), {weathers} spells of weather ({kept_out} openings failed \
         for it), {at_once} calls at once while the store hung ({left} had to wait), {damaged} \
         damaged objects ({reported} calls told so), 0 violations"
    )
}
