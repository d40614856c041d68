//! One operation on the volume and on the model, in lockstep, everything compared: the result, the
//! attributes of every inode that the operation touched, and those times it must not touch.

mod batch;

pub use batch::is_batch_limit;

pub use crate::call::{Answer, list};

use crate::call::{as_setattr, on_volume};
use crate::compare::compare;
use crate::memory::{Refusal, refusing};
use crate::model::{Body, Model, Outcome, State, same_attr};
use crate::op::{Data, Op, SLOTS, Target, Who};
use crate::session::BySession;
use shoal::raw::{Code, Error, Fallocate, FileKind, Handle, Ino, Volume};
use shoal_base::limits::PATH_MAX;
use shoal_session::Session;
use std::sync::Arc;

/// Bytes of each file that are looked at by a session at the end.
const LOOKED_AT: u64 = 256 << 10;

/// How a step ended that was not wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Done, by both, with equal results (which may be errors).
    Done,
    /// A file that the operation names does not exist (any more): nothing happened.
    Skipped,
    /// The volume failed for a reason that the model does not know (no space, the device failed):
    /// the model is as it was before.
    Refused(Error),
}

/// The model beside a volume, and the open files of the run.
#[derive(Clone)]
pub struct Lockstep {
    /// The oracle.
    pub model: Model,
    /// Open files.
    pub slots: [Option<Ino>; SLOTS],
    /// Allocations that the next call is refused.
    pub refusal: Option<Refusal>,
    /// A session that makes the calls on the volume, all that it can.
    pub session: Option<Arc<BySession<Session>>>,
}

impl Lockstep {
    /// The start of a run: the top directory as the volume shows it.
    pub fn new(volume: &Volume, root: Ino) -> Result<Lockstep, String> {
        let attr =
            volume.attributes().getattr(root).map_err(|e| format!("getattr of the top: {e}"))?;
        let mut model = Model::new(root, attr.mode & 0o7777, attr.uid, attr.gid);
        model.begin();
        model.adopt(root, &attr);
        Ok(Lockstep::of(model))
    }

    /// A run that goes on from here, with nothing open.
    pub fn of(model: Model) -> Lockstep {
        Lockstep { model, slots: [None; SLOTS], refusal: None, session: None }
    }

    /// The inode that a target means now.
    pub fn resolve(&self, target: &Target) -> Option<Ino> {
        match target {
            Target::Path(path) => self.model.find(path),
            Target::Slot(slot) => self.slots[*slot],
        }
    }

    /// Inodes of all targets; `None` when one is missing.
    pub fn resolve_all(&self, op: &Op) -> Option<Vec<Ino>> {
        op.targets().into_iter().map(|target| self.resolve(target)).collect()
    }

    /// Runs `op` on both. `Err` says what is wrong with the volume.
    pub fn step(&mut self, volume: &Volume, op: &Op) -> Result<Step, String> {
        self.step_with_answer(volume, op).map(|(step, _)| step)
    }

    /// The same, with the volume's answer if it succeeded: all that a replay needs.
    pub fn step_with_answer(
        &mut self,
        volume: &Volume,
        op: &Op,
    ) -> Result<(Step, Option<Answer>), String> {
        self.model.begin();
        let inos = self.resolve_all(op).filter(|_| self.makes_sense(op));
        let Some(inos) = inos else { return Ok((Step::Skipped, None)) };
        let refusal = self.refusal.take();
        if matches!(op, Op::Batch { .. }) {
            return self.step_batch(volume, op, &inos, refusal);
        }
        let call = || match op {
            Op::Stale { which } => {
                let graves = self.model.graves();
                let (ino, generation) = graves[which % graves.len()];
                let handle = Handle { ino, generation };
                match &self.session {
                    Some(session) => session.by_handle(handle),
                    None => volume.namespace().by_handle(handle).map(|it| Answer::Node(it.ino)),
                }
            }
            Op::Close { slot } => self.call(volume, op, &[self.slots[*slot].expect("checked")]),
            _ => self.call(volume, op, &inos),
        };
        let (found, refused) = refusing(refusal, call);
        if let Err(error) = &found
            && error.is(Code::NoMemory)
            && refused
        {
            return Ok((Step::Refused(error.clone()), None));
        }
        if refused {
            // What is freed behind the call may have had to wait.
            crate::call::wait_for_reaping(volume)?;
        } else if let (Some(asked), Ok(answer)) = (op.writes(), &found)
            && taken(answer) < asked
        {
            rest_has_no_space(volume, op, inos[0], answer)?;
        }
        if let Err(error) = &found
            && is_refusal(error)
        {
            return Ok((Step::Refused(error.clone()), None));
        }
        let answer = found.as_ref().ok().cloned();
        if let Some(Answer::Node(ino)) = &answer
            && makes_inode(op)
            && self.model.node(*ino).is_some()
        {
            return Err(format!("the new inode {ino} is one in use"));
        }
        if let Some(Answer::Node(ino)) = &answer
            && makes_inode(op)
            && self.slots.contains(&Some(*ino))
        {
            return Err(format!("the new inode {ino} has the number of a file still held"));
        }
        let expected = self.on_model(op, &inos, answer.as_ref());
        compare(op, &inos, &self.model, expected, found)?;
        self.look_at_touched(volume)?;
        Ok((Step::Done, answer))
    }

