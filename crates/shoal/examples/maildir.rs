//! Maildir: four processes deliver messages, a reader takes them and marks them as seen.
//!
//! ```sh
//! cargo run -p shoal --example maildir [[--connect] VOLUME [DIRECTORY]]
//! ```
//!
//! The reader has the volume open, and serves it to the others ([`shoal::Volume::serve`]), which
//! connect to it. With `--connect` all of them connect: to a mount, or to `shoal serve`.
//!
//! A message is written into `tmp`, renamed into `new` when it is whole, and renamed into `cur`
//! with its flags when the reader has seen it. Nobody locks anything: names are unique, and a
//! rename is one change.
//!
//! On other filesystems a delivery needs two flushes: one of the file, then one of the directory.
//! In Shoal the order of changes is strict: if the name in `new` survives a crash, the contents do.
//! So one [`File::sync_all`](shoal::File::sync_all) after the rename is enough, and those who
//! deliver at the same time share it.

mod common;

use shoal::{Dir, RenameFlags, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const PROCESSES: usize = 4;
const MESSAGES: usize = 50;

/// A mailbox. Cheap to clone, and may be shared between threads, as directories are.
#[derive(Clone)]
struct Maildir {
    tmp: Dir,
    new: Dir,
    cur: Dir,
    top: Dir,
}

/// A message in the mailbox.
struct Message {
    /// Its path below the mailbox: `new/NAME` or `cur/NAME:2,FLAGS`.
    path: String,
}

impl Maildir {
    /// Opens the mailbox in a directory, and makes what is missing of it.
    fn open(top: Dir) -> Result<Maildir> {
        let [tmp, new, cur] = ["tmp", "new", "cur"].map(|name| top.create_dir_all(name));
        Ok(Maildir { tmp: tmp?, new: new?, cur: cur?, top })
    }

    /// Delivers a message. When this returns the message survives a crash; a crash before leaves
    /// all of it in `new`, or a file in `tmp` that nobody reads.
    fn deliver(&self, parts: &[&[u8]]) -> Result<String> {
        let name = unique_name();
        let mut file = self.tmp.create_new(&name)?;
        for part in parts {
            file.write_all(part)?;
        }
        // Refuses to replace a message, should a name ever not be unique.
        let flags = RenameFlags { noreplace: true, ..RenameFlags::default() };
        self.top.rename_with(format!("tmp/{name}"), format!("new/{name}"), flags)?;
        // The file is still the same after its rename.
        file.sync_all()?;
        Ok(name)
    }

    /// All messages, by name.
    fn messages(&self) -> Result<BTreeMap<String, Message>> {
        let mut found = BTreeMap::new();
        for (folder, dir) in [("new", &self.new), ("cur", &self.cur)] {
            for entry in dir.entries()? {
                let full = String::from_utf8_lossy(entry?.name()).into_owned();
                let name = full.split(":2,").next().unwrap_or_default().to_owned();
                found.insert(name, Message { path: format!("{folder}/{full}") });
            }
        }
        Ok(found)
    }

    /// Sets the flags of a message, such as `S` for seen. They are part of its name, in the order
    /// of the alphabet, and a message with flags is in `cur`.
    fn set_flags(&self, message: &mut Message, flags: &str) -> Result<()> {
        let name = message.path.split(['/', ':']).nth(1).unwrap_or_default();
        let mut sorted: Vec<char> = flags.chars().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let path = format!("cur/{name}:2,{}", sorted.into_iter().collect::<String>());
        self.top.rename(&message.path, &path)?;
        message.path = path;
        Ok(())
    }
}

/// A name that no other delivery has, here or on another machine: time, process, a counter, host.
fn unique_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A slash or a colon would have a meaning in the name.
    let host = host.trim().replace('/', "\\057").replace(':', "\\072");
    format!("{}.M{}P{}Q{counter}.{host}", now.as_secs(), now.subsec_micros(), std::process::id())
}

/// Delivers messages: the work of each process.
fn deliver_some(mailbox: &Maildir, process: usize) -> Result<(), Box<dyn std::error::Error>> {
    for n in 0..MESSAGES {
        let subject = format!("Subject: message {n} of process {process}\r\n\r\n");
        mailbox.deliver(&[subject.as_bytes(), b"Hello.\r\n"])?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("maildir");
    let volume = place.open()?;
    let mailbox = Maildir::open(place.directory(&volume, 0, "users/ada/Maildir")?)?;
    if let Some(process) = common::Place::process() {
        return deliver_some(&mailbox, process);
    }
    let before = mailbox.messages()?;

    // Several servers deliver at the same time.
    place.run_processes(&volume, PROCESSES)?;

    // A reader takes them all, and answers the first.
    let mut messages = mailbox.messages()?;
    let delivered: Vec<String> =
        messages.keys().filter(|name| !before.contains_key(*name)).cloned().collect();
    assert_eq!(delivered.len(), PROCESSES * MESSAGES, "every message once");
    for name in &delivered {
        let message = messages.get_mut(name).ok_or("a message is missing")?;
        let text = mailbox.top.read(&message.path)?;
        assert!(text.starts_with(b"Subject: ") && text.ends_with(b"\r\n\r\nHello.\r\n"));
        mailbox.set_flags(message, if *name == delivered[0] { "SR" } else { "S" })?;
    }
    volume.sync()?;

    let messages = mailbox.messages()?;
    assert!(delivered.iter().all(|name| messages[name].path.starts_with("cur/")));
    assert!(messages[&delivered[0]].path.ends_with(":2,RS"), "flags are in order");
    assert_eq!(mailbox.tmp.entries()?.count(), 0, "nothing is left behind");
    println!("{} messages delivered and seen, {} in the mailbox", delivered.len(), messages.len());
    Ok(())
}
