//! A filesystem's whole visible state as data: what a walk over the volume finds, what the model
//! says, and the difference between the two in words.

use super::digest::{entry_hash, node_hash};
pub use super::node_state::NodeState;
use super::{Body, Content, Model, Name, Node, Times, Xattrs, xattr_hash};
use crate::text::elided;
use shoal::raw::{Attr, FileKind, Generation, Ino};
use std::collections::BTreeMap;

impl Node {
    /// The node as data.
    pub fn state(&self, ino: Ino) -> NodeState {
        NodeState {
            ino,
            generation: self.generation,
            mode: self.mode(),
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size(),
            content: match &self.body {
                Body::File(content) => content.hash(),
                _ => 0,
            },
            xattrs: xattr_hash(&self.xattrs),
            target: match &self.body {
                Body::Link(target) => target.clone(),
                _ => Vec::new(),
            },
            times: self.times,
        }
    }
}

/// Everything that can be reached from a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Top directory.
    pub root: Ino,
    /// Inodes.
    pub nodes: BTreeMap<Ino, NodeState>,
    /// Entries: (directory, name) → child.
    pub entries: BTreeMap<(Ino, Name), Ino>,
}

impl State {
    /// The number that `Model::digest` maintains.
    pub fn digest(&self) -> u64 {
        let nodes = self.nodes.values().map(node_hash);
        let entries =
            self.entries.iter().map(|((dir, name), child)| entry_hash(*dir, name, *child));
        nodes.chain(entries).fold(0, u64::wrapping_add)
    }

    /// The same, with the change times of these inodes left out.
    pub fn digest_without_ctimes(&self, of: &[Ino]) -> u64 {
        let nodes = of.iter().filter_map(|ino| self.nodes.get(ino));
        nodes.fold(self.digest(), |digest, node| {
            digest.wrapping_sub(node_hash(node)).wrapping_add(node_hash(&node.without_ctime()))
        })
    }

    /// The same, with all change times left out.
    pub fn digest_without_any_ctime(&self) -> u64 {
        self.digest_without_ctimes(&self.nodes.keys().copied().collect::<Vec<_>>())
    }

    /// Returns the part that can be reached from `dir`.
    pub fn below(&self, dir: Ino) -> State {
        let mut state = State { root: dir, ..State::default() };
        let mut queue = vec![dir];
        while let Some(ino) = queue.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            if state.nodes.insert(ino, node.clone()).is_some() {
                continue;
            }
            for ((_, name), child) in self.entries_of(ino) {
                state.entries.insert((ino, name.clone()), *child);
                queue.push(*child);
            }
        }
        state
    }

    fn entries_of(&self, dir: Ino) -> impl Iterator<Item = (&(Ino, Name), &Ino)> {
        self.entries.range((dir, Name::new())..).take_while(move |((d, _), _)| *d == dir)
    }

    /// Every inode's first path, for messages.
    pub fn paths(&self) -> BTreeMap<Ino, String> {
        let mut paths = BTreeMap::from([(self.root, "/".to_string())]);
        let mut queue = vec![self.root];
        while let Some(dir) = queue.pop() {
            let prefix = paths[&dir].trim_end_matches('/').to_string();
            for ((_, name), child) in self.entries_of(dir) {
                if !paths.contains_key(child) {
                    paths.insert(*child, format!("{prefix}/{}", elided(name)));
                    queue.push(*child);
                }
            }
        }
        paths
    }
}

impl Model {
    /// [`State::digest_without_ctimes`] of the visible state.
    pub(crate) fn digest_without_ctimes(&self, of: &[Ino]) -> u64 {
        let nodes = of.iter().filter_map(|ino| Some(self.node(*ino)?.state(*ino)));
        nodes.fold(self.digest(), |digest, node| {
            digest.wrapping_sub(node_hash(&node)).wrapping_add(node_hash(&node.without_ctime()))
        })
    }

    /// The model's visible state.
    pub fn state(&self) -> State {
        let mut state = State { root: self.root, ..State::default() };
        for (ino, node) in self.nodes.iter().filter(|(_, n)| n.nlink > 0) {
            state.nodes.insert(*ino, node.state(*ino));
            if let Body::Dir(entries) = &node.body {
                let entries = entries.iter().map(|(name, child)| ((*ino, name.clone()), *child));
                state.entries.extend(entries);
            }
        }
        state
    }
}

/// Returns the differences between the expected state and the one found, at most `limit` lines.
pub fn diff(expected: &State, found: &State, limit: usize) -> Vec<String> {
    let (expected_paths, found_paths) = (expected.paths(), found.paths());
    let name_of = |ino: &Ino| {
        let path = expected_paths.get(ino).or_else(|| found_paths.get(ino));
        format!("{} (inode {ino})", path.map_or("?", String::as_str))
    };
    let mut lines = Vec::new();
    for ((dir, name), child) in &expected.entries {
        let at = format!("{}/{}", name_of(dir), elided(name));
        match found.entries.get(&(*dir, name.clone())) {
            None => lines.push(format!("entry missing: {at} -> inode {child}")),
            Some(other) if other != child => {
                lines.push(format!("entry {at}: inode {other} instead of {child}"));
            }
            Some(_) => {}
        }
    }
    for ((dir, name), child) in &found.entries {
        if !expected.entries.contains_key(&(*dir, name.clone())) {
            let at = format!("{}/{}", name_of(dir), elided(name));
            lines.push(format!("entry too many: {at} -> inode {child}"));
        }
    }
    for (ino, node) in &expected.nodes {
        match found.nodes.get(ino) {
            None => lines.push(format!("inode missing: {}", name_of(ino))),
            Some(other) => lines.extend(
                differing_fields(node, other).map(|field| format!("{}: {field}", name_of(ino))),
            ),
        }
    }
    let extra = found.nodes.keys().filter(|ino| !expected.nodes.contains_key(ino));
    lines.extend(extra.map(|ino| format!("inode too many: {}", name_of(ino))));
    lines.truncate(limit);
    lines
}

