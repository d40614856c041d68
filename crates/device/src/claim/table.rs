//! The decision about a claim found in the volume: pure functions, so that their tables can be read
//! and tested.
//!
//! | the block holds | known of the owner | decision |
//! | --- | --- | --- |
//! | no claim, or that of another volume | | open |
//! | a claim | same boot and pid namespace; no such process | open: it is dead |
//! | a claim | same machine, other boot; last renewed before this boot | open: it is dead |
//! | a claim | same boot and pid namespace; the process runs | watch; refuse in any case |
//! | a claim | anything else | watch; refuse if it is renewed, else open |
//! | a torn or damaged claim | nothing | watch; refuse if it changes, else open |
//!
//! The third row is safe for machines cloned with their machine id: a running clone renews its
//! claim after this machine was started. A process that runs and does not renew its claim is
//! stopped, or the volume is a copy of one in use. A stopped process may still have unwritten pages
//! in the kernel, so its claim is not taken over without `--force`.

use super::host::{Here, Process};
use shoal_format::claim::{ClaimBlock, OwnerClaim, PATIENCE_MS};
use std::time::Duration;

/// The decision about a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// No process has the volume open.
    Open,
    /// The owner is dead, for this reason.
    Dead(&'static str),
    /// The claim must be watched for `patience`. `runs`: its owner is known to run.
    Watch { patience: Duration, runs: bool },
}

/// Decides about `block`. `volume` is the id of the volume, `process` the state of the claim's
/// process.
pub(crate) fn decide(
    block: &ClaimBlock,
    volume: &[u8; 16],
    here: &Here,
    process: Process,
) -> Decision {
    let least = Duration::from_millis(u64::from(*PATIENCE_MS.start()));
    let claim = match block {
        ClaimBlock::Absent => return Decision::Open,
        ClaimBlock::Unreadable(_) => return Decision::Watch { patience: least, runs: false },
        ClaimBlock::Claim(claim) if claim.volume != *volume => return Decision::Open,
        ClaimBlock::Claim(claim) => claim,
    };
    if process == Process::Gone {
        return Decision::Dead("its process has ended");
    }
    if was_before_this_boot(claim, here) {
        return Decision::Dead("its machine has been restarted since");
    }
    let patience = Duration::from_millis(u64::from(claim.patience_ms));
    Decision::Watch { patience, runs: process == Process::Runs }
}

fn was_before_this_boot(claim: &OwnerClaim, here: &Here) -> bool {
    let unknown = [0; 16];
    let same_machine = here.machine != unknown && here.machine == claim.machine;
    let both_boots_known = here.boot != unknown && claim.boot != unknown;
    let other_boot = both_boots_known && here.boot != claim.boot;
    same_machine && other_boot && here.booted.is_some_and(|booted| claim.renewed < booted)
}

/// The difference between two readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// No change.
    Still,
    /// The same owner has renewed its claim.
    Renewed,
    /// The block has other contents: decide again.
    Other,
}

/// Contents of the block at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    raw: Vec<u8>,
    pub block: ClaimBlock,
}

impl Reading {
    pub(super) fn new(raw: &[u8]) -> Reading {
        Reading { raw: raw.to_vec(), block: OwnerClaim::decode(raw) }
    }

    /// A block that the device cannot read.
    pub(super) fn failed() -> Reading {
        Reading { raw: Vec::new(), block: ClaimBlock::Unreadable("the device cannot read it") }
    }

    pub(super) fn owner_text(&self) -> String {
        match &self.block {
            ClaimBlock::Claim(claim) => claim.owner_text(),
            _ => "an unknown process (its claim cannot be read)".into(),
        }
    }
}

