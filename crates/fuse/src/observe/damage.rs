//! Damage that requests and scrubs have met: counted by the kind of object, with the first paths.
//!
//! A mount is *damaged* while reads have failed since the last scrub that found nothing, or the
//! last scrub has found problems. The counts only grow.

use parking_lot::Mutex;
use shoal::raw::{Error, Ino};
use std::collections::HashMap;
use std::time::{Instant, SystemTime};

/// Damaged files that are kept, with their paths.
pub(crate) const FILES_MAX: usize = 16;
/// Problems of a scrub that are kept.
pub(crate) const PROBLEMS_MAX: usize = 16;
/// Scrubs that are followed at the same time. Another one replaces the oldest.
const SCRUBS_MAX: usize = 16;

/// Kind of a damaged object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Contents of a file, or its extents.
    Data,
    /// Entries of a directory.
    Directory,
    /// Inodes.
    Inode,
    /// Extended attributes.
    Attributes,
    /// Other metadata.
    Metadata,
    /// Any object on a part of the medium that cannot be read.
    Medium,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Data, Kind::Directory, Kind::Inode, Kind::Attributes, Kind::Metadata, Kind::Medium];

    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Directory => "directory",
            Kind::Inode => "inode",
            Kind::Attributes => "attributes",
            Kind::Metadata => "metadata",
            Kind::Medium => "medium",
        }
    }

    /// Returns the kind of an object by its name in an error.
    fn of(object: &str) -> Kind {
        const STARTS: [(&str, Kind); 9] = [
            ("data ", Kind::Data),
            ("extent", Kind::Data),
            ("dirents ", Kind::Directory),
            ("entry of directory ", Kind::Directory),
            ("directory ", Kind::Directory),
            ("inode ", Kind::Inode),
            ("imap ", Kind::Inode),
            ("attributes ", Kind::Attributes),
            ("attrs ", Kind::Attributes),
        ];
        let known = STARTS.iter().find(|(start, _)| object.starts_with(start));
        known.map_or(Kind::Metadata, |(_, kind)| *kind)
    }
}

/// Damage that a call has met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Met {
    /// Kind of the object.
    pub kind: Kind,
    /// Inode in the object's name, if there is one.
    pub ino: Option<Ino>,
}

impl Met {
    /// Returns the damage that an error tells of, if it does.
    pub(crate) fn of(error: &Error) -> Option<Met> {
        match error {
            Error::Corrupt(it) => Some(Met { kind: Kind::of(&it.object), ino: inode(&it.object) }),
            error if error.is_damage() => Some(Met { kind: Kind::Medium, ino: None }),
            _ => None,
        }
    }
}

/// Returns the inode that the name of an object ends with: `data of inode 17`.
fn inode(object: &str) -> Option<Ino> {
    let (_, number) = object.rsplit_once("inode ")?;
    number.parse().ok().map(Ino)
}

/// A damaged file, as a request has met it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct File {
    /// Kind of the object.
    pub kind: Kind,
    /// The file; for a request about a name, perhaps its directory.
    pub ino: Ino,
    /// Its path from the top of the mount, if that was found.
    pub path: Option<Vec<u8>>,
}

/// Result of a scrub of the whole volume.
#[derive(Clone, Debug)]
pub(crate) struct Scrub {
    /// Its end.
    pub at: SystemTime,
    /// Number of problems.
    pub problems: u64,
    /// The first of them: rule and text, with the path.
    pub first: Vec<(String, String)>,
}

/// Damage met since the mount began.
#[derive(Default)]
pub(crate) struct DamageLog(Mutex<State>);

#[derive(Default)]
struct State {
    counts: [u64; Kind::ALL.len()],
    /// The files met first, since the last scrub that found nothing.
    files: Vec<File>,
    /// Failed reads, and those before the beginning of a scrub that found nothing.
    total: u64,
    outdated: u64,
    /// Scrubs that have not ended, by the thread that asks: their beginnings, the reads that had
    /// failed then, and their problems.
    running: HashMap<u32, (Instant, u64, Scrub)>,
    last: Option<Scrub>,
}

/// A view of the damage.
#[derive(Clone, Default, Debug)]
pub(crate) struct Damage {
    /// Failed reads since the mount began, by kind.
    pub counts: Vec<(Kind, u64)>,
    /// Failed reads since the last scrub that found nothing.
    pub since: u64,
    /// Files that these reads met first.
    pub files: Vec<File>,
    /// The last complete scrub.
    pub scrub: Option<Scrub>,
}

