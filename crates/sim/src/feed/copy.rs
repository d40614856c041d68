//! Copies of a tree that follow it by the change feed.

use crate::model::{Name, NodeState, State};
use crate::rng::Rng;
use crate::walk::{visit_alone, walk};
use shoal::raw::{Caller, Change, ChangeKind, ChangeMark, ChangedName, FileKind, Ino, Volume};
use std::collections::{BTreeMap, BTreeSet};

crate::counts::counts! {
    /// Counts of runs.
    pub struct FeedReport {
        /// Operations.
        pub steps: u64,
        /// Crashes.
        pub crashes: u64,
        /// Clean closes.
        pub reopened: u64,
        /// Times that a copy was brought up to date and compared.
        pub compared: u64,
        /// Changes that were told.
        pub told: u64,
        /// Removed names that were told.
        pub removed: u64,
        /// Renames that were told.
        pub renamed: u64,
        /// Readings for which all removed names were known.
        pub complete: u64,
    }
}

/// A tree as a reader of the feed knows it.
#[derive(Clone)]
pub(super) struct Copy {
    pub place: Ino,
    mark: Option<ChangeMark>,
    entries: BTreeMap<(Ino, Name), Ino>,
    pub nodes: BTreeMap<Ino, NodeState>,
    /// By path.
    plain: BTreeMap<Vec<u8>, Ino>,
    /// Inodes that operations have touched since the mark.
    pub touched: BTreeSet<Ino>,
}

fn is_dir(change: &Change) -> bool {
    change.file == Some(FileKind::Directory)
}

