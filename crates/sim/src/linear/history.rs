//! What was called and answered, and when.

use super::call::{At, Call, Flavour, HANDLES, Reply};
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
