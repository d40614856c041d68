//! One writer, whatever the path: the claim in the volume itself.
//!
//! `lock.rs` refuses a second opener that the kernel can detect. It cannot detect two openers that
//! reach the same bytes as different files: another host on a network filesystem or a shared disk,
//! device mapper, a loop device in another mount namespace. Two writers destroy a volume. So a
//! writer writes a claim to the volume (`shoal_format::claim`) before anything else, renews it
//! ([`beat`]), and clears it at the end. Every opener looks for the claim of another process first.
//!
//! The steps of an open:
//!
//! | step | action | reason |
//! | --- | --- | --- |
//! | 1 | read the block; decide by the table in [`table`] | |
//! | 2 | if the decision is to watch, watch the block and decide again | only renewals prove that a remote owner is alive |
//! | 3 | write the own claim | |
//! | 4 | wait, if another opener may not have seen the lock of this one | both may have passed steps 1 and 2 |
//! | 5 | read the block again: it must still contain the own claim | the last writer wins, the other is refused |
//! | 6 | drop cached pages of the volume, then read it | they may be older than the other's last change |
//!
//! Two openers at once: of any two that the locks do not separate, at least one has opened a block
//! device or a file on a filesystem that is not local, and so waits ([`SETTLE`]) in step 4. An
//! opener whose claim is overwritten detects that in step 5 or, if it has not waited, by its first
//! renewals: a young claim is renewed, and checked before each write, at shorter intervals than the
//! other waits. The waiting opener has read nothing of the volume until then. So anything that the
//! loser wrote is, to the winner, like the work of a process that was killed.
//!
//! An opener that is delayed between steps 1 and 3 may overwrite the claim of a process that
//! already has the volume open. It waits longer in step 4, until the other has detected the loss;
//! so does an opener with `force` ([`settle`]). The owner that loses its claim by force may have
//! been about to renew it, and have written its own again: in step 5 the opener with `force` finds
//! that owner's claim, and goes back to step 3 ([`FORCED_MAX`]).
//!
//! A volume without a readable superblock gets no claim: its other contents are unknown.

mod beat;
mod block;
mod clock;
mod host;
mod table;

use crate::device::Device;
use beat::{Held, INTERVAL, INTERVAL_YOUNG, YOUNG};
use block::{ClaimFile, Page};
pub(crate) use clock::Clock;
use host::now;
pub(crate) use host::{Here, Process};
use rustix::io::Errno;
use shoal_base::{Code, Error, Result};
use shoal_format::claim::{ADDR, ClaimBlock, OwnerClaim, PATIENCE_MS, SIZE};
use shoal_format::superblock::{COPIES, Superblock};
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use table::{Decision, Reading, Seen, compare, decide};

pub(crate) use beat::Held as HeldClaim;

/// Wait of an opener whose locks may be invisible to another.
const SETTLE: Duration = Duration::from_millis(200);
/// Wait until a healthy owner has detected the loss of its claim.
const SETTLE_LONG: Duration = Duration::from_millis(1_500);
/// Longest time between reading and writing a claim in which another opener cannot have passed step
/// 5, because it began later and waits for [`SETTLE`].
const PROMPT: Duration = Duration::from_millis(150);
/// Longest time after which another opener may have passed step 5, but its claim is still young.
const DAWDLING: Duration = Duration::from_millis(400);
/// Times that an opener with `force` writes its claim.
const FORCED_MAX: u32 = 5;
/// Pause before it writes its claim again. [`SETTLE_LONG`] is a multiple of the owner's
/// [`INTERVAL`]: without the pause each write would meet the owner at the same moment of it.
const FORCED_PAUSE: Duration = Duration::from_millis(130);
/// A watch shorter than this is not reported: the claim was renewed, or its owner is dead.
const QUIET: Duration = Duration::from_millis(700);
/// Longest pause between two reads of a watched claim.
const LOOK_MAX: Duration = Duration::from_millis(50);

