//! Operations with their answers and times.

use super::program::{DIRS, Flavour, HANDLES, NAMES, at, is_by_session, lookup};
use super::reply::Reply;
use crate::op::{Op, Place, Target};
use shoal::raw::Code;
use std::fmt;

/// An operation that was answered.
#[derive(Clone, Debug)]
pub struct Event {
    /// Number of the thread or process.
    pub thread: usize,
    /// The operation.
    pub op: Op,
    /// The answer.
    pub reply: Reply,
    /// Before the call. If an event's `end` is less than another's `begin`, it was first.
    pub begin: u64,
    /// After it.
    pub end: u64,
    /// It need not be in the order.
    pub may_miss: bool,
}

impl Event {
    /// Returns whether this call has succeeded, and is a change.
    fn changes(&self) -> bool {
        let asks = matches!(
            self.op,
            Op::Lookup { .. } | Op::Getattr { .. } | Op::Read { .. } | Op::Readdir { .. }
        );
        !asks && !matches!(self.reply, Reply::Failed(_))
    }

    /// Returns whether this call has succeeded, and may have changed the attributes of a handle.
    fn may_change(&self, handle: &Target) -> bool {
        let is_dir = matches!(handle, Target::Slot(slot) if *slot < DIRS);
        let within = |at: &Place| at.dir == *handle;
        let changes = match &self.op {
            Op::Create { at, .. } | Op::Mkdir { at, .. } => within(at),
            Op::Unlink { at, .. } => within(at) || !is_dir,
            Op::Link { from, at, .. } => within(at) || from == handle,
            // It may be what is removed or replaced.
            Op::Rmdir { .. } => is_dir,
            Op::Rename { .. } | Op::RemoveTree { .. } | Op::Batch { .. } => true,
            Op::Write { file, .. } | Op::Truncate { file, .. } => file == handle,
            _ => false,
        };
        changes && !matches!(self.reply, Reply::Failed(_))
    }
}

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// Seed of the program.
    pub seed: u64,
    /// Kind of history.
    pub flavour: Flavour,
    /// Numbers of the handles.
    pub inos: [u64; HANDLES],
    /// All calls, in no particular order.
    pub events: Vec<Event>,
}

impl History {
    /// Without attributes that were asked for while a call of another process was changing them.
    ///
    /// Such an answer may show the change before names that the kernel keeps do: the server has
    /// made it, and tells whoever asks; the kernel moves or removes the name when the caller takes
    /// the reply. In the library, and where the kernel does not keep names, there is no such time
    /// between the two. What is asked for when the change has ended is not excused, nor what was
    /// answered of any other inode.
    pub fn without_early_attributes(&self) -> History {
        let early = |stat: &Event, handle: &Target| {
            self.events.iter().any(|change| {
                let overlap = change.begin <= stat.end && stat.begin <= change.end;
                overlap && change.thread != stat.thread && change.may_change(handle)
            })
        };
        let kept =
            |event: &&Event| !matches!(&event.op, Op::Getattr { file } if early(event, file));
        let events = self.events.iter().filter(kept).cloned().collect();
        History { events, ..self.clone() }
    }

