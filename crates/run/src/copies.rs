//! Copies of directories: a program that walks through a tree is answered from them.
//!
//! The server copies a directory and what is below it in one answer. A copy holds as long as nobody
//! changes the volume ([`shoal_session::Session::state`]), which is looked at before each answer:
//! so every answer is the one that the server would give at that moment.
//!
//! Copies are taken where they are about to be used: of a directory of which a program asks the
//! attributes of several names in a row, and of those that a program which lists directories opens
//! next. How many at a time depends on how many of the last ones were used.

use crate::kernel::coarse_milliseconds;
use shoal_engine::{Attr, Code, FileKind, Ino, Result};
use shoal_session::copies::{ENTRIES_MAX, ENTRIES_QUICK, behind, entry_at, take_dir};
use shoal_session::wire::Reader;
use shoal_session::{Calls, CopyWish, EntryCopy, Node, Remote, Session};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Entries of all copies, of about 200 bytes each.
const KEPT_MAX: usize = 1 << 17;
/// Entries that are copied for each question after others about names of the same directory.
const EACH: u32 = 256;
/// Entries of a walk that are copied at a time, at first and at most.
const WINDOW: u32 = 256;
const WINDOW_MAX: u32 = ENTRIES_QUICK;
/// Directories, one behind the other, that are copied at a time.
const NAMES: usize = 100;
/// Listings before a program is taken for one that walks through a tree.
const WALKS: u32 = 3;
/// Entries that are copied while a question is answered.
const WORTH: usize = 16;
/// Copies that were not used: then none is taken for some occasions, doubled each time, up to the
/// second one.
const PAUSE: u32 = 8;
const PAUSE_MAX: u32 = 1 << 12;
/// Milliseconds after which copies are dropped. They hold; but times of access change without a new
/// state, and a server that has died has none.
const AGE_MAX: u64 = 1000;
/// Longest name. A longer one is an error, which is the kernel's to give.
const NAME_MAX: usize = libc::NAME_MAX as usize;

/// A path, from a directory.
pub(crate) trait Spot {
    /// Inode number of the directory.
    fn ino(&self) -> u64;
    /// Relative.
    fn path(&self) -> &[u8];
    /// The directory at the server; `None`: it is gone.
    fn node(&self) -> Option<Node>;
}

/// The copies of a session.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Number of the volume's state that the copies are of.
    number: u64,
    /// The time at which the first was taken.
    taken: Option<u64>,
    /// Files that this program has read since: their times of access are asked for.
    read: HashSet<u64, BuildHasherDefault<ByNumber>>,
    dirs: HashMap<u64, Arc<Copy>, BuildHasherDefault<ByNumber>>,
    /// Directories by the one that a path begins at, and the path.
    paths: HashMap<(u64, Vec<u8>), u64>,
    /// The last of them.
    last: (u64, Vec<u8>, u64),
    /// Entries in the copies, and answers from them since they were taken.
    entries: usize,
    takes: usize,
    used: usize,
    /// Entries to copy next on a walk.
    window: u32,
    /// Occasions to let pass, and how many after the next waste.
    pause: u32,
    next_pause: u32,
    /// The directory that the last question about a name was for, and how many there were in a row.
    asked: (u64, Vec<u8>),
    in_row: u32,
    /// Directories that were listed, and the last of them.
    lists: u32,
    listed: u64,
    /// The last directory with too many entries for a copy.
    large: u64,
    /// The program asks for attributes of what it lists, and for extended ones.
    attributes: bool,
    xattrs: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            number: 0,
            taken: None,
            read: HashSet::default(),
            dirs: HashMap::default(),
            paths: HashMap::new(),
            last: (0, Vec::new(), 0),
            entries: 0,
            takes: 0,
            used: 0,
            window: WINDOW,
            pause: 0,
            next_pause: PAUSE,
            asked: (0, Vec::new()),
            in_row: 0,
            lists: 0,
            listed: 0,
            large: 0,
            attributes: false,
            xattrs: false,
        }
    }
}

/// A hash of inode numbers, which the server has given.
#[derive(Debug, Default)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing: the table uses bits of both ends.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A copy of a directory.
#[derive(Debug)]
pub(crate) struct Copy {
    attr: Attr,
    /// Copies as they were sent, with those of other directories.
    bytes: Arc<Vec<u8>>,
    /// Begin of its entries, and of each of them there.
    begin: usize,
    begins: Vec<u32>,
    /// The entries by their names, once they are not asked for in their order.
    sorted: OnceLock<Vec<u32>>,
    /// The entry that was asked for last.
    last: AtomicUsize,
}

