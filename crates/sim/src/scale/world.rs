//! The machines, the subvolumes and their loads.

use super::report::Report;
use super::{Arguments, Policy};
use crate::rng::Rng;

/// Times in seconds, near those measured with small volumes (`docs/performance.md`, *Standbys and
/// replicas*).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// From the death of an owner to the moment at which a standby knows it.
    pub silence: f64,
    /// Taking a subvolume over and recovering it, on one processor.
    pub takeover: f64,
    /// Pause of a subvolume that is given to another machine.
    pub handover: f64,
    /// Take-overs that a machine does at once: one for each processor.
    pub at_once: u32,
}

impl Times {
    /// Those of this repository.
    pub const MEASURED: Times = Times { silence: 2.3, takeover: 0.3, handover: 0.5, at_once: 16 };
}

/// A machine gives subvolumes away above this load, until it is below the second one.
const TOO_MUCH: f64 = 0.85;
const ENOUGH: f64 = 0.75;
/// Subvolumes that a machine gives away in a minute, at most.
const MOVES_MAX: u32 = 8;
/// Minutes until a dead machine is replaced.
const REPLACED: u32 = 30;
/// A subvolume's load changes by a factor of up to this in each step of an hour.
const WANDER: f64 = 1.5;

struct Subvolume {
    /// Its share of the load, in the mean.
    popularity: f64,
    /// The factor by which it differs now.
    factor: f64,
    owner: usize,
}

struct Machine {
    /// Minutes until it is back; 0: it is there.
    away: u32,
    load: f64,
}

/// See the head of the module.
pub struct World {
    rng: Rng,
    policy: Policy,
    times: Times,
    minute: u64,
    machines: Vec<Machine>,
    subvolumes: Vec<Subvolume>,
    /// Mean load of a machine, where 1 is all that it can do.
    level: f64,
    /// Chance of a machine to die within a minute.
    death: f64,
    report: Report,
}

/// The place of a subvolume: of the machines that are there, the one with the highest hash.
fn home(subvolume: usize, machines: &[Machine]) -> Option<usize> {
    let there = (0..machines.len()).filter(|at| machines[*at].away == 0);
    there.max_by_key(|at| Rng::new(subvolume as u64).fork(*at as u64 + 1).next())
}

impl World {
    /// Makes a world in which every subvolume has an owner.
    pub fn new(arguments: &Arguments, policy: Policy, times: Times) -> World {
        let mut rng = Rng::new(arguments.seed);
        let mut ranks: Vec<u32> = (1..=arguments.subvolumes).collect();
        // Which subvolumes are popular has nothing to do with their numbers.
        for at in (1..ranks.len()).rev() {
            ranks.swap(at, rng.below(at as u64 + 1) as usize);
        }
        // Zipf's law, less steep at the top: nobody puts a tenth of everything in one subvolume.
        let weight = |rank: u32| 1.0 / (f64::from(rank) + f64::from(arguments.machines) / 2.0);
        let all: f64 = ranks.iter().map(|rank| weight(*rank)).sum();
        let machines: Vec<Machine> =
            (0..arguments.machines).map(|_| Machine { away: 0, load: 0.0 }).collect();
        let subvolume = |(at, rank): (usize, &u32)| Subvolume {
            popularity: weight(*rank) / all,
            factor: 1.0,
            owner: home(at, &machines).unwrap_or(0),
        };
        let subvolumes = ranks.iter().enumerate().map(subvolume).collect();
        World {
            rng,
            policy,
            times,
            minute: 0,
            subvolumes,
            machines,
            level: f64::from(arguments.load) / 100.0,
            death: 1.0 / (f64::from(arguments.life) * 24.0 * 60.0),
            report: Report::default(),
        }
    }

    fn random(&mut self) -> f64 {
        self.rng.below(1 << 32) as f64 / (1u64 << 32) as f64
    }

    /// Load of a subvolume, where 1 is all that a machine can do.
    fn load(&self, subvolume: &Subvolume) -> f64 {
        subvolume.popularity * subvolume.factor * self.level * self.machines.len() as f64
    }

