//! A namespace of thousands of subvolumes on many machines, each subvolume a volume in a bucket
//! with one owner: who should own which, and what is unavailable when machines die? A model in
//! steps of a minute, with measured times of this repository as its inputs; `docs/scale.md` has the
//! design and the results.
//!
//! *Load*: the subvolumes' popularity follows Zipf's law, and each one's load wanders by a factor
//! of two to four within hours, independently. *Machines* die and come back. *Places* are chosen by
//! rendezvous hashing (Thaler and Ravishankar, 1998): each machine computes the same answer from
//! the list of machines, without a directory. A subvolume that is moved for its load has a place of
//! its own, which the owner's claim in the bucket tells.

mod report;
mod world;

use clap::Args;
pub use report::Report;
pub use world::{Times, World};

/// Arguments of a run.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Subvolumes
    #[arg(long, default_value_t = 10_000)]
    pub subvolumes: u32,
    /// Machines
    #[arg(long, default_value_t = 100)]
    pub machines: u32,
    /// Days that are simulated
    #[arg(long, default_value_t = 30)]
    pub days: u32,
    /// Files of all subvolumes together
    #[arg(long, default_value_t = 1_000_000_000_000)]
    pub files: u64,
    /// Mean load, as a share of what all machines can do, in percent
    #[arg(long, default_value_t = 50)]
    pub load: u32,
    /// Days after which a machine dies, in the mean
    #[arg(long, default_value_t = 90)]
    pub life: u32,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Way in which subvolumes are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// By hashing alone.
    Hashed,
    /// A machine with too much to do gives its busiest subvolumes that fit to the less busy one of
    /// two others, chosen at random (Mitzenmacher, 1996).
    Moved,
}

/// Runs both policies, and prints a table.
pub fn cli(arguments: &Arguments) -> bool {
    let mut fine = true;
    for policy in [Policy::Hashed, Policy::Moved] {
        let report = run(arguments, policy);
        print!("{}", report.text(arguments, policy));
        fine &= report.is_consistent();
    }
    fine
}

/// Simulates one policy.
pub fn run(arguments: &Arguments, policy: Policy) -> Report {
    let mut world = World::new(arguments, policy, Times::MEASURED);
    for _ in 0..u64::from(arguments.days) * 24 * 60 {
        world.minute();
    }
    world.report()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(load: u32, life: u32) -> Arguments {
        let (subvolumes, machines, days, seed) = (400, 20, 2, 7);
        Arguments { subvolumes, machines, days, files: 1 << 32, load, life, seed }
    }

    #[test]
    fn moving_subvolumes_relieves_machines_that_have_too_much_to_do() {
        let arguments = arguments(60, 10_000);
        let (hashed, moved) = (run(&arguments, Policy::Hashed), run(&arguments, Policy::Moved));
        assert!(hashed.is_consistent() && moved.is_consistent());
        assert!(moved.overload_percent() < hashed.overload_percent() / 2.0, "{moved:?} {hashed:?}");
        assert!(moved.moves > 0 && hashed.moves == 0);
        assert_eq!(moved.deaths, 0, "with lives of 27 years");
    }

    #[test]
    fn subvolumes_of_a_dead_machine_are_served_again_by_the_others() {
        let report = run(&arguments(30, 1), Policy::Moved);
        assert!(report.is_consistent());
        assert!(report.deaths > 10 && report.takeovers > u64::from(report.deaths), "{report:?}");
        let least = Times::MEASURED.silence;
        assert!(report.outages.iter().all(|seconds| *seconds >= least));
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let arguments = arguments(50, 5);
        let (one, two) = (run(&arguments, Policy::Moved), run(&arguments, Policy::Moved));
        assert_eq!(one, two);
    }
}
