//! The journal from the newest checkpoint on, in readable form: the records that the next open
//! would replay. Nothing is replayed, recovered or written, so a volume that was not closed can be
//! examined unchanged.

use crate::intents::IntentState;
use shoal_base::{Code, Error, Lsn, Result};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::batch::RECORD_HEADER;
use shoal_format::bytes::Reader;
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_journal::JournalPos;
use shoal_txn::Intents;
use std::collections::BTreeMap;

/// A journal that was found but not read yet.
pub struct JournalDump<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    volume: u64,
    start: JournalPos,
    open: BTreeMap<u64, OpenIntent>,
    /// The volume was closed: there is nothing to replay.
    pub clean: bool,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// Incarnation whose records are valid.
    pub incarnation: u32,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct JournalRecord {
    /// Its number: the LSN where it starts.
    pub lsn: Lsn,
    /// Bytes, header included.
    pub bytes: u64,
    /// Its changes, in order.
    pub items: Vec<JournalItem>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct JournalItem {
    /// Kind of change.
    pub kind: &'static str,
    /// The whole change as text.
    pub text: String,
    /// Number of its intent, and the intent's state after it: logged, spread, removed or done.
    pub intent: Option<(u64, &'static str)>,
}

/// An intent that is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenIntent {
    /// Its progress.
    pub state: &'static str,
    /// The remaining work.
    pub text: String,
    replaces: bool,
}

/// Result of reading the journal to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEnd {
    /// LSN of the next record.
    pub lsn: Lsn,
    /// Number of records.
    pub records: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Reason why the tail was truncated, if it was.
    pub torn: Option<String>,
    /// Intents that the next open will complete, by number.
    pub open: BTreeMap<u64, OpenIntent>,
}