    /// Lets a minute pass.
    pub fn minute(&mut self) {
        if self.minute.is_multiple_of(60) {
            self.wander();
        }
        self.minute += 1;
        self.come_back();
        for at in 0..self.machines.len() {
            if self.machines[at].away == 0 && self.random() < self.death {
                self.die(at);
            }
        }
        self.add_up();
        if self.policy == Policy::Moved {
            for at in 0..self.machines.len() {
                self.relieve(at);
            }
        }
        for machine in self.machines.iter().filter(|machine| machine.away == 0) {
            self.report.machine_minutes += 1;
            self.report.loads.push(machine.load as f32);
            self.report.overloaded += u64::from(machine.load > 1.0);
        }
    }

    /// Returns what has happened.
    pub fn report(mut self) -> Report {
        let there = |at: usize| self.machines[at].away == 0;
        self.report.unowned =
            self.subvolumes.iter().filter(|subvolume| !there(subvolume.owner)).count();
        self.report.subvolume_seconds = self.subvolumes.len() as f64 * self.minute as f64 * 60.0;
        self.report.finish()
    }

    /// Each subvolume's load changes by itself, and tends back to its mean.
    fn wander(&mut self) {
        for at in 0..self.subvolumes.len() {
            let step = (self.random() * 2.0 - 1.0) * WANDER.ln();
            let subvolume = &mut self.subvolumes[at];
            subvolume.factor = (subvolume.factor.ln() * 0.9 + step).exp();
        }
    }

    fn come_back(&mut self) {
        for machine in &mut self.machines {
            machine.away = machine.away.saturating_sub(1);
        }
    }

    /// A machine dies: each of its subvolumes goes to its next place.
    fn die(&mut self, dead: usize) {
        self.machines[dead].away = REPLACED;
        self.report.deaths += 1;
        let mut queued = vec![0u32; self.machines.len()];
        for at in 0..self.subvolumes.len() {
            if self.subvolumes[at].owner != dead {
                continue;
            }
            // If none is there, nothing is served until the first one is back.
            let Some(next) = home(at, &self.machines) else { continue };
            self.subvolumes[at].owner = next;
            let before = queued[next] / self.times.at_once;
            queued[next] += 1;
            let seconds = self.times.silence + f64::from(before + 1) * self.times.takeover;
            self.report.takeovers += 1;
            self.report.outages.push(seconds);
        }
    }

    fn add_up(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.load = 0.0);
        for at in 0..self.subvolumes.len() {
            let load = self.load(&self.subvolumes[at]);
            let owner = self.subvolumes[at].owner;
            self.machines[owner].load += load;
        }
    }

    /// Gives subvolumes of a machine that has too much to do to others.
    fn relieve(&mut self, from: usize) {
        if self.machines[from].away > 0 || self.machines[from].load <= TOO_MUCH {
            return;
        }
        let mut own: Vec<(f64, usize)> = (0..self.subvolumes.len())
            .filter(|at| self.subvolumes[*at].owner == from)
            .map(|at| (self.load(&self.subvolumes[at]), at))
            .collect();
        own.sort_by(|one, two| two.0.total_cmp(&one.0));
        let mut moves = 0;
        for (load, at) in own {
            if moves == MOVES_MAX || self.machines[from].load <= ENOUGH {
                return;
            }
            let Some(to) = self.less_busy(from) else { return };
            if self.machines[to].load + load > ENOUGH {
                continue;
            }
            self.machines[from].load -= load;
            self.machines[to].load += load;
            self.subvolumes[at].owner = to;
            self.report.moves += 1;
            self.report.pauses += self.times.handover;
            moves += 1;
        }
    }

    /// The less busy one of two others.
    fn less_busy(&mut self, than: usize) -> Option<usize> {
        let count = self.machines.len() as u64;
        let two = [self.rng.below(count) as usize, self.rng.below(count) as usize];
        let there = two.into_iter().filter(|at| *at != than && self.machines[*at].away == 0);
        there.min_by(|one, two| self.machines[*one].load.total_cmp(&self.machines[*two].load))
    }
}
