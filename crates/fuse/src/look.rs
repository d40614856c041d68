//! When a thread that waits for requests looks for the next one, and when it sleeps.
//!
//! Being woken takes longer than most answers. So the thread that watches looks for a while before
//! it sleeps, as long as that pays: the rule by which the while becomes longer and shorter is that
//! of the kernel's halt polling for virtual machines (`halt_poll_ns` of KVM).
//!
//! | it was | then |
//! | --- | --- |
//! | woken soon after it fell asleep | it looks longer: first [`SHORTEST`], then twice as long, at most [`LONGEST`] |
//! | woken late | it does not look until requests come more often |
//! | in the way of others on its processor | nobody looks for a tenth of a second to ten: all threads sleep, and each may be woken |
//!
//! A program that computes on its processor interrupts it, which is how it notices.

use parking_lot::Mutex;
use shoal_session::watch::Watch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// First and longest time for which it looks.
const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_micros(100);
/// Interruption that is taken for a slice of another program, which computes.
const INTERRUPTED: Duration = Duration::from_micros(500);
/// Number of looks in a row, each for the longest time and in vain, with a request as soon as the
/// thread slept, after which nobody looks: whoever sent them may have waited for its processor.
const BLOCKED: u32 = 4;
/// First and longest time for which nobody looks. Noticing that a program computes costs it a slice
/// of the scheduler, 4 ms: a hundredth of the longest rest.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_millis(400);
/// Requests found by looking after which the next rest is as short as the first.
const UNDISTURBED: u64 = 20_000;

/// The next step of a thread that has found no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Look again.
    Look,
    /// Sleep until there is one.
    Sleep,
    /// It is in the way of others.
    Rest,
}

/// A wait that has ended with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waited {
    /// Time for which it has looked.
    pub looked: Duration,
    /// It has slept then.
    pub slept: bool,
    /// Whoever sent the request may have waited for the processor of the thread.
    pub is_in_the_way: bool,
}

/// The threads of a mount that look, if they may, and what came of it.
#[derive(Debug)]
pub struct Looking {
    /// Which of them does.
    pub(crate) watch: Watch,
    on: AtomicBool,
    /// They may, on this machine.
    may: bool,
    rest: Mutex<Rest>,
    looked_ns: AtomicU64,
    found: AtomicU64,
}

/// The last rest.
#[derive(Debug)]
struct Rest {
    until: Instant,
    length: Duration,
    /// Requests that had been found by looking at its end.
    found: u64,
}

impl Looking {
    /// `may`: threads may look, if there is a processor for that.
    pub(crate) fn new(may: bool) -> Looking {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let may = may && processors > 1;
        let rest = Rest { until: Instant::now(), length: Duration::ZERO, found: 0 };
        let (looked_ns, found) = <_>::default();
        let watch = Watch::default();
        watch.let_park(may);
        Looking { watch, on: AtomicBool::new(may), may, rest: Mutex::new(rest), looked_ns, found }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(SeqCst)
    }

    /// Nobody looks for a while: twice as long as the last time, unless that was long ago.
    pub(crate) fn rest(&self, now: Instant) {
        let mut rest = self.rest.lock();
        if !self.is_on() {
            return;
        }
        rest.length = match self.found.load(Relaxed) - rest.found >= UNDISTURBED {
            true => REST,
            false => (rest.length * 2).clamp(REST, REST_MAX),
        };
        rest.until = now + rest.length;
        self.on.store(false, SeqCst);
        self.watch.let_park(false);
    }

    /// Returns whether the calling thread is to look again, after a rest.
    pub(crate) fn begins_again(&self) -> bool {
        if !self.may {
            return false;
        }
        let (now, mut rest) = (Instant::now(), self.rest.lock());
        let begins = now >= rest.until && !self.on.swap(true, SeqCst);
        if begins {
            rest.found = self.found.load(Relaxed);
            self.watch.let_park(true);
        }
        begins
    }

    /// Counts a wait.
    #[inline]
    pub(crate) fn count(&self, waited: &Waited) {
        let ns = waited.looked.as_nanos().try_into().unwrap_or(u64::MAX);
        self.looked_ns.fetch_add(ns, Relaxed);
        self.found.fetch_add((!waited.slept).into(), Relaxed);
    }

    /// Returns the time for which threads have looked, and the requests that they have found so.
    pub(crate) fn counts(&self) -> (Duration, u64) {
        (Duration::from_nanos(self.looked_ns.load(Relaxed)), self.found.load(Relaxed))
    }
}

/// The looking of one thread.
#[derive(Debug, Default)]
pub(crate) struct Look {
    window: Duration,
    /// Begin of the present wait, and of its sleep.
    since: Option<Instant>,
    slept: Option<Instant>,
    /// Last look.
    last: Option<Instant>,
    preempted: u64,
    blocked: u32,
}