impl<'d> JournalDump<'d> {
    /// Finds the journal of the volume on a device.
    pub fn find(device: &'d dyn Device) -> Result<JournalDump<'d>> {
        let sb = shoal_txn::read_superblock(device)?;
        let checkpoint = shoal_txn::read_checkpoint(device, &sb)?;
        let intents = Intents::read(device, &sb.geometry, sb.volume(), &checkpoint.intents)?;
        let open = intents.all().into_iter().map(|(id, intent)| (id, opened(&intent)));
        Ok(JournalDump {
            device,
            geometry: sb.geometry,
            volume: sb.volume(),
            start: JournalPos { addr: checkpoint.journal, lsn: checkpoint.lsn },
            open: open.collect(),
            clean: sb.clean,
            checkpoint: checkpoint.epoch,
            incarnation: sb.incarnation,
        })
    }

    /// Returns the journal's position at the checkpoint.
    pub fn start(&self) -> Lsn {
        self.start.lsn
    }

    /// Returns the intents that were open at the checkpoint, by number.
    pub fn open(&self) -> &BTreeMap<u64, OpenIntent> {
        &self.open
    }

    /// Reads the journal, and calls `each` with every record until it returns `false`; then the
    /// result is `None`.
    pub fn read(
        mut self,
        each: &mut dyn FnMut(&JournalRecord) -> bool,
    ) -> Result<Option<JournalEnd>> {
        if self.clean {
            let lsn = self.start.lsn;
            return Ok(Some(JournalEnd { lsn, records: 0, bytes: 0, torn: None, open: self.open }));
        }
        let mut stopped = false;
        let mut open = std::mem::take(&mut self.open);
        let mut deliver = |end: Lsn, raw: &[u8]| {
            stopped = !each(&decode(end, raw, &mut open)?);
            if stopped { Err(Error::Code(Code::Io)) } else { Ok(()) }
        };
        let scanned = shoal_journal::scan(
            self.device,
            &self.geometry,
            self.volume,
            self.incarnation,
            self.start,
            &mut deliver,
        );
        if stopped {
            return Ok(None);
        }
        let end = scanned?;
        Ok(Some(JournalEnd {
            lsn: end.end.lsn,
            records: end.records,
            bytes: end.bytes,
            torn: end.torn,
            open,
        }))
    }
}

fn opened(intent: &Intent) -> OpenIntent {
    let state = IntentState::Logged.to_text();
    OpenIntent { state, text: intent.to_text(), replaces: is_replace(intent) }
}

fn is_replace(intent: &Intent) -> bool {
    intent.to_remove().is_some() && intent.to_set().is_some()
}

/// Decodes a record, and updates `open`.
fn decode(end: Lsn, raw: &[u8], open: &mut BTreeMap<u64, OpenIntent>) -> Result<JournalRecord> {
    let bytes = (RECORD_HEADER + raw.len()) as u64;
    let mut items = Vec::new();
    let mut r = Reader::new(raw);
    while !r.is_empty() {
        let item = Item::decode(&mut r).ok_or_else(|| {
            let object = format!("journal record that ends at LSN {}", end.0);
            Error::corrupt(object, None, "item of unknown shape")
        })?;
        let intent = follow(&item, open);
        items.push(JournalItem { kind: kind(&item), text: text(&item), intent });
    }
    Ok(JournalRecord { lsn: Lsn(end.0 - bytes), bytes, items })
}

/// Returns the intent of an item, and its state after it.
fn follow(item: &Item<'_>, open: &mut BTreeMap<u64, OpenIntent>) -> Option<(u64, &'static str)> {
    match *item {
        Item::IntentLog { id, body } => {
            let state = Intent::decode(body).map_or("broken", |intent| {
                let intent = opened(&intent);
                let state = intent.state;
                open.insert(id, intent);
                state
            });
            Some((id, state))
        }
        Item::IntentProgress { id, body } => {
            let Some(intent) = Intent::decode(body) else { return Some((id, "broken")) };
            let replaced = open.get(&id).is_some_and(|before| before.replaces);
            let removed = replaced && intent.to_remove().is_none();
            let state = if removed { IntentState::Removed } else { IntentState::Spread }.to_text();
            open.insert(id, OpenIntent { state, ..opened(&intent) });
            Some((id, state))
        }
        Item::IntentDone { id } => {
            open.remove(&id);
            Some((id, IntentState::Done.to_text()))
        }
        Item::Core { .. }
        | Item::DataFork { .. }
        | Item::AttrFork { .. }
        | Item::DirTouch { .. }
        | Item::Free { .. }
        | Item::TreePut { .. }
        | Item::TreeDel { .. }
        | Item::TreeDelRange { .. }
        | Item::OrphanAdd { .. }
        | Item::OrphanDel { .. }
        | Item::Links { .. }
        | Item::Root { .. }
        | Item::Named { .. }
        | Item::Unnamed { .. }
        | Item::Moved { .. } => None,
    }
}

/// Returns the kind of an item.
fn kind(item: &Item<'_>) -> &'static str {
    match item {
        Item::Core { .. } => "core",
        Item::DataFork { .. } => "data_fork",
        Item::AttrFork { .. } => "attr_fork",
        Item::DirTouch { .. } => "dir_touch",
        Item::Free { .. } => "free",
        Item::TreePut { .. } => "tree_put",
        Item::TreeDel { .. } => "tree_del",
        Item::TreeDelRange { .. } => "tree_del_range",
        Item::OrphanAdd { .. } => "orphan_add",
        Item::OrphanDel { .. } => "orphan_del",
        Item::Links { .. } => "links",
        Item::IntentLog { .. } => "intent_log",
        Item::IntentProgress { .. } => "intent_progress",
        Item::IntentDone { .. } => "intent_done",
        Item::Root { .. } => "root",
        Item::Named { .. } => "named",
        Item::Unnamed { .. } => "unnamed",
        Item::Moved { .. } => "moved",
    }
}

/// Formats an item. For file data only the length is shown.
fn text(item: &Item<'_>) -> String {
    match item {
        Item::DataFork { ino, form, bytes } => {
            format!("inode {ino} data {form:?}: {} bytes", bytes.len())
        }
        other => other.to_text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_base::Ino;
    use shoal_format::attr::{Attr, Namespace, Value};

    /// Decodes a record of these items, and updates the open intents.
    fn read(items: &[Item<'_>], open: &mut BTreeMap<u64, OpenIntent>) -> JournalRecord {
        let mut raw = Vec::new();
        items.iter().for_each(|item| item.encode(&mut raw));
        decode(Lsn(1000), &raw, open).expect("decodes")
    }

    #[test]
    fn intents_are_followed_through_their_states() {
        let attr = |name, value| Attr { space: Namespace::User, name, value: Value::Local(value) };
        let (old, new) = (attr(b"old", b"").to_bytes(), attr(b"new", b"1").to_bytes());
        let replace = Intent { ino: Ino(5), generation: 1, remove: old, set: new };
        let rest = Intent { remove: Vec::new(), ..replace.clone() };
        let (replace, rest) = (replace.to_bytes(), rest.to_bytes());
        let mut open = BTreeMap::new();
        let free = Item::Free { ino: Ino(9), generation: 1 };
        let record = read(&[free, Item::IntentLog { id: 3, body: &replace }], &mut open);
        assert_eq!((record.items[0].kind, record.items[0].intent), ("free", None));
        assert_eq!(record.items[1].intent, Some((3, "logged")));
        assert_eq!(record.lsn.0 + record.bytes, 1000);
        let steps = [(&replace, "spread"), (&rest, "removed")];
        for (body, state) in steps {
            let record = read(&[Item::IntentProgress { id: 3, body }], &mut open);
            assert_eq!(record.items[0].intent, Some((3, state)));
        }
        assert_eq!(open[&3].state, "removed");
        assert!(open[&3].text.starts_with("attr set inode 5/1"), "{}", open[&3].text);
        let record = read(&[Item::IntentDone { id: 3 }], &mut open);
        assert_eq!(record.items[0].intent, Some((3, "done")));
        assert!(open.is_empty());
    }

    #[test]
    fn what_is_no_item_is_damage() {
        let error = decode(Lsn(1000), &[0xff; 20], &mut BTreeMap::new()).expect_err("damage");
        assert!(error.to_string().contains("LSN 1000"), "{error}");
    }
}
