//! The sequential meaning of the calls: a namespace of a few nodes, small enough to be copied at
//! each step of the search.
//!
//! Nodes have fixed places: those that the callers have handles of come first, then one place for
//! each call of the history, for what it makes. So two orders of the same calls that lead to the
//! same namespace lead to the same value, and the search need not go on from both.

use super::call::{At, Call, Content, DIRS, Flavour, HANDLES, Kind, Mode, NAMES, Reply, Seen};
use shoal::Code;

/// A place; 0 is nobody, place `n` is `nodes[n - 1]`.
type Place = u8;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Node {
    dir: bool,
    /// Names of a file; a directory: 1 while it has its own, whatever `stat` shows.
    links: u8,
    /// Names in trees that were removed: they go when nobody sees it.
    fading: u8,
    entries: [Place; NAMES],
    /// A directory's parent; stays when its name goes.
    parent: Place,
    content: Content,
    /// What is known of its number; 0: nothing yet.
    ino: u64,
    age: u32,
}

/// The namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Space {
    nodes: Vec<Node>,
    trees: bool,
}

/// Whether there is a handle of the node.
fn is_held(trees: bool, node: usize) -> bool {
    node < HANDLES && !(trees && (2..DIRS).contains(&node))
}

/// What a call that succeeds says.
enum Said {
    Nothing,
    Node(Place),
    Attrs(Place),
    Content(Place),
}

type Outcome = Result<Said, Code>;

impl Space {
    /// What a history begins with: directories `a` with the file F at x and directory `c` at z, and
    /// `b` with the file G at x and directory `d` at z. With trees, `d` is in `c` at y, and G has
    /// another name there, x. `inos` are the numbers of the handles.
    pub fn new(flavour: Flavour, inos: [u64; HANDLES], calls: usize) -> Space {
        let mut space =
            Space { nodes: vec![Node::default(); HANDLES + calls], trees: flavour.trees };
        for (handle, ino) in inos.into_iter().enumerate() {
            let node = &mut space.nodes[handle];
            (node.dir, node.ino, node.links) = (handle < DIRS, ino, 1);
        }
        let mut enter = |dir: u8, name: u8, place: Place| {
            space.set(At { dir, name }, place);
            space.nodes[usize::from(place) - 1].parent = dir + 1;
        };
        enter(0, 0, 5);
        enter(1, 0, 6);
        enter(0, 2, 3);
        if flavour.trees {
            enter(2, 0, 6);
            enter(2, 1, 4);
            space.nodes[5].links = 2;
        } else {
            enter(1, 2, 4);
        }
        space
    }

    /// Whether this call, made here, may be answered so; if it may, it has been made. `new` is the
    /// number of the call.
    pub fn explains(&mut self, call: &Call, reply: &Reply, new: usize) -> bool {
        if let Some(decided) = self.faded(call, reply) {
            return decided;
        }
        match (self.make(call, new), reply) {
            (Err(code), Reply::Failed(errno)) => code.errno() == *errno,
            (Err(Code::NotFound), Reply::Probed(None)) => true,
            (Ok(Said::Nothing), Reply::Done) => true,
            // Who made it may not have been told its number.
            (Ok(Said::Node(_)), Reply::Done) => matches!(call, Call::Create(_) | Call::Mkdir(_)),
            (Ok(Said::Node(place)), Reply::Found(seen) | Reply::Probed(Some(seen))) => {
                self.is(place, seen)
            }
            (Ok(Said::Attrs(place)), Reply::Attrs { links, entries }) => {
                self.attrs(place) == (*links, *entries)
            }
            (Ok(Said::Content(place)), Reply::Content(Some(content))) => {
                self.node(place).content == *content
            }
            _ => false,
        }
    }

    /// Whether a volume with this namespace shows this after a crash: nobody holds anything any
    /// more, and what had no name, or was in a removed tree, is gone.
    pub fn recovers(&mut self, call: &Call, reply: &Reply) -> bool {
        self.nodes.iter_mut().for_each(|node| node.fading = 0);
        let of = match call {
            Call::Stat(handle) | Call::Read(handle) => *handle,
            Call::Lookup(at) => at.dir,
            _ => unreachable!("not asked for after a crash"),
        };
        match self.nodes[usize::from(of)].links {
            0 => *reply == Reply::Failed(Code::Stale.errno()),
            _ => self.explains(call, reply, 0),
        }
    }

    fn node(&self, place: Place) -> &Node {
        &self.nodes[usize::from(place) - 1]
    }

