//! The claim of a volume that is open for writing: a thread renews it, and every write checks that
//! it still exists.
//!
//! The owner must never write after another process has taken the volume over. Each renewal reads
//! the block first and so detects the loss. A process that was stopped (by a signal, a debugger, a
//! hibernating machine, slow storage) may have lost its claim meanwhile. Therefore each write
//! checks the time of the last renewal: after [`LEASE`] intervals it renews the claim itself before
//! it writes. Data passed to the kernel earlier cannot be recalled.
//!
//! How long an owner may be stalled before another host takes its volume over is its *grace*
//! ([`super::ClaimOptions::grace`]): its claim says so, and a slow owner's says more
//! ([`PATIENCE`]).

use super::block::{ClaimFile, Page};
use super::clock::Clock;
use super::host::now;
use shoal_base::sync::idle::{Condvar, Mutex};
use shoal_base::{Error, Result};
use shoal_format::claim::{ClaimBlock, OwnerClaim, PATIENCE_MS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two renewals.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// Time between two renewals just after the open, when another process may have opened the volume
/// at the same time.
pub(crate) const INTERVAL_YOUNG: Duration = Duration::from_millis(40);
/// Time after the open for which a claim is young.
pub(crate) const YOUNG: Duration = Duration::from_millis(400);
/// Intervals after which a write renews the claim itself.
const LEASE: u32 = 3;
/// A claim is abandoned when it is not renewed for this multiple of the longest pause between
/// renewals.
const PATIENCE: u32 = 4;
/// Attempts to read a torn claim, which another process may be writing.
const TORN_MAX: u32 = 4;

type OnLoss = Box<dyn Fn(&str) + Send>;

/// A claim held by this process. Dropping it stops the renewals and clears the block.
pub(crate) struct Held {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    file: ClaimFile,
    name: String,
    clock: Clock,
    /// The shortest patience that the claim asks for.
    patience_min: u32,
    /// Time of the open, by [`Clock::uptime`].
    opened: Duration,
    state: Mutex<RenewalState>,
    wake: Condvar,
    /// Time of the last renewal, in nanoseconds of [`Clock::uptime`].
    renewed: AtomicU64,
    lost: OnceLock<Arc<str>>,
    on_loss: Mutex<Option<OnLoss>>,
}

struct RenewalState {
    claim: OwnerClaim,
    page: Box<Page>,
    stop: bool,
    /// The last renewal failed, and the failure has been logged.
    failing: bool,
    /// The longest recent pause between two renewals.
    pause_max: Duration,
    written: Duration,
}

impl Held {
    /// Holds and renews `claim`, which has been written to `file`. It never asks others for less
    /// patience than now.
    pub(crate) fn new(file: ClaimFile, claim: OwnerClaim, name: String, clock: Clock) -> Held {
        let (now, patience_min) = (clock.uptime(), claim.patience_ms);
        let state = RenewalState {
            claim,
            page: Page::zero(),
            stop: false,
            failing: false,
            pause_max: Duration::ZERO,
            written: now,
        };
        let shared = Arc::new(Shared {
            file,
            name,
            clock: clock.clone(),
            patience_min,
            opened: now,
            state: Mutex::new(state),
            wake: Condvar::new(),
            renewed: AtomicU64::new(now.as_nanos() as u64),
            lost: OnceLock::new(),
            on_loss: Mutex::default(),
        });
        let of_thread = shared.clone();
        let thread = clock.spawn(move || of_thread.run());
        if let Err(error) = &thread {
            // Then writes renew it.
            tracing::warn!(%error, "no thread to renew the claim of the volume");
        }
        Held { shared, thread: thread.ok() }
    }

    /// Fails if another process has taken the volume over. Must be called before each write.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// The owner of the claim as last written, for messages.
    pub(crate) fn text(&self) -> String {
        self.shared.state.lock().claim.owner_text()
    }

    /// Stops the thread, as a signal would.
    #[cfg(test)]
    pub(crate) fn stop_thread(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            self.shared.clock.join(thread);
        }
    }

    /// Closes the descriptors in a child of `fork`. The claim is the parent's.
    pub(crate) fn release(&self) {
        self.shared.file.release();
    }

    /// Drops this in a child of `fork`: the thread is the parent's, and so is the claim.
    pub(crate) fn abandon(self) {
        self.release();
        std::mem::forget(self);
    }

    /// Sets the function that is called with the reason when the claim is lost; called at once if
    /// it already is.
    pub(crate) fn on_loss(&self, on_loss: OnLoss) {
        let mut place = self.shared.on_loss.lock();
        if let Some(why) = self.shared.lost.get() {
            on_loss(why);
        }
        *place = Some(on_loss);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take()
            // The thread itself may drop the last reference to the volume, through `on_loss`.
            && thread.thread().id() != std::thread::current().id()
        {
            self.shared.clock.join(thread);
        }
        self.shared.clear();
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            if !state.stop {
                state = self.clock.wait(&self.wake, &self.state, state, self.interval());
            }
            if state.stop || self.lost.get().is_some() {
                return;
            }
            let lost = self.renew(&mut state);
            drop(state);
            if lost {
                self.tell();
            }
        }
    }

    fn interval(&self) -> Duration {
        if self.clock.uptime() < self.opened + YOUNG { INTERVAL_YOUNG } else { INTERVAL }
    }

    fn check(&self) -> Result<()> {
        let now = self.clock.uptime().as_nanos() as u64;
        let since = now.saturating_sub(self.renewed.load(Ordering::Acquire));
        if Duration::from_nanos(since) > self.interval() * LEASE {
            let mut state = self.state.lock();
            // Another writer or the thread may have renewed it while this one waited.
            let renewed = self.renewed.load(Ordering::Acquire);
            if renewed <= now && self.lost.get().is_none() && self.renew(&mut state) {
                drop(state);
                self.tell();
            }
        }
        match self.lost.get() {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Reads the claim and renews it. Returns whether it has been lost.
    ///
    /// A block that cannot be read or written does not count as a loss: it must not stop the use of
    /// a volume whose other blocks are readable. The failure is logged once, and the renewal is
    /// tried again.
    fn renew(&self, state: &mut RenewalState) -> bool {
        match self.read(state) {
            Ok(Some(why)) => {
                let _ = self.lost.set(why.into());
                return true;
            }
            Ok(None) => self.write(state),
            // Not written blindly: by now it may belong to another process.
            Err(error) => self.failed(state, "read", error),
        }
        self.renewed.store(self.clock.uptime().as_nanos() as u64, Ordering::Release);
        false
    }

    fn write(&self, state: &mut RenewalState) {
        let pause = self.clock.uptime().saturating_sub(state.written);
        state.pause_max = pause.max(state.pause_max * 7 / 8);
        let patience = (state.pause_max * PATIENCE).as_millis();
        let patience = u32::try_from(patience).unwrap_or(u32::MAX);
        state.claim.patience_ms = patience.clamp(self.patience_min, *PATIENCE_MS.end());
        state.claim.beat += 1;
        state.claim.renewed = now();
        state.page.0.copy_from_slice(&state.claim.encode());
        match self.file.write(&state.page) {
            Ok(()) => state.failing = false,
            Err(error) => self.failed(state, "write", error),
        }
        state.written = self.clock.uptime();
    }

    /// Reads the block. Returns the reason if the claim is lost. A block that stays torn is not
    /// another process's claim, and is overwritten.
    fn read(&self, state: &mut RenewalState) -> Result<Option<String>, rustix::io::Errno> {
        for _ in 0..TORN_MAX {
            self.file.read(&mut state.page)?;
            match OwnerClaim::decode(&state.page.0) {
                ClaimBlock::Claim(found) if found.is_same_owner(&state.claim) => return Ok(None),
                ClaimBlock::Claim(found) => {
                    let (name, other) = (&self.name, found.owner_text());
                    return Ok(Some(format!("{name} has been taken over by {other}")));
                }
                ClaimBlock::Absent => {
                    let name = &self.name;
                    return Ok(Some(format!(
                        "{name} has been used by another process, which removed the claim of this \
                         one"
                    )));
                }
                ClaimBlock::Unreadable("version") => {
                    let name = &self.name;
                    return Ok(Some(format!("{name} has been taken over by a newer Shoal")));
                }
                ClaimBlock::Unreadable(_) => self.clock.sleep(INTERVAL_YOUNG / 2),
            }
        }
        Ok(None)
    }

    #[cold]
    fn failed(&self, state: &mut RenewalState, operation: &str, error: rustix::io::Errno) {
        if !std::mem::replace(&mut state.failing, true) {
            let name = &self.name;
            tracing::warn!(volume = %name, operation, %error, "the volume's claim is not renewed");
        }
    }

    #[cold]
    fn tell(&self) {
        let Some(why) = self.lost.get() else { return };
        tracing::error!(volume = %self.name, reason = %why, "the volume is no longer written");
        if let Some(on_loss) = &*self.on_loss.lock() {
            on_loss(why);
        }
    }

    /// Clears the block if it still contains this claim.
    fn clear(&self) {
        let mut state = self.state.lock();
        if self.lost.get().is_some() || !matches!(self.read(&mut state), Ok(None)) {
            return;
        }
        // After a failure the claim stays, but its process has ended, or soon will have.
        let _ = self.file.write(&Page::zero());
    }
}
