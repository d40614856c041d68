//! What was called and answered, and when.

use super::call::{At, Call, DIRS, Flavour, HANDLES, Reply};
use std::fmt;

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Number of the thread or process.
    pub thread: usize,
    /// What was called.
    pub call: Call,
    /// What was answered.
    pub reply: Reply,
    /// Before the call. If an event's `end` is less than another's `begin`, it was first.
    pub begin: u64,
    /// After it.
    pub end: u64,
}

impl Event {
    /// Whether this call has succeeded, and may have changed the attributes of a handle.
    fn may_change(&self, handle: u8) -> bool {
        let is_dir = usize::from(handle) < DIRS;
        let within = |at: At| is_dir && at.dir == handle;
        let changes = match self.call {
            Call::Create(at) | Call::Mkdir(at) => within(at),
            Call::Unlink(at) => within(at) || !is_dir,
            Call::Link(file, at) => within(at) || file == handle,
            // It may be what is removed or replaced.
            Call::Rmdir(_) => is_dir,
            Call::Rename(..) | Call::RemoveTree(_) => true,
            Call::Write(file, _) | Call::Cut(file, _) => file == handle,
            Call::Lookup(_) | Call::List(_) | Call::Probe(_) => false,
            Call::Stat(_) | Call::Read(_) => false,
        };
        changes && !matches!(self.reply, Reply::Failed(_))
    }
}

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// Seed of the program.
    pub seed: u64,
    /// What it is about.
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
        let early = |stat: &Event, handle: u8| {
            self.events.iter().any(|change| {
                let overlap = change.begin <= stat.end && stat.begin <= change.end;
                overlap && change.thread != stat.thread && change.may_change(handle)
            })
        };
        let kept = |event: &&Event| !matches!(event.call, Call::Stat(of) if early(event, of));
        let events = self.events.iter().filter(kept).copied().collect();
        History { events, ..self.clone() }
    }

    /// The events that the search has to put in order, by their beginning: listings taken apart.
    pub fn steps(&self) -> Vec<Event> {
        let mut steps = Vec::with_capacity(self.events.len());
        for event in &self.events {
            match (event.call, event.reply) {
                (Call::List(dir), Reply::Listed(entries)) => {
                    steps.extend(entries.into_iter().enumerate().map(|(name, seen)| {
                        let call = Call::Probe(At { dir, name: name as u8 });
                        Event { call, reply: Reply::Probed(seen), ..*event }
                    }));
                }
                _ => steps.push(*event),
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
        writeln!(f, "handles a b c d F G: {:?}", self.inos)?;
        let mut lines: Vec<(u64, usize, String)> = Vec::new();
        for event in &self.events {
            lines.push((event.begin, event.thread, event.call.to_string()));
            lines.push((event.end, event.thread, format!("  = {}", event.reply)));
        }
        lines.sort_by_key(|(time, ..)| *time);
        let start = lines.first().map_or(0, |(time, ..)| *time);
        for (time, thread, text) in lines {
            let before = "                            | ".repeat(thread);
            let after = " |                           ".repeat(threads - thread - 1);
            writeln!(f, "{:>9}  {before}{text:<28}{}", time - start, after.trim_end())?;
        }
        Ok(())
    }
}
