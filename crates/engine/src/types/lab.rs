//! Switches for measurements and tests. The public API has them only with the feature `lab`, which
//! no release has; without it they are constants.

/// Maximum extent records that one transaction removes; [`Lab::step_records`] may be lower.
pub(crate) const STEP_RECORDS: usize = 2048;

/// Switches for measurements and tests.
#[cfg_attr(not(feature = "lab"), expect(unreachable_pub, reason = "exported with the feature"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lab {
    /// Checkpoints follow each other without pause.
    pub checkpoint_always: bool,
    /// Every change of an attribute or parent pointer goes through an intent, also where one
    /// transaction would do.
    pub attr_intents: bool,
    /// The journal is written after each transaction of an intent, so that a crash can come between
    /// them.
    pub attr_intents_flushed: bool,
    /// Tracking of files that are truncated in one transaction.
    #[cfg(feature = "lab")]
    pub truncate_tracking: TruncateTracking,
    /// Most records of extents or attributes that one transaction removes, and most entries of a
    /// tree that is being removed.
    pub step_records: usize,
}

impl Lab {
    /// The switches of a release.
    pub(crate) const RELEASE: Lab = Lab {
        checkpoint_always: false,
        attr_intents: false,
        attr_intents_flushed: false,
        #[cfg(feature = "lab")]
        truncate_tracking: TruncateTracking::AsNeeded,
        step_records: STEP_RECORDS,
    };
}

impl Default for Lab {
    fn default() -> Self {
        Lab::RELEASE
    }
}

/// Tracking of a truncate that one transaction can do, for measurements of the orphan table.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TruncateTracking {
    /// None: it needs none. A truncate that takes several transactions has its slot.
    #[default]
    AsNeeded,
    /// A slot of the orphan table, taken before and freed after, both in the record: as ext4 does
    /// with its orphan file.
    Table,
    /// An entry in a list under one mutex for the volume, and the same in the record: as ext4 did
    /// before.
    List,
}