impl Look {
    /// Returns what comes after a look in vain.
    #[inline]
    pub(crate) fn step(&mut self, now: Instant, preempted: impl Fn() -> u64) -> Step {
        let Some(since) = self.since else {
            (self.since, self.last) = (Some(now), Some(now));
            if !self.pays() {
                return Step::Sleep;
            }
            self.preempted = preempted();
            return Step::Look;
        };
        let last = self.last.replace(now).unwrap_or(now);
        if self.slept.is_none() && now - last >= INTERRUPTED {
            // The host may have done that, too.
            if self.preempted != preempted() {
                return Step::Rest;
            }
        }
        if self.slept.is_some() || now - since >= self.window { Step::Sleep } else { Step::Look }
    }

    /// Records that it falls asleep.
    #[inline]
    pub(crate) fn sleeps(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.slept.get_or_insert(now);
    }

    /// Returns whether a look is worth its while: otherwise the thread sleeps at once.
    #[inline]
    pub(crate) fn pays(&self) -> bool {
        !self.window.is_zero()
    }

    /// Another thread looks.
    pub(crate) fn pause(&mut self) {
        self.since = None;
        self.slept = None;
    }

    /// Records that a request was found. `None`: at once.
    #[inline]
    pub(crate) fn found(&mut self) -> Option<Waited> {
        self.since.map(|since| self.found_at(since, Instant::now()))
    }

    fn found_at(&mut self, since: Instant, now: Instant) -> Waited {
        self.since = None;
        let Some(asleep) = self.slept.take() else {
            self.blocked = 0;
            return Waited { looked: now - since, slept: false, is_in_the_way: false };
        };
        let woken_soon = now - asleep < LONGEST;
        let is_blocked = woken_soon && self.window >= LONGEST;
        self.blocked = if is_blocked { self.blocked + 1 } else { 0 };
        let is_in_the_way = self.blocked >= BLOCKED;
        if is_in_the_way {
            self.blocked = 0;
        }
        self.window = match woken_soon {
            true => (self.window * 2).clamp(SHORTEST, LONGEST),
            false => Duration::ZERO,
        };
        Waited { looked: asleep - since, slept: true, is_in_the_way }
    }

    /// `looks`: it begins by looking.
    pub(crate) fn new(looks: bool) -> Look {
        let window = if looks { SHORTEST } else { Duration::ZERO };
        Look { window, ..Look::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread whose requests come after so many microseconds each, and are looked for every
    /// microsecond. Returns how many found it asleep, of the last hundred.
    fn asleep(gap_us: u64, sleep_us: u64) -> (u32, u32) {
        let (mut look, mut now) = (Look { window: SHORTEST, ..Look::default() }, Instant::now());
        let (mut asleep, mut rests) = (0, 0);
        for n in 0..200 {
            let comes = now + Duration::from_micros(gap_us);
            let mut sleeps = false;
            while now < comes {
                match look.step(now, || 0) {
                    Step::Look => now += Duration::from_micros(1),
                    Step::Sleep => {
                        look.sleeps(now);
                        sleeps = true;
                        now = comes.max(now + Duration::from_micros(sleep_us));
                    }
                    Step::Rest => panic!("nobody has interrupted it"),
                }
            }
            let waited = look.since.map(|since| look.found_at(since, now));
            rests += u32::from(waited.is_some_and(|waited| waited.is_in_the_way));
            asleep += u32::from(sleeps && n >= 100);
        }
        (asleep, rests)
    }

    #[test]
    fn it_looks_for_requests_that_come_soon_and_sleeps_for_others() {
        for gap in [2, 5, 20, 50, 90] {
            assert_eq!(asleep(gap, 0), (0, 0), "{gap}");
        }
        for gap in [300, 1000, 50_000] {
            assert_eq!(asleep(gap, 0), (100, 0), "{gap}");
        }
    }

    #[test]
    fn requests_that_come_only_when_it_sleeps_end_the_looking() {
        let mut look = Look { window: LONGEST, ..Look::default() };
        let mut now = Instant::now();
        for n in 1..=BLOCKED {
            assert_eq!(look.step(now, || 0), Step::Look);
            now += LONGEST;
            assert_eq!(look.step(now, || 0), Step::Sleep);
            look.sleeps(now);
            now += Duration::from_micros(5);
            let waited = look.found_at(look.since.unwrap(), now);
            assert_eq!(waited.is_in_the_way, n == BLOCKED, "{n}");
        }
    }

    #[test]
    fn a_program_that_computes_ends_the_looking_and_a_host_does_not() {
        let mut look = Look { window: LONGEST, ..Look::default() };
        let now = Instant::now();
        // That was while it answered.
        assert_eq!(look.step(now, || 1), Step::Look);
        let late = now + INTERRUPTED;
        assert_eq!(look.step(late, || 1), Step::Sleep, "the host");
        look.found_at(now, late);
        assert_eq!(look.step(late, || 1), Step::Look);
        assert_eq!(look.step(late + INTERRUPTED, || 2), Step::Rest);
    }
}