impl Copy {
    /// Reads the directories of copies.
    fn all(bytes: &Arc<Vec<u8>>) -> Result<Vec<Copy>> {
        let (mut found, mut from) = (Vec::new(), Reader::new(bytes));
        while !from.is_at_end() {
            let (attr, entries) = take_dir(&mut from)?;
            let (mut begins, mut at) = (Vec::new(), 0);
            while at < entries.len() {
                begins.push(at as u32);
                at = behind(entries, at).ok_or(Code::Invalid)?;
            }
            let begin = entries.as_ptr().addr() - bytes.as_ptr().addr();
            let (sorted, last) = (OnceLock::new(), AtomicUsize::new(0));
            found.push(Copy { attr, bytes: bytes.clone(), begin, begins, sorted, last });
        }
        Ok(found)
    }

    /// The entry at a place.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> Option<EntryCopy<'_>> {
        let begin = *self.begins.get(at)?;
        entry_at(&self.bytes[self.begin..], begin as usize).ok()
    }

    fn find(&self, name: &[u8]) -> Option<EntryCopy<'_>> {
        let last = self.last.load(Ordering::Relaxed);
        for at in [last, last + 1] {
            if let Some(entry) = self.at(at).filter(|entry| entry.name == name) {
                self.last.store(at, Ordering::Relaxed);
                return Some(entry);
            }
        }
        let name_of = |at: &u32| self.at(*at as usize).map_or(&[][..], |entry| entry.name);
        let sorted = self.sorted.get_or_init(|| {
            let mut sorted: Vec<u32> = (0..self.begins.len() as u32).collect();
            sorted.sort_unstable_by(|one, other| name_of(one).cmp(name_of(other)));
            sorted
        });
        let place = sorted.binary_search_by(|at| name_of(at).cmp(name)).ok()?;
        let at = sorted[place] as usize;
        self.last.store(at, Ordering::Relaxed);
        self.at(at)
    }

    /// The place of the first entry behind a position of a listing.
    pub(crate) fn behind(&self, cookie: u64) -> usize {
        let is_before = |at: &u32| {
            let entry = entry_at(&self.bytes[self.begin..], *at as usize);
            entry.is_ok_and(|entry| entry.cookie <= cookie)
        };
        if cookie == 0 { 0 } else { self.begins.partition_point(is_before) }
    }
}

/// The directory that a path ends in, and the name; `None`: it is not that simple.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (&[][..], path),
    };
    let end = dir.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let is_plain = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX;
    is_plain.then_some((&dir[..end], name))
}

impl State {
    /// Drops copies that do not hold any more.
    fn refresh(&mut self, remote: &Remote<Session>) -> Option<()> {
        let number = remote.0.state()?;
        if number != self.number {
            self.judge();
            self.clear();
            self.number = number;
        } else if let Some(taken) = self.taken
            && coarse_milliseconds() > taken + AGE_MAX
        {
            self.clear();
        }
        Some(())
    }

    fn clear(&mut self) {
        self.dirs.clear();
        self.paths.clear();
        self.read.clear();
        (self.last.0, self.taken) = (0, None);
        (self.entries, self.takes, self.used) = (0, 0, 0);
    }

    /// The copies hold no longer: were they worth it? Each answer from them saves a question, of
    /// which one is about as long as the copy of [`WORTH`] entries.
    fn judge(&mut self) {
        if self.taken.is_none() {
            return;
        }
        match self.used * WORTH > self.entries + self.takes * WORTH * 2 {
            true => self.next_pause = PAUSE,
            false => self.wasted(),
        }
    }

    /// Copies were taken for nothing.
    fn wasted(&mut self) {
        self.window = (self.window / 2).max(WINDOW);
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
    }

    /// The copy of the directory at a path from another one.
    fn dir(&mut self, from: u64, path: &[u8]) -> Option<&Arc<Copy>> {
        let ino = self.ino_of(from, path)?;
        self.dirs.get(&ino)
    }

    fn ino_of(&mut self, from: u64, path: &[u8]) -> Option<u64> {
        if path.is_empty() {
            return Some(from);
        }
        if self.last.0 == from && self.last.1 == path {
            return Some(self.last.2);
        }
        if self.dirs.is_empty() {
            return None;
        }
        let key = (from, path.to_vec());
        if let Some(ino) = self.paths.get(&key) {
            self.last = (key.0, key.1, *ino);
            return Some(*ino);
        }
        let (above, name) = split(path)?;
        let entry = self.dir(from, above)?.find(name)?;
        let ino = (entry.kind == FileKind::Directory).then_some(entry.ino.0)?;
        self.paths.insert(key, ino);
        Some(ino)
    }