/// Compares two readings of the block. An unreadable block that changes counts as renewed, perhaps
/// by a newer Shoal.
pub(crate) fn compare(before: &Reading, after: &Reading) -> Seen {
    match (&before.block, &after.block) {
        _ if before.raw == after.raw => Seen::Still,
        (ClaimBlock::Claim(before), ClaimBlock::Claim(after)) if before.is_same_owner(after) => {
            Seen::Renewed
        }
        (ClaimBlock::Unreadable(_), ClaimBlock::Unreadable(_)) => Seen::Renewed,
        _ => Seen::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: [u8; 16] = [1; 16];

    fn here() -> Here {
        let ids = Here { machine: [2; 16], boot: [3; 16], ..Here::default() };
        Here { booted: Some(1000), pid_namespace: 4, ..ids }
    }

    fn claim() -> OwnerClaim {
        OwnerClaim {
            volume: VOLUME,
            machine: [2; 16],
            boot: [3; 16],
            pid_namespace: 4,
            pid: 5,
            patience_ms: 3000,
            renewed: 2000,
            ..OwnerClaim::default()
        }
    }

    #[test]
    fn the_table_of_decisions() {
        let block = |claim: OwnerClaim| ClaimBlock::Claim(Box::new(claim));
        let watch = |ms, runs| Decision::Watch { patience: Duration::from_millis(ms), runs };
        let (ended, restarted) = ("its process has ended", "its machine has been restarted since");
        let other_boot = OwnerClaim { boot: [9; 16], ..claim() };
        let before_boot = OwnerClaim { renewed: 999, ..other_boot.clone() };
        let no_machine = Here { machine: [0; 16], ..here() };
        let no_boot = Here { boot: [0; 16], ..here() };
        let no_clock = Here { booted: None, ..here() };
        use Process::{Gone, Runs, Unknown};
        let absent = || ClaimBlock::Absent;
        let torn = || ClaimBlock::Unreadable("x");
        let own = || block(claim());
        let before = || block(before_boot.clone());
        let after = || block(other_boot.clone());
        let another = || block(OwnerClaim { volume: [7; 16], ..claim() });
        let elsewhere = || block(OwnerClaim { machine: [8; 16], ..before_boot.clone() });
        let nameless = || block(OwnerClaim { machine: [0; 16], ..before_boot.clone() });
        let bootless = || block(OwnerClaim { boot: [0; 16], ..before_boot.clone() });
        let (open, dead) = (Decision::Open, Decision::Dead(ended));
        let before_ours = Decision::Dead(restarted);
        #[rustfmt::skip]
        let rows = [
            ("no claim",             absent(),    here(),     Unknown, open),
            ("another volume's",     another(),   here(),     Runs,    open),
            ("process gone",         own(),       here(),     Gone,    dead),
            ("process runs",         own(),       here(),     Runs,    watch(3000, true)),
            ("namespace unknown",    own(),       here(),     Unknown, watch(3000, false)),
            ("torn",                 torn(),      here(),     Unknown, watch(2000, false)),
            ("restarted",            before(),    here(),     Unknown, before_ours),
            ("cloned machine, runs", after(),     here(),     Unknown, watch(3000, false)),
            ("other machine",        elsewhere(), here(),     Unknown, watch(3000, false)),
            ("no machine ids",       nameless(),  no_machine, Unknown, watch(3000, false)),
            ("own boot unknown",     before(),    no_boot,    Unknown, watch(3000, false)),
            ("its boot unknown",     bootless(),  here(),     Unknown, watch(3000, false)),
            ("boot time unknown",    before(),    no_clock,   Unknown, watch(3000, false)),
        ];
        for (name, block, here, process, wanted) in rows {
            assert_eq!(decide(&block, &VOLUME, &here, process), wanted, "{name}");
        }
    }

    #[test]
    fn the_table_of_readings() {
        let claim =
            |n, beat| Reading::new(&OwnerClaim { owner: [n; 16], beat, ..claim() }.encode());
        let torn = |byte| {
            let mut raw = OwnerClaim::default().encode();
            raw[100] ^= byte;
            Reading::new(&raw)
        };
        let rows = [
            (claim(1, 0), claim(1, 0), Seen::Still),
            (claim(1, 0), claim(1, 1), Seen::Renewed),
            (claim(1, 0), claim(2, 0), Seen::Other),
            (claim(1, 0), Reading::new(&[0; 4096]), Seen::Other),
            (claim(1, 0), torn(1), Seen::Other),
            (torn(1), torn(1), Seen::Still),
            (torn(1), torn(2), Seen::Renewed),
            (torn(1), claim(1, 0), Seen::Other),
            (Reading::failed(), Reading::failed(), Seen::Still),
            (Reading::failed(), claim(1, 0), Seen::Other),
        ];
        for (before, after, wanted) in rows {
            assert_eq!(compare(&before, &after), wanted, "{before:?} {after:?}");
        }
    }
}
