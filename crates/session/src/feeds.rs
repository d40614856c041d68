//! The change feeds of a session, at its server.

use crate::calls::{Calls, ChangeFeed, FeedReader};
use parking_lot::Mutex;
use shoal_engine::{Caller, Change, Code, Error, Result};
use std::collections::VecDeque;

/// Feeds that a session may read at a time. Each may hold 4 MiB of removed names and positions.
const FEEDS_MAX: usize = 16;
/// Changes that are asked for at a time.
const BATCH: usize = 256;
/// Bytes of changes in one answer, beyond which the next one has the rest.
const ANSWER_MAX: usize = 24 << 10;

/// A feed, and changes that no answer has had yet.
struct Reading {
    feed: ChangeFeed,
    waiting: VecDeque<Change>,
}

/// A place of the table.
#[derive(Default)]
enum Place {
    #[default]
    Free,
    /// A feed that no call uses.
    Idle(Box<Reading>),
    /// A call uses the feed.
    Busy,
    /// As `Busy`; the feed has been ended meanwhile.
    Ended,
}

/// The feeds of a session. A feed holds nothing of the volume.
#[derive(Default)]
pub(crate) struct Feeds {
    table: Mutex<Table>,
    /// Number of the first: those below were read at a server before this one.
    first: u32,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    /// The feed that was read last: the only one that keeps the paths that it knows, which take up
    /// to 40 MB.
    last: usize,
}

impl Feeds {
    /// The feeds of a session, with numbers from `first` on.
    pub(crate) fn from(first: u32) -> Feeds {
        Feeds { first, ..Feeds::default() }
    }

    fn place_of(&self, number: u32) -> Result<usize> {
        number.checked_sub(self.first).map(|place| place as usize).ok_or_else(|| {
            let message = "the server that read this list of changes has died: begin anew with the \
                           mark before it";
            Error::refused(Code::Stale, message)
        })
    }

    /// Adds a feed. Returns its number.
    pub(crate) fn add(&self, feed: ChangeFeed) -> Result<u32> {
        let mut table = self.table.lock();
        let place = Place::Idle(Box::new(Reading { feed, waiting: VecDeque::new() }));
        let free = table.places.iter().position(|place| matches!(place, Place::Free));
        let number = match free {
            Some(number) => {
                table.places[number] = place;
                number
            }
            None if table.places.len() == FEEDS_MAX => {
                let message = format!("a session reads at most {FEEDS_MAX} lists of changes");
                return Err(Error::refused(Code::NoMemory, message));
            }
            None => {
                table.places.push(place);
                table.places.len() - 1
            }
        };
        Ok(self.first + number as u32)
    }

    /// Returns the next changes of a feed: some, or none at its end.
    pub(crate) fn next(&self, calls: &dyn Calls, who: &Caller, number: u32) -> Result<Vec<Change>> {
        let number = self.place_of(number)?;
        let mut reading = self.begin(number)?;
        let filled = match reading.waiting.is_empty() {
            true => calls.next_changes(who, &mut reading.feed, BATCH).map(VecDeque::from),
            false => Ok(std::mem::take(&mut reading.waiting)),
        };
        let part = filled.map(|changes| {
            reading.waiting = changes;
            reading.part()
        });
        let mut table = self.table.lock();
        let place = &mut table.places[number];
        *place = match place {
            Place::Busy => Place::Idle(reading),
            _ => Place::Free,
        };
        part
    }

    /// Takes a feed for a call.
    fn begin(&self, number: usize) -> Result<Box<Reading>> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let place = table.places.get_mut(number).ok_or(Code::BadHandle)?;
        let reading = match std::mem::replace(place, Place::Busy) {
            Place::Idle(reading) => reading,
            other => {
                let is_free = matches!(other, Place::Free);
                *place = other;
                return Err(if is_free { Code::BadHandle } else { Code::Busy }.into());
            }
        };
        if table.last != number
            && let Some(Place::Idle(other)) = table.places.get_mut(table.last)
            && let FeedReader::Here(reader) = &mut other.feed.reader
        {
            reader.forget_paths();
        }
        table.last = number;
        Ok(reading)
    }

    /// Ends a feed.
    pub(crate) fn end(&self, number: u32) -> Result<()> {
        let number = self.place_of(number)?;
        let mut table = self.table.lock();
        let place = table.places.get_mut(number).ok_or(Code::BadHandle)?;
        *place = match place {
            Place::Free | Place::Ended => return Err(Code::BadHandle.into()),
            Place::Busy => Place::Ended,
            Place::Idle(_) => Place::Free,
        };
        Ok(())
    }
}

impl Reading {
    /// Takes as many changes as an answer may have: one at least, if there is one.
    fn part(&mut self) -> Vec<Change> {
        let mut len = 0;
        let fit = self.waiting.iter().take_while(|change| {
            let fits = len <= ANSWER_MAX;
            let names = change.names.iter().chain(&change.from);
            len += 64 + names.map(|name| 16 + name.dir_path.len() + name.name.len()).sum::<usize>();
            fits
        });
        let fit = fit.count();
        self.waiting.drain(..fit).collect()
    }
}