    /// Takes copies of the directory at a path and, for a walk, of what is below it.
    fn take(
        &mut self,
        remote: &Remote<Session>,
        node: Node,
        (from, path): (u64, &[u8]),
        names: &[&[u8]],
        entries: u32,
    ) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let below = self.lists >= WALKS;
        let (attributes, xattrs) = (self.attributes, self.xattrs);
        let mut wish = CopyWish { entries, attributes, xattrs, below };
        let mut bytes = Vec::new();
        let mut copy = |wish: &CopyWish| {
            let copied = remote.copies(remote.0.caller(), node, path, names, wish, &mut bytes);
            copied.map(|state| (state, bytes.is_empty()))
        };
        let mut copied = copy(&wish);
        if below && matches!(copied, Ok((_, true))) {
            // A large directory, alone.
            wish = CopyWish { entries: ENTRIES_MAX, below: false, ..wish };
            copied = copy(&wish);
        }
        if names.is_empty() && path.is_empty() && matches!(copied, Ok((_, true))) {
            self.large = from;
        }
        let (Ok((state, false)), Ok(dirs)) = (copied, Copy::all(&Arc::new(bytes))) else { return };
        let Some(number) = state else { return self.wasted() };
        let new: usize = dirs.iter().map(|dir| dir.begins.len() + 1).sum();
        if number != self.number || self.entries + new > KEPT_MAX {
            self.clear();
            self.number = number;
        }
        if below && self.used >= self.entries / 4 {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        if let Some(top) = dirs.first().filter(|_| !path.is_empty() && names.is_empty()) {
            self.paths.insert((from, path.to_vec()), top.attr.ino.0);
        }
        self.entries += new;
        self.takes += 1;
        self.taken.get_or_insert_with(coarse_milliseconds);
        for dir in dirs {
            self.dirs.insert(dir.attr.ino.0, Arc::new(dir));
        }
    }

    /// Notes a question about a name in a directory without a copy; returns how many entries are
    /// worth to be copied now, if any.
    fn ask(&mut self, from: u64, dir: &[u8]) -> Option<u32> {
        if self.asked.0 == from && self.asked.1 == dir {
            self.in_row += 1;
        } else {
            self.asked.0 = from;
            self.asked.1.clear();
            self.asked.1.extend_from_slice(dir);
            self.in_row = 1;
        }
        if dir.is_empty() && self.listed == from && self.large != from {
            self.attributes = true;
            return Some(ENTRIES_MAX);
        }
        (self.in_row > 1 && self.in_row.is_power_of_two()).then(|| EACH.saturating_mul(self.in_row))
    }
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for a name at a place, and calls with its entry, `None` if there is no such name;
    /// `None`: there is no copy, or the entry has not what is asked for.
    fn look<T>(
        &self,
        place: &impl Spot,
        remote: &Remote<Session>,
        call: impl Fn(Option<&EntryCopy<'_>>) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state();
        state.refresh(remote)?;
        let (dir, name) = split(place.path())?;
        for is_new in [false, true] {
            if let Some(copy) = state.dir(place.ino(), dir).cloned() {
                let entry = copy.find(name);
                if entry.as_ref().is_some_and(|entry| state.read.contains(&entry.ino.0)) {
                    return None;
                }
                let called = call(entry.as_ref());
                if called.is_some() || is_new {
                    state.used += 1;
                    return called;
                }
            }
            if is_new {
                break;
            }
            let entries = state.ask(place.ino(), dir)?;
            state.attributes = true;
            state.take(remote, place.node()?, (place.ino(), dir), &[], entries);
            state.refresh(remote)?;
        }
        None
    }

    /// The attributes of what a path leads to, `None` inside if there is nothing; `None`: the
    /// server is to be asked.
    pub(crate) fn find(
        &self,
        place: &impl Spot,
        remote: &Remote<Session>,
        follow: bool,
    ) -> Option<Option<Attr>> {
        let found = self.look(place, remote, |entry| match entry {
            None => Some(None),
            Some(entry) => entry.attr().map(Some),
        });
        found.filter(|found| !follow || found.is_none_or(|attr| attr.kind != FileKind::Symlink))
    }

    /// Returns whether what a path leads to is a file or a directory without extended attributes.
    pub(crate) fn has_no_xattrs(&self, place: &impl Spot, remote: &Remote<Session>) -> bool {
        let found = self.look(place, remote, |entry| {
            let entry = entry?;
            let is_plain = matches!(entry.kind, FileKind::Regular | FileKind::Directory);
            Some(is_plain && entry.has_no_xattrs)
        });
        let mut state = self.state();
        if !state.xattrs {
            // From now on they are copied too.
            state.xattrs = true;
            state.clear();
        }
        found.unwrap_or(false)
    }

    /// The attributes of the directory that a path leads to, if there is a copy of it: so the
    /// caller may list it. With the number of the state in which it is there.
    pub(crate) fn open_dir(
        &self,
        place: &impl Spot,
        remote: &Remote<Session>,
    ) -> Option<(Attr, u64)> {
        let mut state = self.state();
        state.refresh(remote)?;
        if *place.path() == *b"." {
            let found = state.dirs.get(&place.ino()).map(|copy| (copy.attr, state.number));
            state.used += usize::from(found.is_some());
            return found;
        }
        let (dir, name) = split(place.path())?;
        let above = state.dir(place.ino(), dir)?.clone();
        let entry = above.find(name)?;
        let ino = entry.ino.0;
        if entry.kind != FileKind::Directory {
            return None;
        }
        if !state.dirs.contains_key(&ino) && state.lists >= WALKS {
            // The walk has come to the end of what was copied: on with this one and those behind.
            let is_next = |next: &EntryCopy<'_>| {
                next.kind == FileKind::Directory && !state.dirs.contains_key(&next.ino.0)
            };
            let behind = (above.behind(entry.cookie)..).map_while(|at| above.at(at));
            let behind = behind.filter(is_next).take(NAMES);
            let names: Vec<&[u8]> =
                std::iter::once(name).chain(behind.map(|next| next.name)).collect();
            let window = state.window;
            state.take(remote, place.node()?, (place.ino(), dir), &names, window);
            state.refresh(remote)?;
        }
        let found = state.dirs.get(&ino).map(|copy| (copy.attr, state.number));
        state.used += usize::from(found.is_some());
        found
    }