    /// Makes the call that `op` says on the volume: by the session, if there is one and it can.
    fn call(&self, volume: &Volume, op: &Op, inos: &[Ino]) -> Result<Answer, Error> {
        if let Some(session) = &self.session
            && !self.removes_file_as_tree(op, inos)
            && let Some(answer) = session.call(op, &mut None)?
        {
            return Ok(answer);
        }
        on_volume(volume, op, inos, &mut None)
    }

    /// Returns whether the operation removes a file as a tree: the engine does, a session refuses.
    fn removes_file_as_tree(&self, op: &Op, inos: &[Ino]) -> bool {
        let Op::RemoveTree { at, .. } = op else { return false };
        let names = self.model.entries(inos[0]);
        let child = names.ok().and_then(|names| self.model.node(*names.get(&at.name)?));
        child.is_some_and(|child| child.kind != FileKind::Directory)
    }

    /// Runs `op` on the model alone, given what the volume had answered (if it is known). For
    /// replaying a log, and for the question "was this operation done before the crash?".
    pub fn replay(&mut self, op: &Op, answer: Option<&Answer>) -> Option<Outcome<Answer>> {
        self.model.begin();
        let inos = self.resolve_all(op)?;
        if !self.makes_sense(op) {
            return None;
        }
        Some(self.on_model(op, &inos, answer))
    }

    /// The run after `op`, if that is the state which `found` shows: was an operation done whose
    /// result nobody received?
    pub fn after(&self, op: &Op, found: &State) -> Option<Lockstep> {
        let mut run = self.clone();
        let place = match op {
            Op::RootCreate { name, .. } => Some((Ino::ROOT, name.clone())),
            _ => op.makes().and_then(|at| Some((run.resolve(&at.dir)?, at.name.clone()))),
        };
        let made = place.and_then(|place| found.entries.get(&place).copied());
        // What is found there is an older file, whose removal the crash undid.
        if made.is_some_and(|ino| run.model.node(ino).is_some()) {
            return None;
        }
        let made = match op {
            Op::Batch { .. } => run.made_by(op, &found.entries),
            _ => made.map(Answer::Node),
        };
        run.replay(op, made.as_ref())?.ok()?;
        for ino in run.model.touched().map(|(ino, _)| ino).collect::<Vec<_>>() {
            if let Some(seen) = found.nodes.get(&ino) {
                run.model.adopt_seen(seen);
            }
        }
        (run.model.digest() == found.digest()).then_some(run)
    }

    /// `op` was refused memory, perhaps between two of its steps: if the volume shows that the
    /// beginning of the range is done, so it is in the model.
    pub fn adopt_beginning(&mut self, op: &Op, found: &State) {
        let Op::Fallocate { file, offset, len, .. } = op else { return };
        let Some(ino) = self.resolve(file) else { return };
        let Some(seen) = found.nodes.get(&ino) else { return };
        let done = self.model.node(ino).and_then(|node| {
            let Body::File(content) = &node.body else { return None };
            let mut steps = content.zeroed_gradually(*offset, offset.checked_add(*len)?);
            steps.find(|(_, hash)| *hash == seen.content).map(|(done, _)| done)
        });
        let Some(done) = done else { return };
        self.model.begin();
        if done > *offset {
            let hole = self.model.fallocate(ino, Fallocate::PunchHole, *offset, done - offset);
            hole.expect("a hole in a file");
        }
        self.model.settle();
        self.model.adopt_seen(seen);
    }