// The young owner of an overwritten claim detects that before the waiting opener reads the volume;
// any owner does before the end of the long wait.
const _: () = assert!(INTERVAL_YOUNG.as_millis() * 3 < SETTLE.as_millis());
const _: () = assert!(PROMPT.as_millis() < SETTLE.as_millis());
const _: () = assert!(DAWDLING.as_millis() <= YOUNG.as_millis());
const _: () = assert!(INTERVAL.as_millis() * 2 < SETTLE_LONG.as_millis());
const _: () = assert!(INTERVAL.as_millis() * 4 <= *PATIENCE_MS.start() as u128);

/// Handling of another opener's claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimOptions {
    /// Take the volume over, whoever holds a claim on it. If that process is alive, it loses all
    /// changes that it has not synced, and the volume may lose more: data passed to its kernel is
    /// written later.
    pub force: bool,
    /// Called with messages for the user while the open waits.
    pub notice: fn(&str),
    /// Time for which this process, once it owns the volume, may be stalled (stopped, without a
    /// processor, its storage away) before another host takes the volume over. From
    /// [`ClaimOptions::GRACE_MIN`] to [`ClaimOptions::GRACE_MAX`]; other values count as the
    /// nearest of these. A process on this machine takes nothing over while this one is there.
    pub grace: Duration,
    /// The locks come from the process before this one, which has kept every other opener out since
    /// it wrote the claim that is found: it is taken over at once.
    pub inherited: bool,
}

impl ClaimOptions {
    /// Shortest grace of an owner, and the default.
    pub const GRACE_MIN: Duration = Duration::from_millis(*PATIENCE_MS.start() as u64);
    /// Longest grace of an owner.
    pub const GRACE_MAX: Duration = Duration::from_millis(*PATIENCE_MS.end() as u64);

    fn patience_ms(&self) -> u32 {
        self.grace.clamp(ClaimOptions::GRACE_MIN, ClaimOptions::GRACE_MAX).as_millis() as u32
    }
}

impl Default for ClaimOptions {
    fn default() -> ClaimOptions {
        let grace = ClaimOptions::GRACE_MIN;
        ClaimOptions { force: false, notice: log, grace, inherited: false }
    }
}

fn log(notice: &str) {
    tracing::warn!("{notice}");
}

/// An open device with a volume.
pub(crate) struct ClaimPlace<'a> {
    pub file: &'a File,
    pub path: &'a Path,
    pub device: &'a dyn Device,
    /// `true` if every other opener that reaches the bytes as a file sees the locks of this one.
    pub is_local_file: bool,
    pub clock: Clock,
}

/// Checks the claim for a reader or `mkfs`. Returns the owner of a claim whose process has ended.
pub(crate) fn look(place: &ClaimPlace<'_>, options: &ClaimOptions) -> Result<Option<String>> {
    let Some(volume) = superblock(place.device).map(|sb| sb.id) else { return Ok(None) };
    let file = place.open(true)?;
    let opening = Opening { place, options, volume, here: Here::look() };
    opening.wait_until_free(&file)?;
    if !place.is_local_file {
        file.forget_cache();
    }
    Ok(match opening.read(&file).block {
        ClaimBlock::Claim(claim) if claim.volume == volume => Some(claim.owner_text()),
        _ => None,
    })
}

