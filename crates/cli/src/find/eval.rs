//! Evaluation of an expression for one file.

use shoal::raw::{Error, FileKind};

use super::exec::Waiting;
use super::expr::{Action, Expr, Field, Reference, Same, Test};
use super::file::{File, World};
use super::rows::Rows;
use crate::failure::{Failure, Reason, Result};
use crate::json;
use crate::output::Out;
use crate::progress::Progress;
use crate::text::printable;
use crate::tree::Tree;

/// Requests of the actions to the walk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flow {
    /// `-prune`: the directory is not entered.
    pub prune: bool,
    /// `-quit`: the command ends.
    pub quit: bool,
}

/// The actions' state.
pub(crate) struct Evaluator<'e> {
    /// Standard output.
    pub out: &'e mut Out,
    /// Failures of single files.
    pub progress: &'e mut Progress,
    /// `--json`: what `-print` prints.
    pub json: bool,
    /// `-0`: `-print` is `-print0`.
    pub null: bool,
    /// Columns of `-ls`.
    pub rows: &'e mut Rows,
    /// Files removed.
    pub removed: &'e mut u64,
    /// Files that wait for commands.
    pub waiting: &'e mut Waiting,
}

/// Failure of one file, which is reported, or of the command.
enum Stop {
    File(Reason),
    Command(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::File(Reason::from(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Command(failure)
    }
}

impl Evaluator<'_> {
    /// Evaluates the expression for a file.
    pub(crate) fn file(&mut self, expr: &Expr, file: &File<'_>, world: &World<'_>) -> Result<Flow> {
        let mut flow = Flow::default();
        self.value(expr, file, world, &mut flow)?;
        Ok(flow)
    }

    /// Returns the value of an expression. One that quits is not evaluated further.
    fn value(
        &mut self,
        expr: &Expr,
        file: &File<'_>,
        world: &World<'_>,
        flow: &mut Flow,
    ) -> Result<bool> {
        let mut value = |this: &mut Self, one: &Expr| {
            let value = this.value(one, file, world, flow)?;
            Ok::<_, Failure>((value, flow.quit))
        };
        match expr {
            Expr::Test(test) => {
                let result = test.fits(file, world);
                result.or_else(|error| self.report(Stop::from(error), file, world))
            }
            Expr::Action(action) => {
                let result = self.act(action, file, world, flow);
                result.or_else(|stop| self.report(stop, file, world))
            }
            Expr::Not(one) => Ok(!value(self, one)?.0),
            Expr::And(all) => {
                for one in all {
                    let (value, quits) = value(self, one)?;
                    if !value || quits {
                        return Ok(value);
                    }
                }
                Ok(true)
            }
            Expr::Or(all) => {
                for one in all {
                    let (value, quits) = value(self, one)?;
                    if value || quits {
                        return Ok(value);
                    }
                }
                Ok(false)
            }
            Expr::List(all) => {
                let mut last = false;
                for one in all {
                    let (value, quits) = value(self, one)?;
                    last = value;
                    if quits {
                        break;
                    }
                }
                Ok(last)
            }
        }
    }

    /// Reports the failure of a file, which makes the test or action false.
    fn report(&mut self, stop: Stop, file: &File<'_>, world: &World<'_>) -> Result<bool> {
        let label = world.tree.label(file.path);
        match stop {
            Stop::Command(failure) => Err(failure),
            Stop::File(reason) if reason.stops_everything() => Err(Failure::failed(label, reason)),
            Stop::File(reason) => {
                self.progress.failure(label, reason);
                Ok(false)
            }
        }
    }

    fn act(
        &mut self,
        action: &Action,
        file: &File<'_>,
        world: &World<'_>,
        flow: &mut Flow,
    ) -> Result<bool, Stop> {
        match action {
            Action::Print if self.json => {
                let (attr, target) = (world.attributes(file)?, world.target(file)?);
                let object = json::file(file.path, file.name(), &attr, target.as_deref());
                self.out.json(object)?;
            }
            Action::Print if !self.null => {
                self.out.name(file.path)?;
                self.out.line("")?;
            }
            Action::Print | Action::Print0 => {
                self.out.bytes(file.path)?;
                self.out.bytes(b"\0")?;
            }
            Action::Printf(format) => self.out.text(&format.show(file, world)?)?,
            Action::Ls => {
                let row = self.rows.show(file, world)?;
                self.out.bytes(&row)?;
            }
            Action::Delete => return self.delete(file, world),
            Action::Exec(exec) => {
                let value = exec.run(file, world, self.waiting, self.out, self.progress)?;
                return Ok(value);
            }
            Action::Prune => flow.prune = true,
            Action::Quit => flow.quit = true,
        }
        Ok(true)
    }

    /// Removes a file or an empty directory. The top directory of a volume stays, and `.`,
    /// without a word.
    fn delete(&mut self, file: &File<'_>, world: &World<'_>) -> Result<bool, Stop> {
        let name = file.name();
        let start = match world.tree {
            Tree::Volume(start) if name != b"/" => start,
            Tree::Mount(mount) if !matches!(name, b"." | b"..") => {
                mount.remove(file.path, file.kind == FileKind::Directory)?;
                *self.removed += 1;
                return Ok(true);
            }
            _ => return Ok(true),
        };
        let (session, path) = (&start.session, start.real(file.path));
        let dir = match file.dir {
            Some(dir) => dir,
            None => session.slot(file.path).map_err(Stop::File)?.dir,
        };
        if file.kind != FileKind::Directory {
            session.unlink(&path)?;
        } else if file.ino.root() != dir.root() {
            let (volume, name) = (session.path.display(), printable(name));
            let text =
                format!("is a subvolume (delete it with shoal subvolume delete {volume} {name})");
            return Err(Stop::File(Reason::Text(text)));
        } else {
            session.remove_dir(&path)?;
        }
        *self.removed += 1;
        Ok(true)
    }
}

impl Test {
    /// Returns whether a file passes.
    fn fits(&self, file: &File<'_>, world: &World<'_>) -> Result<bool, Error> {
        Ok(match self {
            Test::Always(value) => *value,
            Test::Name(pattern) => pattern.matches(file.name()),
            Test::Path(pattern) => pattern.matches(file.path),
            Test::Target(pattern) => {
                world.target(file)?.is_some_and(|target| pattern.matches(&target))
            }
            Test::Regex(regex) => regex.matches(file.path),
            Test::Type(kinds) => kinds.contains(&file.kind),
            Test::Followed(kinds) => {
                let found = match file.kind {
                    FileKind::Symlink => world.tree.find(file.path).ok(),
                    _ => None,
                };
                kinds.contains(&found.map_or(file.kind, |found| found.kind))
            }
            Test::Same(Same::Inode(ino)) => file.ino == *ino,
            Test::Same(Same::Place(_)) => false,
            Test::Field(Field::Inode, number) => number.fits(file.ino.0),
            Test::Empty if !matches!(file.kind, FileKind::Regular | FileKind::Directory) => false,
            test => test.fits_attributes(file, world)?,
        })
    }

    /// The same for a test that needs attributes.
    fn fits_attributes(&self, file: &File<'_>, world: &World<'_>) -> Result<bool, Error> {
        let attr = &*world.attributes(file)?;
        Ok(match self {
            Test::Size(number, unit) => number.fits(attr.size.div_ceil(*unit)),
            Test::Age(stamp, age) => age.fits(stamp.of(attr), world.now),
            Test::Newer(stamp, Reference::Time(than)) => {
                let time = stamp.of(attr);
                (time.sec, time.nsec) > (than.sec, than.nsec)
            }
            Test::Field(Field::Links, number) => number.fits(attr.nlink.into()),
            Test::Field(Field::User, number) => number.fits(attr.uid.into()),
            Test::Field(_, number) => number.fits(attr.gid.into()),
            Test::Nameless(Field::User) => world.accounts.user(attr.uid).is_none(),
            Test::Nameless(_) => world.accounts.group(attr.gid).is_none(),
            Test::Perm(perm) => perm.fits(attr.mode, attr.kind == FileKind::Directory),
            // The size of a directory is the number of its entries.
            Test::Empty => attr.size == 0,
            _ => false,
        })
    }
}