    fn node_mut(&mut self, place: Place) -> &mut Node {
        &mut self.nodes[usize::from(place) - 1]
    }

    fn get(&self, at: At) -> Place {
        self.nodes[usize::from(at.dir)].entries[usize::from(at.name)]
    }

    fn set(&mut self, at: At, place: Place) {
        self.nodes[usize::from(at.dir)].entries[usize::from(at.name)] = place;
    }

    fn find(&self, at: At) -> Result<Place, Code> {
        match self.get(at) {
            0 => Err(Code::NotFound),
            place => Ok(place),
        }
    }

    fn alive(&self, dir: u8) -> Result<(), Code> {
        match self.nodes[usize::from(dir)].links {
            0 => Err(Code::NotFound),
            _ => Ok(()),
        }
    }

    fn is_empty(&self, place: Place) -> bool {
        self.node(place).entries == [0; NAMES]
    }

    /// Whether what was seen can be this node; what was not known of its number is known then.
    fn is(&mut self, place: Place, seen: &Seen) -> bool {
        // The number of what is held is not given out, with or without a name.
        let held = |at: usize| is_held(self.trees, at);
        let used = |(at, n): (usize, &Node)| (held(at) || n.links > 0) && n.ino == seen.ino;
        let node = self.node(place);
        let new = node.ino == 0;
        if node.dir != (seen.kind == Kind::Dir) || !new && node.ino != seen.ino {
            return false;
        }
        if new && self.nodes.iter().enumerate().any(used) {
            return false;
        }
        let node = self.node_mut(place);
        if node.age != 0 && seen.age != 0 && node.age != seen.age {
            return false;
        }
        node.ino = seen.ino;
        node.age = node.age.max(seen.age);
        true
    }

    fn attrs(&self, place: Place) -> (u32, u64) {
        let node = self.node(place);
        if !node.dir {
            return (u32::from(node.links), 0);
        }
        let entries = node.entries.iter().filter(|place| **place != 0);
        let dirs = entries.clone().filter(|place| self.node(**place).dir).count() as u32;
        let links = if node.links == 0 { 0 } else { 2 + dirs };
        (links, entries.count() as u64)
    }

    /// Calls that notice whether names in a removed tree have gone yet, and what may be answered in
    /// more than one way. `Some`: decided.
    fn faded(&mut self, call: &Call, reply: &Reply) -> Option<bool> {
        match (call, reply) {
            (Call::Stat(handle), Reply::Attrs { links, .. }) => {
                let node = &mut self.nodes[usize::from(*handle)];
                let fading = links.checked_sub(u32::from(node.links));
                if node.fading == 0 || node.dir {
                    return None;
                }
                let possible = fading.filter(|fading| *fading <= u32::from(node.fading));
                node.fading = possible.unwrap_or(0) as u8;
                Some(possible.is_some())
            }
            // Nothing moves into a removed directory. Linux says so first unless it remembers the
            // name, and then that the directory was below what was to move.
            (Call::Rename(_, to, _), Reply::Failed(errno)) if self.alive(to.dir).is_err() => {
                (*errno == Code::NotFound.errno()).then_some(true)
            }
            (Call::Link(handle, at), Reply::Failed(errno)) => {
                let free = self.get(*at) == 0;
                let node = &mut self.nodes[usize::from(*handle)];
                let gone = node.links == 0 && free && *errno == Code::NotFound.errno();
                (node.fading > 0 && gone).then(|| {
                    node.fading = 0;
                    true
                })
            }
            _ => None,
        }
    }

    /// Makes the call.
    fn make(&mut self, call: &Call, new: usize) -> Outcome {
        match *call {
            Call::Create(at) => self.create(at, false, new),
            Call::Mkdir(at) => self.create(at, true, new),
            Call::Unlink(at) => self.remove(at, false),
            Call::Rmdir(at) => self.remove(at, true),
            Call::Rename(from, to, mode) => self.rename(from, to, mode),
            Call::Link(file, at) => self.link(file, at),
            Call::Lookup(at) | Call::Probe(at) => self.find(at).map(Said::Node),
            Call::Stat(handle) => Ok(Said::Attrs(handle + 1)),
            Call::RemoveTree(at) => self.remove_tree(at),
            Call::Write(file, value) => Ok(self.change(file, |content| content.written(value))),
            Call::Cut(file, to_head) => Ok(self.change(file, |content| content.cut(to_head))),
            Call::Read(file) => Ok(Said::Content(file + 1)),
            // One that succeeds is taken apart into probes, and nothing explains one that fails.
            Call::List(dir) => Ok(Said::Attrs(dir + 1)),
        }
    }