/// Claims the volume for a writer. `None` if there is no volume that can be claimed.
pub(crate) fn take(place: &ClaimPlace<'_>, options: &ClaimOptions) -> Result<Option<Held>> {
    // Nothing is written to a volume that this Shoal does not support.
    let superblock = superblock(place.device);
    let writable = superblock.filter(Superblock::may_be_written);
    let Some(volume) = writable.map(|sb| sb.id) else { return Ok(None) };
    let file = place.open(false)?;
    let opening = Opening { place, options, volume, here: Here::look() };
    let found = opening.wait_until_free(&file)?;
    let mut own = opening.here.claim(place.path);
    own.volume = volume;
    own.patience_ms = options.patience_ms();
    own.beat = 1;
    (own.since, own.renewed) = (now(), now());
    let random = rustix::rand::getrandom(&mut own.owner, rustix::rand::GetRandomFlags::empty());
    random.map_err(|e| Error::refused(Code::Io, format!("no random bytes for a claim: {e}")))?;
    let mut page = Page::zero();
    page.0.copy_from_slice(&own.encode());
    let mut written = 0;
    loop {
        place.clock.access();
        if let Err(error) = file.write(&page) {
            return opening.unclaimed(error);
        }
        written += 1;
        let by_force = found.by_force.is_some();
        let wait = settle(place.is_local_file, by_force, place.clock.now() - found.at);
        if !wait.is_zero() && !options.inherited {
            place.clock.sleep(wait);
        }
        match opening.read(&file).block {
            ClaimBlock::Claim(found) if found.is_same_owner(&own) => break,
            ClaimBlock::Claim(other) if written < FORCED_MAX && found.is_forced_from(&other) => {
                place.clock.sleep(FORCED_PAUSE);
            }
            ClaimBlock::Claim(other) => return Err(opening.in_use(&other.owner_text())),
            ClaimBlock::Absent | ClaimBlock::Unreadable(_) => {
                return Err(opening.in_use("another process, which opened it at the same time"));
            }
        }
    }
    if !place.is_local_file {
        file.forget_cache();
    }
    let name = place.path.display().to_string();
    Ok(Some(Held::new(file, own, name, place.clock.clone())))
}

/// The wait of step 4.
///
/// | opened | time between steps 1 and 3 | wait | another opener in that time |
/// | --- | --- | --- | --- |
/// | a local file | short | none | waits itself, and finds this claim in step 5 |
/// | anything else | short | [`SETTLE`] | finds this claim in step 5, or while its own is young |
/// | anything | longer | [`SETTLE`] | may be open, with a young claim |
/// | anything | very long | [`SETTLE_LONG`] | may be open, and renews its claim at normal intervals |
/// | by force | any | [`SETTLE_LONG`] | the same |
fn settle(is_local_file: bool, by_force: bool, between: Duration) -> Duration {
    if by_force || between > DAWDLING {
        SETTLE_LONG
    } else if !is_local_file || between > PROMPT {
        SETTLE
    } else {
        Duration::ZERO
    }
}

/// The volume is free.
struct Free {
    /// Time at which the block was read for this decision.
    at: Duration,
    /// The block that only `force` overrides.
    by_force: Option<ClaimBlock>,
}

impl Free {
    fn is_forced_from(&self, owner: &OwnerClaim) -> bool {
        matches!(&self.by_force, Some(ClaimBlock::Claim(claim)) if claim.is_same_owner(owner))
    }
}

struct Opening<'a> {
    place: &'a ClaimPlace<'a>,
    options: &'a ClaimOptions,
    volume: [u8; 16],
    here: Here,
}

impl ClaimPlace<'_> {
    fn open(&self, read_only: bool) -> Result<ClaimFile> {
        ClaimFile::open(self.file, self.path, read_only).map_err(|e| {
            let device = self.path.display().to_string();
            crate::device::failure("open", device, ADDR, SIZE as u64, e.raw_os_error().unwrap_or(0))
        })
    }
}