impl Copy {
    pub(super) fn of(place: Ino) -> Copy {
        Copy {
            place,
            mark: None,
            entries: BTreeMap::new(),
            nodes: BTreeMap::new(),
            plain: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// Brings the copy up to date by the feed, and compares it with the tree.
    pub(super) fn bring_up(
        &mut self,
        volume: &Volume,
        rng: &mut Rng,
        report: &mut FeedReport,
    ) -> Result<(), String> {
        let read = |e| format!("reading the feed: {e}");
        let (feed, who) = (volume.changes(), Caller::root());
        let mut reader = feed.since(&who, self.place, self.mark.as_ref()).map_err(read)?;
        let most = *rng.pick(&[1, 3, 50, 5000]);
        let mut changes: Vec<Change> = Vec::new();
        loop {
            let batch = feed.next(&mut reader, most).map_err(read)?;
            if batch.is_empty() {
                break;
            }
            changes.extend(batch);
        }
        let truth = walk(volume, Ino::ROOT, true)?.state;
        self.check_told(&changes)?;
        self.apply(volume, &changes, reader.has_all_removed())?;
        self.compare(&truth)?;
        let paths = paths_of(&truth, self.place);
        if reader.has_all_removed() {
            self.apply_plainly(&changes, &paths);
            report.complete += 1;
            if self.plain != paths {
                let lines =
                    differences(&self.plain, &paths, |path| path.escape_ascii().to_string());
                return Err(format!("paths differ: {lines}; told: {}", text(&changes)));
            }
        }
        self.plain = paths;
        report.compared += 1;
        report.told += changes.len() as u64;
        let count = |kind| changes.iter().filter(|change| change.kind == kind).count() as u64;
        report.removed += count(ChangeKind::Removed);
        report.renamed += count(ChangeKind::Renamed);
        // Now and then the marks of the same moment by text.
        self.mark = Some(reader.mark().to_string().parse().map_err(read)?);
        self.touched.clear();
        Ok(())
    }

    /// Nothing is told that no operation has touched; nothing twice.
    fn check_told(&self, changes: &[Change]) -> Result<(), String> {
        let mut told = BTreeSet::new();
        for change in changes.iter().filter(|change| change.kind != ChangeKind::Removed) {
            // The top directory has the state of the feed.
            let allowed = self.mark.is_none()
                || change.ino == Ino::ROOT
                || self.touched.contains(&change.ino);
            if !allowed {
                return Err(format!("told though it has not changed: {change:?}"));
            }
            if !change.more && !told.insert(change.ino) {
                return Err(format!("told twice: {change:?}"));
            }
        }
        Ok(())
    }

    fn apply(&mut self, volume: &Volume, changes: &[Change], complete: bool) -> Result<(), String> {
        for change in changes.iter().filter(|change| change.kind == ChangeKind::Removed) {
            let ChangedName { dir, name, .. } = &change.names[0];
            let key = (*dir, name.clone());
            if self.entries.get(&key) == Some(&change.ino) {
                self.entries.remove(&key);
            }
        }
        let there = || changes.iter().filter(|change| change.kind != ChangeKind::Removed);
        let inodes: BTreeSet<Ino> = there().map(|change| change.ino).collect();
        self.entries.retain(|_, child| !inodes.contains(child));
        for change in there() {
            // Its number was another's.
            if self.nodes.get(&change.ino).is_some_and(|was| was.generation != change.generation) {
                self.nodes.remove(&change.ino);
                self.entries.retain(|(dir, _), _| *dir != change.ino);
            }
        }
        let mut whole = Vec::new();
        for change in there() {
            for name in change.names.iter().filter(|name| name.name != b".") {
                self.entries.insert((name.dir, name.name.clone()), change.ino);
            }
            let known = self.nodes.contains_key(&change.ino);
            self.see(volume, change.ino)?;
            // Moved here from outside, or told only as changed: unknown with all that is below.
            let from_outside = change.kind == ChangeKind::Renamed && change.from.is_none();
            if is_dir(change) && change.kind != ChangeKind::Created && (from_outside || !known) {
                whole.push(change.ino);
            } else if is_dir(change) && !complete {
                whole.extend(self.list(volume, change.ino)?);
            }
        }
        while let Some(dir) = whole.pop() {
            self.see(volume, dir)?;
            self.list(volume, dir)?;
            let children: Vec<Ino> = self.children(dir).map(|(_, child)| *child).collect();
            for child in children {
                self.see(volume, child)?;
                let mode = self.nodes.get(&child).map_or(0, |node| node.mode);
                if FileKind::from_mode(mode) == Some(FileKind::Directory) {
                    whole.push(child);
                }
            }
        }
        self.forget_the_lost();
        Ok(())
    }

    fn children(&self, dir: Ino) -> impl Iterator<Item = (&Name, &Ino)> {
        let from = self.entries.range((dir, Name::new())..);
        from.take_while(move |((of, _), _)| *of == dir).map(|((_, name), child)| (name, child))
    }

    /// Lists a directory; returns the unknown inodes in it.
    fn list(&mut self, volume: &Volume, dir: Ino) -> Result<Vec<Ino>, String> {
        let listed = crate::call::list(volume, dir, 100).map_err(|e| format!("list: {e}"))?;
        self.entries.retain(|(of, _), _| *of != dir);
        let mut unknown = Vec::new();
        for (name, child) in listed {
            if child.root() != self.place.root() {
                continue;
            }
            self.entries.insert((dir, name), child);
            if !self.nodes.contains_key(&child) {
                let attr = self.see(volume, child)?;
                if FileKind::from_mode(attr) == Some(FileKind::Directory) {
                    unknown.push(child);
                }
            }
        }
        Ok(unknown)
    }

    fn see(&mut self, volume: &Volume, ino: Ino) -> Result<u32, String> {
        let attr = volume.attributes().getattr(ino).map_err(|e| format!("inode {ino}: {e}"))?;
        let node = visit_alone(volume, &attr)?;
        self.nodes.insert(ino, node);
        Ok(attr.mode)
    }

    /// Drops everything to which no name leads.
    fn forget_the_lost(&mut self) {
        let (mut found, mut stack) = (BTreeSet::from([self.place]), vec![self.place]);
        while let Some(dir) = stack.pop() {
            let children: Vec<Ino> = self.children(dir).map(|(_, child)| *child).collect();
            stack.extend(children.into_iter().filter(|child| found.insert(*child)));
        }
        self.nodes.retain(|ino, _| found.contains(ino));
        self.entries.retain(|(dir, _), _| found.contains(dir));
    }

    /// Compares with the part of the tree that is below the directory.
    fn compare(&self, truth: &State) -> Result<(), String> {
        let (mut nodes, mut entries) = (BTreeMap::new(), BTreeMap::new());
        let mut stack = vec![self.place];
        while let Some(dir) = stack.pop() {
            nodes.extend(truth.nodes.get(&dir).map(|node| (dir, node.clone())));
            for ((of, name), child) in truth.entries.range((dir, Name::new())..) {
                if *of != dir {
                    break;
                }
                if child.root() == dir.root() {
                    entries.insert((dir, name.clone()), *child);
                    stack.push(*child);
                }
            }
        }
        if self.entries != entries {
            let show = |(dir, name): &(Ino, Name)| format!("{dir}/{}", name.escape_ascii());
            return Err(format!("names differ: {}", differences(&self.entries, &entries, show)));
        }
        if self.nodes != nodes {
            return Err(format!(
                "inodes differ: {}",
                differences(&self.nodes, &nodes, Ino::to_string)
            ));
        }
        Ok(())
    }

    /// As a tool does that knows paths alone.
    fn apply_plainly(&mut self, changes: &[Change], paths: &BTreeMap<Vec<u8>, Ino>) {
        let path_of = |name: &ChangedName| if name.name == b"." { Vec::new() } else { name.path() };
        for change in changes {
            let gone = match change.kind {
                ChangeKind::Removed => change.names.first(),
                _ => change.from.as_ref(),
            };
            if let Some(name) = gone {
                let path = path_of(name);
                self.plain.retain(|other, _| !is_below(other, &path));
            }
        }
        for change in changes.iter().filter(|change| change.kind != ChangeKind::Removed) {
            for path in change.names.iter().map(path_of) {
                let below = |other: &Vec<u8>| match change.kind {
                    ChangeKind::Renamed => is_below(other, &path),
                    _ => *other == path,
                };
                let copied = paths.iter().filter(|(other, _)| below(other));
                self.plain.extend(copied.map(|(path, ino)| (path.clone(), *ino)));
            }
        }
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

/// The paths below a directory, in its subvolume; that of itself is empty.
fn paths_of(state: &State, place: Ino) -> BTreeMap<Vec<u8>, Ino> {
    let mut paths = BTreeMap::from([(Vec::new(), place)]);
    let mut stack = vec![(Vec::new(), place)];
    while let Some((path, dir)) = stack.pop() {
        for ((of, name), child) in state.entries.range((dir, Name::new())..) {
            if *of != dir {
                break;
            }
            if child.root() == place.root() {
                let below = match path.is_empty() {
                    true => name.clone(),
                    false => [&path[..], b"/", name].concat(),
                };
                paths.insert(below.clone(), *child);
                stack.push((below, *child));
            }
        }
    }
    paths
}

fn differences<K: Ord, V: PartialEq + std::fmt::Debug>(
    found: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
    show: impl Fn(&K) -> String,
) -> String {
    let keys: BTreeSet<&K> = found.keys().chain(expected.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(key) != expected.get(key));
    let lines = differ.take(5).map(|key| {
        format!("{}: copy {:?}, tree {:?}", show(key), found.get(key), expected.get(key))
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn text(changes: &[Change]) -> String {
    let path = |name: &ChangedName| name.path().escape_ascii().to_string();
    let line = |change: &Change| {
        let names: Vec<String> = change.names.iter().map(path).collect();
        let from = change.from.as_ref().map(path);
        format!("{:?} {} {names:?} from {from:?}", change.kind, change.ino)
    };
    changes.iter().map(line).collect::<Vec<_>>().join(", ")
}
