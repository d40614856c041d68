//! One operation on the volume and on the model, in lockstep, everything compared: the result, the
//! attributes of every inode that the operation touched, and those times it must not touch.

use crate::model::{Model, Outcome, State, same_attr};
use crate::op::{Op, SLOTS, Target};
use shoal::{Attr, Code, Error, Handle, Ino, Seek, SetAttr, Volume};

/// A difference in error codes that is not a mistake: where several errors apply, POSIX leaves open
/// which is returned. The model follows the order of Linux' own checks.
pub struct Allowed {
    /// The operation; "": any.
    pub op: &'static str,
    /// The model's codes.
    pub model: &'static [Code],
    /// The volume's.
    pub volume: Code,
    /// Why both are right.
    pub reason: &'static str,
}

/// All of them.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        op: "",
        model: &[Code::Access, Code::NotFound, Code::NotDirectory, Code::Exists, Code::Invalid],
        volume: Code::NameTooLong,
        reason: "a name that is too long is wrong wherever it stands",
    },
    Allowed {
        op: "mknod",
        model: &[Code::Access, Code::Exists, Code::NotFound, Code::NotDirectory, Code::NameTooLong],
        volume: Code::NotPermitted,
        reason: "devices are root's alone, wherever they are made",
    },
    Allowed {
        op: "link",
        model: &[Code::Access, Code::Exists, Code::NotFound, Code::NotDirectory, Code::NameTooLong],
        volume: Code::NotPermitted,
        reason: "no directory may be linked, wherever to",
    },
    Allowed {
        op: "truncate",
        model: &[Code::IsDirectory, Code::Invalid, Code::Access],
        volume: Code::FileTooBig,
        reason: "a size that no system call can pass",
    },
    Allowed {
        op: "fallocate",
        model: &[Code::IsDirectory, Code::Invalid],
        volume: Code::FileTooBig,
        reason: "a range that no file can have",
    },
    Allowed {
        op: "rename",
        model: &[Code::Access],
        volume: Code::NotFound,
        reason: "the source is looked up before the target's directory is searched",
    },
    Allowed {
        op: "rename",
        model: &[Code::Access],
        volume: Code::NotDirectory,
        reason: "the target's directory is not one, the source's may not be searched",
    },
    Allowed {
        op: "rename",
        model: &[
            Code::Invalid,
            Code::NotFound,
            Code::Exists,
            Code::NotEmpty,
            Code::NotPermitted,
            Code::NotDirectory,
            Code::IsDirectory,
        ],
        volume: Code::Access,
        reason: "a directory that may not be changed is no place to look for other mistakes",
    },
    Allowed { op: "link", model: &[Code::Exists], volume: Code::Access, reason: "the same" },
    Allowed {
        op: "unlink",
        model: &[Code::NotPermitted],
        volume: Code::IsDirectory,
        reason: "a directory cannot be unlinked, whosever it is",
    },
    Allowed {
        op: "rmdir",
        model: &[Code::NotPermitted],
        volume: Code::NotDirectory,
        reason: "the same, the other way round",
    },
    Allowed {
        op: "fallocate",
        model: &[Code::Invalid],
        volume: Code::NoDevice,
        reason: "ENODEV is what Linux says of pipes and links; ENXIO is as near as codes go",
    },
];

fn is_allowed(op: &Op, model: Code, volume: Code) -> bool {
    let fits = |row: &Allowed| row.op.is_empty() || row.op == op.name();
    ALLOWED.iter().any(|row| fits(row) && row.model.contains(&model) && row.volume == volume)
}

/// What an operation yields when it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing.
    Unit,
    /// An inode.
    Node(Ino),
    /// A number: bytes written or copied, an offset.
    Number(u64),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// A directory's entries with their inodes, "." and ".." left out, sorted.
    Names(Vec<(Vec<u8>, Ino)>),
}

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
}

/// Names `who` acts as, for setattr on single fields.
fn only(set: impl FnOnce(&mut SetAttr)) -> SetAttr {
    let mut all = SetAttr::default();
    set(&mut all);
    all
}

impl Lockstep {
    /// The start of a run: the top directory as the volume shows it.
    pub fn new(volume: &Volume, root: Ino) -> Result<Lockstep, String> {
        let attr = volume.getattr(root).map_err(|e| format!("getattr of the top: {e}"))?;
        let mut model = Model::new(root, attr.mode & 0o7777, attr.uid, attr.gid);
        model.begin();
        model.adopt(root, &attr);
        Ok(Lockstep { model, slots: [None; SLOTS] })
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
        let found = on_volume(volume, op, &inos, &self.slots, &self.model);
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
        let expected = self.on_model(op, &inos, answer.as_ref());
        compare(op, &inos, &self.model, expected, found)?;
        self.look_at_touched(volume)?;
        Ok((Step::Done, answer))
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
        let made = op.makes().and_then(|place| {
            let dir = run.resolve(&place.dir)?;
            found.entries.get(&(dir, place.name.clone())).copied().map(Answer::Node)
        });
        run.replay(op, made.as_ref())?.ok()?;
        for ino in run.model.touched().map(|(ino, _)| ino).collect::<Vec<_>>() {
            if let Some(seen) = found.nodes.get(&ino) {
                run.model.adopt_seen(seen);
            }
        }
        (run.model.digest() == found.digest()).then_some(run)
    }

