//! `shoal logdump`: the journal of a volume, record by record, without replaying it.

use std::collections::BTreeMap;
use std::path::Path;

use shoal::raw::{
    JournalDump, JournalEnd, JournalItem, JournalRecord, OpenIntent, OpenMode, OpenOptions,
    open_device,
};

use crate::args::LogdumpArgs;
use crate::failure::{Failure, OK, Result};
use crate::json::Object;
use crate::output::Out;
use crate::progress::eprint_line;
use crate::size::human;
use crate::text::printable;

/// Prints the journal.
pub(crate) fn run(args: &LogdumpArgs) -> Result<u8> {
    let path = &args.volume;
    let unusable = |error: shoal::raw::Error| Failure::volume(path.display(), &error);
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    let device = open_device(path, OpenMode::ReadOnly, &options).map_err(unusable)?;
    let dump = JournalDump::find(&*device).map_err(unusable)?;
    let mut printer = Printer { out: Out::new(), json: args.json, path, counts: Counts::default() };
    printer.head(&dump)?;
    let mut failed = None;
    let end = dump.read(&mut |record| match printer.record(record) {
        Ok(()) => true,
        Err(failure) => {
            failed = Some(failure);
            false
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    // Records before damage are shown, then the damage is reported.
    printer.out.flush()?;
    if let Some(end) = end.map_err(unusable)? {
        printer.end(&end)?;
        printer.out.flush()?;
    }
    Ok(OK)
}

/// Numbers of records printed.
#[derive(Default)]
struct Counts {
    items: u64,
    logged: u64,
    done: u64,
}

struct Printer<'a> {
    out: Out,
    json: bool,
    path: &'a Path,
    counts: Counts,
}

impl Printer<'_> {
    fn head(&mut self, dump: &JournalDump<'_>) -> Result<()> {
        let lsn = dump.start().0;
        if self.json {
            return self.out.json(
                Object::new()
                    .put("checkpoint", dump.checkpoint)
                    .put("clean", dump.clean)
                    .put("lsn", lsn)
                    .put("incarnation", dump.incarnation)
                    .put_list("open", json_open(dump.open())),
            );
        }
        let state = match dump.clean {
            true => "closed: there is nothing to replay",
            false => "not closed",
        };
        let (path, number) = (self.path.display(), dump.checkpoint);
        self.out.line(&format!("{path}: checkpoint {number} at LSN {lsn}; {state}"))?;
        self.intents("open at the checkpoint", dump.open())
    }

    fn record(&mut self, record: &JournalRecord) -> Result<()> {
        self.counts.items += record.items.len() as u64;
        for item in &record.items {
            self.counts.logged += u64::from(item.kind == "intent_log");
            self.counts.done += u64::from(item.kind == "intent_done");
        }
        if self.json {
            return self.out.json(
                Object::new()
                    .put("record", record.lsn.0)
                    .put("bytes", record.bytes)
                    .put_list("items", record.items.iter().map(json_item)),
            );
        }
        let count = counted(record.items.len() as u64, "item");
        self.out.line(&format!("LSN {}: {} bytes, {count}", record.lsn.0, record.bytes))?;
        for JournalItem { text, intent, .. } in &record.items {
            let state = intent.map(|(_, state)| format!("  [{state}]")).unwrap_or_default();
            // An item may quote names from the volume.
            self.out.line(&format!("    {}{state}", printable(text.as_bytes())))?;
        }
        Ok(())
    }

    fn end(&mut self, end: &JournalEnd) -> Result<()> {
        let Counts { items, logged, done } = self.counts;
        if self.json {
            return self.out.json(
                Object::new()
                    .put("end", end.lsn.0)
                    .put("records", end.records)
                    .put("bytes", end.bytes)
                    .put("items", items)
                    .put("intents_logged", logged)
                    .put("intents_done", done)
                    .put_list("open", json_open(&end.open))
                    .put_some("torn", end.torn.as_deref()),
            );
        }
        self.out.line(&format!(
            "end at LSN {}: {} ({}), {}; {} logged, {done} done, {} open",
            end.lsn.0,
            counted(end.records, "record"),
            human(end.bytes),
            counted(items, "item"),
            counted(logged, "intent"),
            end.open.len()
        ))?;
        if let Some(torn) = &end.torn {
            self.out.line(&format!("the tail was cut: {torn}"))?;
        }
        self.intents("the next mount completes", &end.open)
    }

    fn intents(&mut self, what: &str, open: &BTreeMap<u64, OpenIntent>) -> Result<()> {
        for (id, OpenIntent { state, text, .. }) in open {
            let text = printable(text.as_bytes());
            self.out.line(&format!("{what}: intent {id}, {state}: {text}"))?;
        }
        Ok(())
    }
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn json_open(open: &BTreeMap<u64, OpenIntent>) -> impl Iterator<Item = Object> {
    open.iter().map(|(id, it)| {
        Object::new().put("intent", id).put("state", it.state).put("text", &it.text)
    })
}

fn json_item(item: &JournalItem) -> Object {
    let (intent, state) = item.intent.unzip();
    Object::new()
        .put("kind", item.kind)
        .put("text", &item.text)
        .put_some("intent", intent)
        .put_some("state", state)
}