impl Opening<'_> {
    /// Steps 1 and 2.
    fn wait_until_free(&self, file: &ClaimFile) -> Result<Free> {
        let clock = &self.place.clock;
        let begun = clock.now();
        if self.options.inherited {
            return Ok(Free { at: begun, by_force: None });
        }
        let (mut first, mut pause, mut told) = (self.read(file), Duration::from_millis(1), false);
        let mut still_since = begun;
        loop {
            let at = clock.now();
            let reading = self.read(file);
            match compare(&first, &reading) {
                Seen::Renewed if self.options.force => {}
                Seen::Renewed => return Err(self.in_use(&reading.owner_text())),
                Seen::Other => (first, still_since) = (reading, at),
                Seen::Still => {}
            }
            let (patience, runs) = match self.decide(&first.block) {
                Decision::Open | Decision::Dead(_) => return Ok(Free { at, by_force: None }),
                Decision::Watch { .. } if self.options.force => {
                    return Ok(Free { at, by_force: Some(first.block) });
                }
                Decision::Watch { patience, runs } => (patience, runs),
            };
            if clock.now() - still_since >= patience {
                return if runs {
                    Err(self.is_silent(&first))
                } else {
                    Ok(Free { at, by_force: None })
                };
            }
            // Claims that come and go for this long belong to a volume in use.
            if clock.now() - begun >= patience * 3 {
                return Err(self.in_use(&first.owner_text()));
            }
            if !told && clock.now() - begun >= QUIET {
                told = true;
                self.tell(&first, patience);
            }
            clock.sleep(pause);
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    fn decide(&self, block: &ClaimBlock) -> Decision {
        let process = match block {
            ClaimBlock::Claim(claim) => self.here.find(claim),
            _ => Process::Unknown,
        };
        decide(block, &self.volume, &self.here, process)
    }

    /// Reads the block. One that the device cannot read may be a claim.
    fn read(&self, file: &ClaimFile) -> Reading {
        let mut page = Page::zero();
        self.place.clock.access();
        match file.read(&mut page) {
            Ok(()) => Reading::new(&page.0),
            Err(_) => Reading::failed(),
        }
    }

    fn tell(&self, reading: &Reading, patience: Duration) {
        let path = self.place.path.display();
        let (owner, seconds) = (reading.owner_text(), patience.as_secs_f64());
        (self.options.notice)(&format!(
            "{path} was last used by {owner}, and not closed; watching for {seconds} seconds \
             whether it is still in use"
        ));
    }

    fn in_use(&self, owner: &str) -> Error {
        let path = self.place.path.display();
        let message = format!("{path} is in use by {owner}: unmount it there, or wait");
        Error::refused(Code::Busy, message)
    }

    fn is_silent(&self, reading: &Reading) -> Error {
        let (path, owner) = (self.place.path.display(), reading.owner_text());
        let message = format!(
            "{path} has a claim of {owner}, which runs but does not renew it: it is stopped, or \
             this is a copy of a volume in use; end it, or mount the copy with --force"
        );
        Error::refused(Code::Busy, message)
    }

    /// Handles a claim that cannot be written. It must not prevent an open: a volume whose host has
    /// no space left is opened to remove files. The locks still protect it.
    fn unclaimed(&self, error: Errno) -> Result<Option<Held>> {
        if matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::IO) {
            let path = self.place.path.display();
            (self.options.notice)(&format!(
                "{path}: its claim cannot be written ({error}): do not open it by another path or \
                 on another host meanwhile"
            ));
            return Ok(None);
        }
        let device = self.place.path.display().to_string();
        Err(crate::device::failure("write", device, ADDR, SIZE as u64, error.raw_os_error()))
    }
}

/// Returns the newest superblock of the volume on a device, if the volume can be opened.
fn superblock(device: &dyn Device) -> Option<Superblock> {
    let fits = |bytes: u64| bytes <= device.capacity();
    let copy = |addr: &u64| {
        let mut raw = vec![0; 4096];
        if !fits(*addr + raw.len() as u64) {
            return None;
        }
        device.read_at(&mut raw, *addr).ok()?;
        Superblock::decode(&raw, *addr).ok().flatten()
    };
    let newest = COPIES.iter().filter_map(copy).max_by_key(|sb| sb.sequence)?;
    fits(newest.geometry.bytes()).then_some(newest)
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