    /// Of histories on both doors: with the system calls that may have met half of a change.
    ///
    /// A session's change is made, and then the kernel is told what it must forget, before the
    /// session's call returns. Meanwhile a system call may see the change by one name or page, and
    /// not yet by another; and one that takes several looks, such as a rename, may fail, or do
    /// nothing, because its looks do not fit together. So one that overlaps with a change by
    /// another thread's session need not be in the order; nor one that failed with `ESTALE`: who
    /// looks up a directory that a session has moved has the kernel move its own entry, for which
    /// it takes locks only if they are free. What is made and removed by a session before its
    /// caller has it is made again: it is there once more.
    ///
    /// And the kernel writes to its pages before it writes to the server. So a system call that
    /// reads contents while another one changes them need not be in the order either.
    ///
    /// The names in a removed tree go in the background, and the kernel is told of other links
    /// after that: in histories with such trees it may show those of before.
    ///
    /// The kernel gives no name to a file that has none by its count, which a session does not
    /// change until attributes are asked for: `link` of an open file may fail with `ENOENT`.
    ///
    /// What else begins when the change has ended is not excused, nor is any call of a session.
    pub fn with_halves(&self) -> History {
        let is_session = |event: &Event| is_by_session(self.seed, event.thread);
        let overlap = |one: &Event, other: &Event| {
            one.thread != other.thread && one.begin <= other.end && other.begin <= one.end
        };
        let meets_half = |event: &Event| {
            self.events.iter().filter(|change| overlap(event, change)).any(|change| {
                let is_read = |file: &Target| change.may_change(file) && !is_session(change);
                let reads_half = matches!(&event.op, Op::Read { file, .. } if is_read(file));
                reads_half || is_session(change) && change.changes()
            })
        };
        let fades = |event: &Event| {
            let is_file = |file: &Target| matches!(file, Target::Slot(slot) if *slot >= DIRS);
            self.flavour.trees && matches!(&event.op, Op::Getattr { file } if is_file(file))
        };
        let [stale, no_name] = [Code::Stale, Code::NotFound].map(|it| Reply::Failed(it.errno()));
        let mut events = self.events.clone();
        for event in &mut events {
            let is_uncounted = matches!(event.op, Op::Link { .. }) && event.reply == no_name;
            let is_half = event.reply == stale || meets_half(event);
            let is_excused = is_half || fades(event) || is_uncounted;
            event.may_miss = !is_session(event) && is_excused;
        }
        let makes = |op: &Op| matches!(op, Op::Create { .. } | Op::Mkdir { .. });
        let meets = |event: &Event| {
            self.events.iter().any(|change| overlap(event, change) && change.changes())
        };
        let again = events.iter().filter(|event| makes(&event.op) && meets(event)).cloned();
        let twice = |event| Event { reply: Reply::Done, may_miss: true, ..event };
        let again: Vec<_> = again.map(twice).collect();
        events.extend(again);
        History { events, ..self.clone() }
    }

    /// The events that the search has to put in order, by their beginning: listings taken apart.
    pub fn steps(&self) -> Vec<Event> {
        let mut steps = Vec::with_capacity(self.events.len());
        for event in &self.events {
            match (&event.op, event.reply) {
                (Op::Readdir { dir: Target::Slot(dir), .. }, Reply::Listed(entries)) => {
                    steps.extend((0..NAMES.len()).zip(entries).map(|(name, seen)| {
                        let (op, reply) = (lookup(at(*dir, name)), Reply::Probed(seen));
                        Event { op, reply, ..*event }
                    }));
                }
                _ => steps.push(event.clone()),
            }
        }
        steps.sort_by_key(|event| (event.begin, event.end));
        steps
    }
}

/// A table: a line for each beginning and each end, a column for each thread.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.events.iter().map(|event| event.thread + 1).max().unwrap_or(0);
        writeln!(f, "seed {}, {:?}", self.seed, self.flavour)?;
        writeln!(
            f,
            "inodes of the open ones, two directories, two in them, two files: {:?}",
            self.inos
        )?;
        let mut lines: Vec<(u64, usize, String)> = Vec::new();
        for event in &self.events {
            lines.push((event.begin, event.thread, event.op.to_string()));
            lines.push((event.end, event.thread, format!("  = {}", event.reply)));
        }
        lines.sort_by_key(|(time, ..)| *time);
        let start = lines.first().map_or(0, |(time, ..)| *time);
        for (time, thread, text) in lines {
            let before = format!("{:40}| ", "").repeat(thread);
            let after = format!(" |{:39}", "").repeat(threads - thread - 1);
            writeln!(f, "{:>9}  {before}{text:<40}{}", time - start, after.trim_end())?;
        }
        Ok(())
    }
}