    /// The copy of a directory that is open and about to be listed: from its begin, or from a place
    /// in it.
    pub(crate) fn list(
        &self,
        remote: &Remote<Session>,
        node: impl FnOnce() -> Option<Node>,
        ino: u64,
        from_begin: bool,
    ) -> Option<Arc<Copy>> {
        let mut state = self.state();
        if from_begin {
            state.lists = state.lists.saturating_add(1);
            state.listed = ino;
        }
        state.refresh(remote)?;
        if !state.dirs.contains_key(&ino) && from_begin && state.large != ino {
            let walks = state.lists >= WALKS;
            if !walks && !state.attributes {
                return None;
            }
            let entries = if walks { state.window } else { ENTRIES_MAX };
            state.take(remote, node()?, (ino, b""), &[], entries);
            state.refresh(remote)?;
        }
        let found = state.dirs.get(&ino).cloned();
        state.used += usize::from(found.is_some());
        found
    }

    /// The number of the volume's state, if it is raised by the next change.
    pub(crate) fn number(&self, remote: &Remote<Session>) -> Option<u64> {
        let mut state = self.state();
        state.refresh(remote)?;
        state.taken.is_some().then_some(state.number)
    }

    /// Returns whether attributes of a file that were read in a state are those that it has.
    pub(crate) fn holds(&self, remote: &Remote<Session>, number: u64, ino: u64) -> bool {
        self.number(remote) == Some(number) && !self.state().read.contains(&ino)
    }

    /// This program has read a file.
    pub(crate) fn read(&self, ino: u64) {
        let mut state = self.state();
        if state.taken.is_some() {
            state.read.insert(ino);
        }
    }

    /// Inode number of the directory at a path from another one, if it is known.
    pub(crate) fn ino_of(&self, remote: &Remote<Session>, from: u64, path: &[u8]) -> Option<u64> {
        let mut state = self.state();
        state.refresh(remote)?;
        state.ino_of(from, path)
    }

    /// The attributes of a directory that is open.
    pub(crate) fn attr(&self, remote: &Remote<Session>, ino: Ino) -> Option<Attr> {
        let mut state = self.state();
        state.refresh(remote)?;
        let found = state.dirs.get(&ino.0).map(|copy| copy.attr);
        state.used += usize::from(found.is_some());
        found
    }
}
