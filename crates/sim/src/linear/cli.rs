//! The command `cargo xtask linear`.

use super::crew::{self, Crew};
use super::library::{Tally, run};
use crate::seeds::Seeds;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Seeds between two looks at the time.
const STRIDE: u64 = 4096;

/// Options of runs of histories.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Seeds, 10000 by default
    #[command(flatten)]
    seeds: Seeds,
    /// By system calls of several processes in this directory, not on the library
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The directory is the top of a mount of Shoal: half of the processes have sessions of it
    #[arg(long, requires = "directory")]
    doors: bool,
}

/// Does it. Returns whether all was well.
pub fn cli(arguments: &Arguments) -> bool {
    if crew::asked() {
        return crew::act().inspect_err(|message| eprintln!("{message}")).is_ok();
    }
    match &arguments.directory {
        None => strides(arguments, &mut run),
        Some(directory) => match start(directory, arguments.doors) {
            Ok(mut crew) => strides(arguments, &mut |seeds| crew.run(seeds)),
            Err(message) => {
                println!("{message}");
                false
            }
        },
    }
}

/// A crew of this same program.
fn start(directory: &Path, doors: bool) -> Result<Crew, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    Crew::start(directory, doors, &|| {
        let mut command = Command::new(&own);
        command.arg("linear");
        command
    })
}

fn strides(
    arguments: &Arguments,
    run: &mut dyn FnMut(Range<u64>) -> Result<Tally, String>,
) -> bool {
    let (began, seed) = (Instant::now(), arguments.seeds.seed);
    let end = seed.saturating_add(arguments.seeds.count(10_000));
    // A mounted directory is slower.
    let stride = if arguments.directory.is_some() { STRIDE / 16 } else { STRIDE };
    let (mut next, mut total) = (seed, Tally::default());
    while next < end && !arguments.seeds.is_over(began) {
        let seeds = next..end.min(next + stride);
        next = seeds.end;
        match run(seeds) {
            Ok(tally) => total += tally,
            Err(message) => {
                println!("{message}");
                return false;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let Tally { histories, calls, overlapping, states, early } = total;
    println!(
        "{histories} histories in {seconds:.1} s ({:.0}/s): {calls} calls, {:.0} % of them \
         overlapping with another's; {states} states kept in searches; {early} where attributes \
         showed a change before names did; 0 violations",
        histories as f64 / seconds,
        100.0 * overlapping as f64 / calls.max(1) as f64,
    );
    true
}