fn differing_fields(a: &NodeState, b: &NodeState) -> impl Iterator<Item = String> {
    let number = |name: &'static str, a: u64, b: u64| {
        (a != b).then(|| format!("{name} {b:#x} instead of {a:#x}"))
    };
    let mut fields = vec![
        number("generation", u64::from(a.generation.0), u64::from(b.generation.0)),
        number("mode", u64::from(a.mode), u64::from(b.mode)),
        number("nlink", u64::from(a.nlink), u64::from(b.nlink)),
        number("uid", u64::from(a.uid), u64::from(b.uid)),
        number("gid", u64::from(a.gid), u64::from(b.gid)),
        number("rdev", u64::from(a.rdev), u64::from(b.rdev)),
        number("size", a.size, b.size),
        number("content hash", a.content, b.content),
        number("attributes", a.xattrs, b.xattrs),
        (a.target != b.target).then(|| "another symlink target".to_string()),
    ];
    if a.times != b.times {
        fields.push(Some(format!("times {:?} instead of {:?}", b.times, a.times)));
    }
    fields.into_iter().flatten()
}

/// An inode as the volume shows it, with the hashes of its contents and attributes and its target.
pub fn seen(
    attr: &Attr,
    content: u64,
    xattrs: u64,
    target: Vec<u8>,
    with_times: bool,
) -> NodeState {
    NodeState {
        ino: attr.ino,
        generation: attr.generation,
        mode: attr.mode,
        // How many links a directory shows is a convention; that it has one name is checked apart.
        nlink: if attr.kind == FileKind::Directory { attr.nlink.min(1) } else { attr.nlink },
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        content,
        xattrs,
        target,
        times: with_times.then(|| Times::of(attr)),
    }
}

/// Compares what `stat` shows with what it must show; times and contents are compared elsewhere.
pub fn same_attr(expected: &NodeState, attr: &Attr) -> Result<(), String> {
    let mut found = seen(attr, expected.content, expected.xattrs, expected.target.clone(), false);
    if FileKind::from_mode(attr.mode) != Some(attr.kind) {
        return Err(format!("inode {}: kind {:?} but mode {:#o}", attr.ino, attr.kind, attr.mode));
    }
    let mut expected = expected.clone();
    expected.times = None;
    if expected.generation == Generation(0) {
        // Not known yet: the inode was born in this very step.
        found.generation = Generation(0);
    }
    let fields: Vec<String> = differing_fields(&expected, &found).collect();
    if fields.is_empty() && expected.ino == attr.ino {
        return Ok(());
    }
    Err(format!("attributes of inode {}: {}", attr.ino, fields.join(", ")))
}

impl Model {
    /// Takes the identity and times of an inode from the volume, unquestioned.
    pub(crate) fn adopt(&mut self, ino: Ino, attr: &Attr) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.generation = attr.generation;
            node.times = Some(Times::of(attr));
        }
        self.reckon(ino);
    }

    /// The same from what a walk saw; without times if the walk was.
    pub fn adopt_seen(&mut self, seen: &NodeState) {
        if let Some(node) = self.nodes.get_mut(&seen.ino) {
            (node.generation, node.times) = (seen.generation, seen.times);
        }
        self.reckon(seen.ino);
    }

    /// The model of a state that was found on a volume: nothing is held.
    pub(crate) fn from_state(
        state: &State,
        contents: &BTreeMap<Ino, Content>,
        xattrs: &BTreeMap<Ino, Xattrs>,
    ) -> Model {
        let mut model = Model::new(state.root, 0, 0, 0);
        for (ino, seen) in &state.nodes {
            let kind = FileKind::from_mode(seen.mode).expect("a walk yields proper modes");
            let body = match kind {
                FileKind::Directory => Body::Dir(BTreeMap::new()),
                FileKind::Regular => Body::File(contents.get(ino).cloned().unwrap_or_default()),
                FileKind::Symlink => Body::Link(seen.target.clone()),
                _ => Body::Special,
            };
            let node = Node {
                generation: seen.generation,
                kind,
                perm: seen.mode & 0o7777,
                nlink: seen.nlink,
                uid: seen.uid,
                gid: seen.gid,
                rdev: seen.rdev,
                body,
                xattrs: xattrs.get(ino).cloned().unwrap_or_default(),
                times: seen.times,
                held: 0,
                parent: state.root,
                linkable: false,
            };
            model.nodes.insert(*ino, node);
            model.next_ino = model.next_ino.max(ino.0 + 1);
        }
        for ((dir, name), child) in &state.entries {
            model.insert(*dir, name, *child);
            model.nodes.get_mut(child).expect("a walk visits every child").parent = *dir;
        }
        model.begin();
        for ino in state.nodes.keys() {
            model.reckon(*ino);
        }
        model
    }
}