    /// Whether the slots are as the operation needs them.
    fn makes_sense(&self, op: &Op) -> bool {
        match op {
            Op::Open { slot, .. } | Op::Tmpfile { slot, .. } => self.slots[*slot].is_none(),
            Op::Close { slot } => self.slots[*slot].is_some(),
            Op::Stale { .. } => !self.model.graves().is_empty(),
            _ => true,
        }
    }

    /// Asks for the attributes of what the step touched.
    fn look_at_touched(&mut self, volume: &Volume) -> Result<(), String> {
        let touched: Vec<Ino> = self.model.touched().map(|(ino, _)| ino).collect();
        for ino in touched {
            let Some(node) = self.model.node(ino) else { continue };
            let attr = volume.getattr(ino).map_err(|e| format!("getattr of inode {ino}: {e}"))?;
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
            Op::Rename { who, from, to, flags } => {
                let (from, to) = ((inos[0], &from.name[..]), (inos[1], &to.name[..]));
                unit(model.rename(&who.caller(), from, to, *flags))
            }
            Op::Tmpfile { who, mode, slot, .. } => {
                let made = model.tmpfile(&who.caller(), inos[0], *mode, ino);
                self.slots[*slot] = made.ok();
                made.map(Answer::Node)
            }
            Op::Open { slot, .. } => {
                self.slots[*slot] = Some(inos[0]);
                unit(model.hold(inos[0]))
            }
            Op::Close { slot } => {
                model.release(self.slots[*slot].take().expect("checked"));
                Ok(Answer::Unit)
            }
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
                let bytes = data.bytes();
                model.write(inos[0], *offset, &bytes, *kill_priv)?;
                Ok(Answer::Number(bytes.len() as u64))
            }
            Op::Append { data, kill_priv, .. } => {
                model.append(inos[0], &data.bytes(), *kill_priv).map(Answer::Number)
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
            Op::Getattr { .. } => Ok(Answer::Unit),
            Op::Access { who, mask, .. } => unit(model.permit(&who.caller(), inos[0], *mask)),
            Op::Resolve { who, path, follow, .. } => {
                model.resolve(&who.caller(), inos[0], path, *follow).map(Answer::Node)
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

fn unit(outcome: Outcome<()>) -> Outcome<Answer> {
    outcome.map(|()| Answer::Unit)
}

/// Whether a success yields a fresh inode.
fn makes_inode(op: &Op) -> bool {
    op.makes().is_some() || matches!(op, Op::Tmpfile { .. })
}

/// Failures that the model cannot foresee.
pub fn is_refusal(error: &Error) -> bool {
    let foreseen = matches!(error, Error::Code(code) if *code != Code::NoSpace && *code != Code::Io
        && *code != Code::ReadOnly);
    !foreseen
}

/// The attribute changes as one call.
fn as_setattr(op: &Op) -> Option<(shoal::Caller, SetAttr)> {
    let (who, set) = match op {
        Op::Chmod { who, mode, .. } => (who, only(|set| set.mode = Some(*mode))),
        Op::Chown { who, uid, gid, .. } => (who, only(|set| (set.uid, set.gid) = (*uid, *gid))),
        Op::Utimes { who, atime, mtime, .. } => {
            (who, only(|set| (set.atime, set.mtime) = (*atime, *mtime)))
        }
        Op::Truncate { who, size, by_handle, .. } => {
            (who, only(|set| (set.size, set.by_handle) = (Some(*size), *by_handle)))
        }
        _ => return None,
    };
    Some((who.caller(), set))
}

/// Runs `op` on the volume.
fn on_volume(
    volume: &Volume,
    op: &Op,
    inos: &[Ino],
    slots: &[Option<Ino>; SLOTS],
    model: &Model,
) -> Result<Answer, Error> {
    let node = |attr: Attr| Answer::Node(attr.ino);
    match op {
        Op::Create { who, at, mode } => {
            volume.create(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mkdir { who, at, mode } => {
            volume.mkdir(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mknod { who, at, mode, rdev } => {
            volume.mknod(&who.caller(), inos[0], &at.name, *mode, *rdev).map(node)
        }
        Op::Symlink { who, at, target } => {
            volume.symlink(&who.caller(), inos[0], &at.name, target).map(node)
        }
        Op::Link { who, at, .. } => {
            volume.link(&who.caller(), inos[0], inos[1], &at.name).map(node)
        }
        Op::Unlink { who, at } => done(volume.unlink(&who.caller(), inos[0], &at.name)),
        Op::Rmdir { who, at } => done(volume.rmdir(&who.caller(), inos[0], &at.name)),
        Op::Rename { who, from, to, flags } => {
            let (from, to) = (&from.name, &to.name);
            done(volume.rename(&who.caller(), inos[0], from, inos[1], to, *flags))
        }
        Op::Tmpfile { who, mode, .. } => volume.tmpfile(&who.caller(), inos[0], *mode).map(node),
        Op::Open { .. } => done(volume.hold(inos[0], 1)),
        Op::Close { slot } => {
            volume.release(slots[*slot].expect("checked"), 1);
            Ok(Answer::Unit)
        }
        Op::Lookup { who, at } => volume.lookup(&who.caller(), inos[0], &at.name).map(node),
        Op::Getattr { .. } => done(volume.getattr(inos[0]).map(|_| ())),
        Op::Access { who, mask, .. } => done(volume.access(&who.caller(), inos[0], *mask)),
        Op::Resolve { who, path, follow, .. } => {
            volume.resolve(&who.caller(), inos[0], path, *follow).map(node)
        }
        Op::Readdir { page, .. } => list(volume, inos[0], *page).map(Answer::Names),
        Op::Stale { which } => {
            let graves = model.graves();
            let (ino, generation) = graves[which % graves.len()];
            volume.by_handle(Handle { ino, generation }).map(node)
        }
        _ => on_volume_contents(volume, op, inos),
    }
}

fn on_volume_contents(volume: &Volume, op: &Op, inos: &[Ino]) -> Result<Answer, Error> {
    if let Some((who, set)) = as_setattr(op) {
        return done(volume.setattr(&who, inos[0], &set).map(|_| ()));
    }
    let number = |n: usize| Answer::Number(n as u64);
    match op {
        Op::Write { offset, data, kill_priv, .. } => {
            volume.write(inos[0], *offset, &data.bytes(), *kill_priv).map(number)
        }
        Op::Append { data, kill_priv, .. } => {
            volume.append(inos[0], &data.bytes(), *kill_priv).map(Answer::Number)
        }
        Op::Fallocate { mode, offset, len, .. } => {
            done(volume.fallocate(inos[0], *mode, *offset, *len))
        }
        Op::CopyRange { from_offset, to_offset, len, .. } => {
            let (from, to) = (inos[0], inos[1]);
            volume.copy_range(from, *from_offset, to, *to_offset, *len).map(Answer::Number)
        }
        Op::Read { offset, len, .. } => {
            let mut buf = vec![0xA5; *len as usize];
            let n = volume.read(inos[0], *offset, &mut buf)?;
            buf.truncate(n);
            Ok(Answer::Bytes(buf))
        }
        Op::Readlink { .. } => volume.readlink(inos[0]).map(Answer::Bytes),
        Op::Seek { offset, what, .. } => volume.seek(inos[0], *offset, *what).map(Answer::Number),
        _ => Ok(Answer::Unit),
    }
}

fn done(result: shoal::Result<()>) -> Result<Answer, Error> {
    result.map(|()| Answer::Unit)
}

/// Lists a directory in pages of `page` entries, resuming by cookie, without the dots.
pub fn list(volume: &Volume, dir: Ino, page: usize) -> Result<Vec<(Vec<u8>, Ino)>, Error> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        volume.readdir(dir, cookie, &mut |entry| {
            if taken == page.max(1) {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.ino));
            }
            true
        })?;
        if taken < page.max(1) {
            break;
        }
    }
    names.sort();
    Ok(names)
}

fn compare(
    op: &Op,
    inos: &[Ino],
    model: &Model,
    expected: Outcome<Answer>,
    found: Result<Answer, Error>,
) -> Result<(), String> {
    let found = found.map_err(|error| error.code());
    if let Op::Seek { offset, what, .. } = op {
        return compare_seek(model, inos[0], *offset, *what, found);
    }
    if expected == found {
        return Ok(());
    }
    if let (Err(right), Err(code)) = (&expected, &found)
        && is_allowed(op, *right, *code)
    {
        return Ok(());
    }
    Err(format!("{op}: expected {}, found {}", brief(&expected), brief(&found)))
}

fn compare_seek(
    model: &Model,
    ino: Ino,
    offset: u64,
    what: Seek,
    found: Outcome<Answer>,
) -> Result<(), String> {
    let answer = found.map(|answer| match answer {
        Answer::Number(at) => at,
        _ => unreachable!("seek yields a number"),
    });
    // Where a directory or a pipe has holes is nobody's business.
    let regular = model.read(ino, 0, 0).is_ok();
    if regular { model.seek_is_right(ino, offset, what, answer) } else { Ok(()) }
}

fn brief(outcome: &Outcome<Answer>) -> String {
    match outcome {
        Err(code) => code.name().to_string(),
        Ok(Answer::Bytes(bytes)) if bytes.len() > 32 => {
            let hash = shoal_base::checksum(bytes);
            format!("{} bytes, checksum {hash:#x}", bytes.len())
        }
        Ok(Answer::Names(names)) => {
            let names = names.iter().map(|(name, ino)| format!("{}={ino}", name.escape_ascii()));
            format!("names [{}]", names.collect::<Vec<_>>().join(", "))
        }
        Ok(answer) => format!("{answer:?}"),
    }
}
