//! The process that owns a volume, for storage that keeps claims in its own way.

use crate::claim::{Here, Process};
use shoal_format::claim::{ClaimBlock, OwnerClaim, PATIENCE_MS};
use std::path::Path;

/// Returns the claim of this process on what it opened under a name, encoded.
pub fn encode(name: &str) -> Vec<u8> {
    let claim = Here::look().claim(Path::new(name));
    // Not made absolute: it is a URL.
    OwnerClaim { patience_ms: *PATIENCE_MS.end(), path: name.to_owned(), ..claim }.encode()
}

/// Returns the owner in a claim, for messages.
pub fn describe(raw: &[u8]) -> String {
    match OwnerClaim::decode(raw) {
        ClaimBlock::Claim(claim) => claim.owner_text(),
        ClaimBlock::Absent | ClaimBlock::Unreadable(_) => "an unknown process".to_owned(),
    }
}

/// Returns whether the process of a claim exists; `None` if that cannot be determined from here,
/// because it is on another machine or in another pid namespace.
pub fn runs(raw: &[u8]) -> Option<bool> {
    let ClaimBlock::Claim(claim) = OwnerClaim::decode(raw) else { return None };
    match Here::look().find(&claim) {
        Process::Runs => Some(true),
        Process::Gone => Some(false),
        Process::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_garbage_is_nobody() {
        let raw = encode("s3://bucket");
        assert_eq!(runs(&raw), Some(true));
        assert!(describe(&raw).contains(&std::process::id().to_string()), "{}", describe(&raw));
        assert_eq!((runs(b"?"), &*describe(b"?")), (None, "an unknown process"));
    }

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        let mut child = std::process::Command::new("true").spawn().expect("true starts");
        let pid = child.id();
        child.wait().expect("true ends");
        let ClaimBlock::Claim(claim) = OwnerClaim::decode(&encode("s3://bucket")) else {
            unreachable!("it was just encoded");
        };
        let claim = OwnerClaim { pid, process_start: 1, ..*claim };
        assert_eq!(runs(&claim.encode()), Some(false));
        let elsewhere = OwnerClaim { boot: [7; 16], ..claim };
        assert_eq!(runs(&elsewhere.encode()), None);
    }
}
