//! Operations with their answers and times.

use super::program::{DIRS, Flavour, HANDLES, NAMES, at, lookup};
use super::reply::Reply;
use crate::op::{Op, Place, Target};
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
}

impl Event {
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
            Op::Rename { .. } | Op::RemoveTree { .. } => true,
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
