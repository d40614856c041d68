//! The types of the objects of a checkpoint.

use shoal_base::Result;
use shoal_format::root::RootPage;
use shoal_format::usage::{Expected, UsageIndex, UsagePage, UsageRoot};
use shoal_format::{Geometry, Ptr, intent, orphan};

/// The type of an object of a checkpoint, other than a node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// The record itself.
    Record,
    /// The root of the segment usage table.
    Usage,
    /// An index page of that table, by number.
    UsageIndex(u32),
    /// A page of that table, by number.
    UsagePage(u32),
    /// A page of the root table.
    RootPage,
    /// The backup copy of a page of the root table.
    RootPageCopy,
    /// A list of orphan blocks.
    OrphanList,
    /// A block of the orphan table.
    OrphanBlock,
    /// Open intents.
    Intents,
}

impl ObjectKind {
    /// The name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Record => "checkpoint",
            ObjectKind::Usage => UsageRoot::NAME,
            ObjectKind::UsageIndex(_) => "usage index",
            ObjectKind::UsagePage(_) => "usage page",
            ObjectKind::RootPage => "root page",
            ObjectKind::RootPageCopy => "root page's second copy",
            ObjectKind::OrphanList => "orphan list",
            ObjectKind::OrphanBlock => "orphan block",
            ObjectKind::Intents => "open intents",
        }
    }

    /// The name with the number, if it has one, for messages.
    pub fn describe(self, geometry: &Geometry) -> String {
        match self {
            ObjectKind::UsageIndex(number) => UsageIndex::name(geometry, number),
            ObjectKind::UsagePage(number) => UsagePage::name(geometry, number),
            _ => self.name().to_owned(),
        }
    }

    /// Verifies that `raw`, whose checksum has been verified, is such an object of the expected
    /// checkpoint.
    pub fn verify(self, raw: &[u8], ptr: Ptr, of: &Expected<'_>) -> Result<()> {
        let (addr, volume) = (ptr.addr, of.volume);
        match self {
            ObjectKind::Record => Ok(()),
            ObjectKind::Usage => UsageRoot::decode(raw, addr, of).map(drop),
            ObjectKind::UsageIndex(n) => UsageIndex::decode(raw, addr, n, of).map(drop),
            ObjectKind::UsagePage(n) => UsagePage::decode(raw, addr, n, of).map(drop),
            ObjectKind::RootPage | ObjectKind::RootPageCopy => {
                RootPage::decode(raw, addr, volume).map(drop)
            }
            ObjectKind::OrphanList => orphan::decode_list(raw, addr, volume).map(drop),
            ObjectKind::OrphanBlock => orphan::decode(raw, addr, volume).map(drop),
            ObjectKind::Intents => intent::decode_open(raw, addr, volume).map(drop),
        }
    }
}