    fn create(&mut self, at: At, dir: bool, new: usize) -> Outcome {
        self.alive(at.dir)?;
        if self.get(at) != 0 {
            return Err(Code::Exists);
        }
        let place = (HANDLES + new + 1) as Place;
        *self.node_mut(place) = Node { dir, links: 1, parent: at.dir + 1, ..Node::default() };
        self.set(at, place);
        Ok(Said::Node(place))
    }

    fn remove(&mut self, at: At, want_dir: bool) -> Outcome {
        let place = self.find(at)?;
        match (self.node(place).dir, want_dir) {
            (true, false) => return Err(Code::IsDirectory),
            (false, true) => return Err(Code::NotDirectory),
            (true, true) if !self.is_empty(place) => return Err(Code::NotEmpty),
            _ => {}
        }
        self.set(at, 0);
        self.drop_name(place);
        Ok(Said::Nothing)
    }

    /// One name less. What nobody can see any more leaves its place as if it had never been.
    fn drop_name(&mut self, place: Place) {
        let held = is_held(self.trees, usize::from(place) - 1);
        let node = self.node_mut(place);
        node.links -= 1;
        if node.links == 0 && node.fading == 0 && !held {
            *node = Node::default();
        }
    }

    fn change(&mut self, file: u8, change: impl FnOnce(Content) -> Content) -> Said {
        let node = &mut self.nodes[usize::from(file)];
        node.content = change(node.content);
        Said::Nothing
    }

    fn link(&mut self, file: u8, at: At) -> Outcome {
        self.alive(at.dir)?;
        if self.get(at) != 0 {
            return Err(Code::Exists);
        }
        let node = &mut self.nodes[usize::from(file)];
        if node.links == 0 && node.fading == 0 {
            return Err(Code::NotFound);
        }
        node.links += 1;
        let seen = file + 1;
        self.set(at, seen);
        Ok(Said::Nothing)
    }

    fn rename(&mut self, from: At, to: At, mode: Mode) -> Outcome {
        let source = self.find(from)?;
        let target = self.get(to);
        match (target, mode) {
            (1.., Mode::NoReplace) => return Err(Code::Exists),
            (0, Mode::Exchange) => return Err(Code::NotFound),
            _ => {}
        }
        let across = from.dir != to.dir;
        if across && self.is_above(source, to.dir + 1) {
            return Err(Code::Invalid);
        }
        if across && target != 0 && self.is_above(target, from.dir + 1) {
            return Err(if mode == Mode::Exchange { Code::Invalid } else { Code::NotEmpty });
        }
        if source == target {
            return Ok(Said::Nothing);
        }
        self.alive(to.dir)?;
        if mode == Mode::Exchange {
            self.set(from, target);
            self.node_mut(target).parent = from.dir + 1;
        } else {
            if target != 0 {
                match (self.node(source).dir, self.node(target).dir) {
                    (true, false) => return Err(Code::NotDirectory),
                    (false, true) => return Err(Code::IsDirectory),
                    (true, true) if !self.is_empty(target) => return Err(Code::NotEmpty),
                    _ => {}
                }
                self.drop_name(target);
            }
            self.set(from, 0);
        }
        self.set(to, source);
        if self.node(source).dir {
            self.node_mut(source).parent = to.dir + 1;
        }
        Ok(Said::Nothing)
    }

    /// Whether `above` is `dir` or one of the directories that it is below of.
    fn is_above(&self, above: Place, dir: Place) -> bool {
        let mut at = dir;
        // Not more than there are nodes: a removed directory's parent may be what was moved below
        // it since.
        for _ in 0..self.nodes.len() {
            if at == above {
                return true;
            }
            if at == 0 {
                return false;
            }
            at = self.node(at).parent;
        }
        false
    }

    fn remove_tree(&mut self, at: At) -> Outcome {
        let place = self.find(at)?;
        self.set(at, 0);
        if self.node(place).dir {
            self.fade_below(place);
        }
        self.drop_name(place);
        Ok(Said::Nothing)
    }

    fn fade_below(&mut self, dir: Place) {
        let entries = std::mem::take(&mut self.node_mut(dir).entries);
        for place in entries.into_iter().filter(|place| *place != 0) {
            if self.node(place).dir {
                self.fade_below(place);
            } else {
                self.node_mut(place).fading += 1;
            }
            self.drop_name(place);
        }
    }
}