impl DamageLog {
    /// Counts a failed read of a file. `path` is called for one that is not known yet, while there
    /// is room for more. Returns the file then.
    #[cold]
    pub(crate) fn note(
        &self,
        kind: Kind,
        ino: Ino,
        path: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<File> {
        let is_new = {
            let mut state = self.0.lock();
            state.counts[kind as usize] += 1;
            state.total += 1;
            let is_known = state.files.iter().any(|file| file.ino == ino && file.kind == kind);
            !is_known && state.files.len() < FILES_MAX
        };
        // Without the lock: it reads the volume.
        let file = is_new.then(|| File { kind, ino, path: path() })?;
        let mut state = self.0.lock();
        if state.files.len() < FILES_MAX && !state.files.contains(&file) {
            state.files.push(file.clone());
        }
        Some(file)
    }

    /// Records that a thread begins a scrub.
    pub(crate) fn scrub_begins(&self, thread: u32) {
        let mut state = self.0.lock();
        if state.running.len() >= SCRUBS_MAX && !state.running.contains_key(&thread) {
            let oldest = state.running.iter().min_by_key(|(_, (begun, ..))| *begun);
            let oldest = oldest.map(|(thread, _)| *thread);
            oldest.and_then(|thread| state.running.remove(&thread));
        }
        let begun = (Instant::now(), state.total, Scrub::new());
        state.running.insert(thread, begun);
    }

    /// Records the problems of a step of a thread's scrub, with their rules and texts.
    pub(crate) fn scrub_found(&self, thread: u32, problems: &[(String, String)]) {
        let mut state = self.0.lock();
        // One that began before this server, or was replaced, is not counted.
        let Some((.., scrub)) = state.running.get_mut(&thread) else { return };
        for (rule, text) in problems {
            scrub.problems += 1;
            if scrub.first.len() < PROBLEMS_MAX {
                scrub.first.push((rule.clone(), text.clone()));
            }
        }
    }

    /// Records the end of a thread's scrub.
    pub(crate) fn scrub_ends(&self, thread: u32) {
        let mut state = self.0.lock();
        let Some((_, before, scrub)) = state.running.remove(&thread) else { return };
        if scrub.problems == 0 {
            // Reads that have failed meanwhile may be of what it had passed already.
            state.outdated = state.outdated.max(before);
            if state.outdated == state.total {
                state.files.clear();
            }
        }
        state.last = Some(Scrub { at: SystemTime::now(), ..scrub });
    }

    /// Returns the damage of this moment.
    pub(crate) fn view(&self) -> Damage {
        let state = self.0.lock();
        Damage {
            counts: Kind::ALL.iter().map(|kind| (*kind, state.counts[*kind as usize])).collect(),
            since: state.total - state.outdated,
            files: state.files.clone(),
            scrub: state.last.clone(),
        }
    }
}

impl Scrub {
    fn new() -> Scrub {
        Scrub { at: SystemTime::now(), problems: 0, first: Vec::new() }
    }
}

impl Damage {
    /// Returns whether the mount is damaged.
    pub(crate) fn is_there(&self) -> bool {
        self.since > 0 || self.scrub.as_ref().is_some_and(|scrub| scrub.problems > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_kinds() {
        for (object, kind, ino) in [
            ("data of inode 17", Kind::Data, Some(17)),
            ("extents of inode 17", Kind::Data, Some(17)),
            ("dirents node", Kind::Directory, None),
            ("entry of directory 5", Kind::Directory, None),
            ("inode block 3 of subvolume 0", Kind::Inode, None),
            ("inode 9", Kind::Inode, Some(9)),
            ("attributes of inode 9", Kind::Attributes, Some(9)),
            ("attrs node", Kind::Attributes, None),
            ("superblock", Kind::Metadata, None),
        ] {
            let met = Met::of(&Error::corrupt(object, None, "checksum"));
            assert_eq!(met, Some(Met { kind, ino: ino.map(Ino) }), "{object}");
        }
        assert_eq!(Met::of(&shoal::raw::Code::Io.into()), None, "an ordinary outcome");
    }

    #[test]
    fn files_are_kept_once_and_their_number_is_bounded() {
        let log = DamageLog::default();
        assert!(log.note(Kind::Data, Ino(1), || Some(b"/a".to_vec())).is_some());
        assert!(log.note(Kind::Data, Ino(1), || panic!("known")).is_none());
        for ino in 2..100 {
            log.note(Kind::Inode, Ino(ino), || None);
        }
        let damage = log.view();
        assert_eq!(damage.files.len(), FILES_MAX);
        assert_eq!(damage.files[0].path.as_deref(), Some(&b"/a"[..]));
        assert_eq!((damage.counts[0], damage.counts[2]), ((Kind::Data, 2), (Kind::Inode, 98)));
        assert!(damage.is_there() && damage.since == 100);
    }

    #[test]
    fn a_scrub_without_problems_ends_the_state_but_for_reads_during_it() {
        let log = DamageLog::default();
        let read = || log.note(Kind::Data, Ino(1), || None);
        let problems = vec![("rule".to_owned(), "text".to_owned()); 40];
        read();
        // Not complete: it says nothing.
        log.scrub_begins(1);
        assert!(log.view().is_there() && log.view().scrub.is_none());
        log.scrub_begins(2);
        log.scrub_found(2, &problems);
        log.scrub_ends(2);
        let scrub = log.view().scrub.unwrap();
        assert_eq!((scrub.problems, scrub.first.len()), (40, PROBLEMS_MAX));
        log.scrub_begins(3);
        read();
        log.scrub_ends(3);
        assert!(log.view().is_there() && log.view().since == 1, "a read failed meanwhile");
        log.scrub_begins(3);
        log.scrub_ends(3);
        let damage = log.view();
        assert!(!damage.is_there() && damage.files.is_empty() && damage.counts[0].1 == 2);
        // Of a thread whose beginning is not known.
        log.scrub_found(9, &problems);
        log.scrub_ends(9);
        assert!(!log.view().is_there());
    }
}