    /// Asks the session for all that it can see, and compares.
    pub fn look_by_session(&self) -> Result<(), String> {
        let Some(session) = &self.session else { return Ok(()) };
        let mut queue = vec![Vec::new()];
        while let Some(path) = queue.pop() {
            let Some(ino) = self.model.find(&path) else { continue };
            let Some(node) = self.model.node(ino) else { continue };
            let file = Target::Path(path.clone());
            let len = node.size().clamp(1, LOOKED_AT);
            let mut ops = vec![Op::Getattr { file: file.clone() }];
            ops.push(Op::ListXattr { who: Who::Root, file: file.clone() });
            match &node.body {
                Body::Dir(entries) => {
                    let below = |name: &Vec<u8>| match &path[..] {
                        b"" => name.clone(),
                        path => [path, b"/", name].concat(),
                    };
                    queue.extend(entries.keys().map(below).filter(|it| it.len() < PATH_MAX));
                    ops.push(Op::Readdir { dir: file, page: 100 });
                }
                Body::File(_) => ops.push(Op::Read { file, offset: 0, len }),
                Body::Link(_) => ops.push(Op::Readlink { file }),
                Body::Special => {}
            }
            for op in ops {
                let (expected, mut told) = (self.on_model_question(&op, &[ino]), None);
                match session.call(&op, &mut told).transpose() {
                    Some(found) => compare(&op, &[ino], &self.model, expected, found)?,
                    None => return Err(format!("{op}: a session cannot make it")),
                }
                if let Some(attr) = told {
                    same_attr(&node.state(ino), &attr).map_err(|e| format!("{op}: {e}"))?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the slots are as the operation needs them.
    fn makes_sense(&self, op: &Op) -> bool {
        match op {
            Op::Open { slot, .. } | Op::Tmpfile { slot, .. } => self.slots[*slot].is_none(),
            Op::Close { slot } => self.slots[*slot].is_some(),
            Op::Stale { .. } => !self.model.graves().is_empty(),
            // Nobody has anything else as the beginning of paths.
            Op::Batch { start, .. } => {
                self.resolve(start).is_some_and(|ino| self.model.entries(ino).is_ok())
            }
            _ => true,
        }
    }

    /// Asks for the attributes of what the step touched.
    fn look_at_touched(&mut self, volume: &Volume) -> Result<(), String> {
        let touched: Vec<Ino> = self.model.touched().map(|(ino, _)| ino).collect();
        for ino in touched {
            let Some(node) = self.model.node(ino) else { continue };
            let attr = volume
                .attributes()
                .getattr(ino)
                .map_err(|e| format!("getattr of inode {ino}: {e}"))?;
            same_attr(&node.state(ino), &attr)?;
            self.model.learn(ino, &attr)?;
        }
        Ok(())
    }

    fn on_model(&mut self, op: &Op, inos: &[Ino], hint: Option<&Answer>) -> Outcome<Answer> {
        let ino = match hint {
            Some(Answer::Node(ino)) => Some(*ino),
            _ => None,
        };
        let model = &mut self.model;
        let outcome = match op {
            Op::Create { who, at, mode } => {
                model.create(&who.caller(), (inos[0], &at.name), *mode, ino).map(Answer::Node)
            }
            Op::Mkdir { who, at, mode } => {
                model.mkdir(&who.caller(), (inos[0], &at.name), *mode, ino).map(Answer::Node)
            }
            Op::Mknod { who, at, mode, rdev } => {
                let at = (inos[0], &at.name[..]);
                model.mknod(&who.caller(), at, *mode, *rdev, ino).map(Answer::Node)
            }
            Op::Symlink { who, at, target } => {
                model.symlink(&who.caller(), (inos[0], &at.name), target, ino).map(Answer::Node)
            }
            Op::Link { who, at, .. } => {
                let linked = model.link(&who.caller(), inos[0], (inos[1], &at.name));
                linked.map(|()| Answer::Node(inos[0]))
            }
            Op::Unlink { who, at } => unit(model.unlink(&who.caller(), inos[0], &at.name)),
            Op::Rmdir { who, at } => unit(model.rmdir(&who.caller(), inos[0], &at.name)),
            Op::RemoveTree { who, at } => unit(model.remove_tree(&who.caller(), inos[0], &at.name)),
            Op::ChangeTree { who, change, .. } => {
                let changed = model.change_tree(&who.caller(), inos[0], change);
                changed.map(|(inodes, failures)| Answer::Changed(inodes, failures))
            }
            Op::Rename { who, from, to, flags } => {
                let (from, to) = ((inos[0], &from.name[..]), (inos[1], &to.name[..]));
                let ino = ino.filter(|ino| model.node(*ino).is_none());
                let made = model.rename(&who.caller(), from, to, *flags, ino);
                made.map(|made| made.map_or(Answer::Unit, Answer::Node))
            }
            Op::Batch { who, changes, .. } => {
                let numbers: &[_] = match hint {
                    Some(Answer::Made(numbers)) => numbers,
                    _ => &[],
                };
                let done = model.batch(&who.caller(), inos[0], changes, numbers);
                unit(done.map_err(|(_, code)| code))
            }
            Op::Tmpfile { who, mode, slot, .. } => {
                let made = model.tmpfile(&who.caller(), inos[0], *mode, ino);
                self.slots[*slot] = made.ok();
                made.map(Answer::Node)
            }
            Op::Open { slot, .. } => {
                let held = model.hold(inos[0]);
                self.slots[*slot] = held.is_ok().then_some(inos[0]);
                unit(held)
            }
            Op::Close { slot } => {
                model.release(self.slots[*slot].take().expect("checked"));
                Ok(Answer::Unit)
            }
            Op::RootCreate { who, name, mode } => {
                model.root_create(&who.caller(), name, *mode, ino).map(Answer::Node)
            }
            Op::RootDelete { who, name } => unit(model.root_delete(&who.caller(), name)),
            _ => self.on_model_contents(op, inos, hint),
        };
        self.model.settle();
        outcome
    }

    fn on_model_contents(
        &mut self,
        op: &Op,
        inos: &[Ino],
        hint: Option<&Answer>,
    ) -> Outcome<Answer> {
        let model = &mut self.model;
        if let Some((who, set)) = as_setattr(op) {
            return unit(model.setattr(&who, inos[0], &set));
        }
        match op {
            Op::Write { offset, data, kill_priv, .. } => {
                let bytes = taken_of(*data, hint);
                model.write(inos[0], *offset, &bytes, *kill_priv)?;
                Ok(Answer::Number(bytes.len() as u64))
            }
            Op::Append { data, kill_priv, .. } => {
                let bytes = taken_of(*data, hint);
                let at = model.append(inos[0], &bytes, *kill_priv)?;
                Ok(Answer::Appended(at, bytes.len()))
            }
            Op::SetXattr { who, name, data, flags, .. } => {
                unit(model.setxattr(&who.caller(), inos[0], name, &data.bytes(), *flags))
            }
            Op::RemoveXattr { who, name, .. } => {
                unit(model.removexattr(&who.caller(), inos[0], name))
            }
            Op::Fallocate { mode, offset, len, .. } => {
                unit(model.fallocate(inos[0], *mode, *offset, *len))
            }
            Op::CopyRange { from_offset, to_offset, len, .. } => {
                let most = model.copyable(inos[0], *from_offset, inos[1], *to_offset, *len)?;
                // It may copy less than asked, but not nothing.
                let copied = match hint {
                    Some(Answer::Number(n)) if *n <= most && (*n > 0 || most == 0) => *n,
                    _ => most,
                };
                model.copied(inos[0], *from_offset, inos[1], *to_offset, copied);
                Ok(Answer::Number(copied))
            }
            _ => self.on_model_question(op, inos),
        }
    }

    fn on_model_question(&self, op: &Op, inos: &[Ino]) -> Outcome<Answer> {
        let model = &self.model;
        match op {
            Op::Lookup { who, at } => {
                model.lookup(&who.caller(), inos[0], &at.name).map(Answer::Node)
            }
            Op::Getattr { .. } => model.node(inos[0]).map(|_| Answer::Unit).ok_or(Code::Stale),
            Op::GetXattr { who, name, .. } => {
                let value = model.getxattr(&who.caller(), inos[0], name)?;
                Ok(Answer::Bytes(value.to_vec()))
            }
            Op::ListXattr { who, .. } => model.listxattr(&who.caller(), inos[0]).map(Answer::Paths),
            Op::Paths { .. } => {
                model.node(inos[0]).ok_or(Code::Stale)?;
                Ok(Answer::Paths(model.paths_of(inos[0])))
            }
            Op::Access { who, mask, .. } => unit(model.permit(&who.caller(), inos[0], *mask)),
            Op::Resolve { who, start, path, follow } => {
                let kind = model.node(inos[0]).map_or(FileKind::Directory, |node| node.kind);
                let session = self.session.as_ref();
                let found = match session.is_some_and(|session| session.can_hold(start, kind)) {
                    true => model.beneath(&who.caller(), inos[0], path, *follow)?,
                    false => model.resolve(&who.caller(), inos[0], path, *follow)?,
                };
                model.node(found).map(|_| Answer::Node(found)).ok_or(Code::Stale)
            }
            Op::Read { offset, len, .. } => model.read(inos[0], *offset, *len).map(Answer::Bytes),
            Op::Readlink { .. } => {
                model.readlink(inos[0]).map(|target| Answer::Bytes(target.to_vec()))
            }
            Op::Readdir { .. } => {
                let entries = model.entries(inos[0])?;
                Ok(Answer::Names(entries.iter().map(|(n, i)| (n.clone(), *i)).collect()))
            }
            Op::Stale { .. } => Err(Code::Stale),
            // Judged by `compare`, which knows that several answers are right.
            Op::Seek { .. } => Ok(Answer::Unit),
            _ => Ok(Answer::Unit),
        }
    }
}

/// A write took less than all: to who writes on, the volume must say that it is full.
fn rest_has_no_space(volume: &Volume, op: &Op, ino: Ino, answer: &Answer) -> Result<(), String> {
    let (at, data) = match (op, answer) {
        (Op::Write { offset, data, .. }, _) => (*offset, data),
        (Op::Append { data, .. }, Answer::Appended(at, _)) => (*at, data),
        _ => return Ok(()),
    };
    let taken = taken(answer);
    match volume.files().write(ino, at + taken as u64, &data.bytes()[taken..], false) {
        Err(error) if error.is(Code::NoSpace) => Ok(()),
        other => Err(format!("{op}: {taken} bytes written; and the rest: {other:?}")),
    }
}

/// Bytes that a write took.
fn taken(answer: &Answer) -> usize {
    match answer {
        Answer::Number(taken) => usize::try_from(*taken).unwrap_or(usize::MAX),
        Answer::Appended(_, taken) => *taken,
        _ => 0,
    }
}

/// The bytes that a write took, some if it was refused memory on the way; all if its answer is not
/// known.
fn taken_of(data: Data, answer: Option<&Answer>) -> Vec<u8> {
    let mut bytes = data.bytes();
    match answer.map_or(0, taken) {
        0 => {}
        taken => bytes.truncate(taken),
    }
    bytes
}

fn unit(outcome: Outcome<()>) -> Outcome<Answer> {
    outcome.map(|()| Answer::Unit)
}

/// Returns whether a success yields a fresh inode.
fn makes_inode(op: &Op) -> bool {
    op.makes().is_some() || matches!(op, Op::Tmpfile { .. } | Op::RootCreate { .. })
}

/// Failures that the model cannot foresee.
pub fn is_refusal(error: &Error) -> bool {
    let foreseen = matches!(error, Error::Code(code) if *code != Code::NoSpace && *code != Code::Io
        && *code != Code::ReadOnly);
    !foreseen
}

/// A source of operations that looks at the state which they meet.
pub trait Generator {
    /// Draws the next operation; `None` at the end.
    fn draw(&mut self, run: &Lockstep) -> Option<Op>;
}

/// A list of operations.
impl Generator for std::iter::Cloned<std::slice::Iter<'_, Op>> {
    fn draw(&mut self, _: &Lockstep) -> Option<Op> {
        self.next()
    }
}
