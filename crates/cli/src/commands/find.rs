//! `shoal find`: the walk, and the expression for each file of it.

use shoal::raw::text::counted;
use shoal::raw::{FileKind, Time};

use crate::accounts::Accounts;
use crate::args::FindArgs;
use crate::clock;
use crate::commands::chmod::times_of;
use crate::failure::{Failure, Reason, Result};
use crate::find::{
    self, Action, Evaluator, File, Flow, Parsed, Reference, Rows, Same, Test, Waiting, World,
};
use crate::interrupt;
use crate::location::Place;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Found, Sessions};
use crate::tree::{Operand, Tree};
use crate::walk::{self, Step, Walk};

/// Finds files.
pub(crate) fn run(args: &FindArgs) -> Result<u8> {
    let accounts = Accounts::of_this_machine();
    let mut parsed = find::parse(&args.words, &accounts)?;
    parsed.options.json |= args.json;
    parsed.options.null |= args.null;
    parsed.check()?;
    let access = if parsed.deletes() { Access::Write } else { Access::Read };
    Sessions::run(access, |sessions| {
        let now = clock::now();
        parsed.expr.tests_mut(&mut |test| look_up(test, sessions, access))?;
        let mut finder = Finder {
            parsed: &parsed,
            accounts: &accounts,
            now,
            out: Out::new(),
            progress: Progress::counting(),
            rows: Rows::default(),
            removed: 0,
            waiting: Waiting::default(),
        };
        if parsed.places.iter().any(|place| matches!(Place::parse(place), Place::Volume(_))) {
            parsed.refuse_commands()?;
        }
        for place in &parsed.places {
            match Operand::open(sessions, access, place, false)? {
                Ok(place) => {
                    if let Tree::Volume(_) = place.tree {
                        parsed.refuse_commands()?;
                    }
                    if finder.place(&place)? {
                        break;
                    }
                }
                Err(missing) => {
                    finder.progress.failure(missing.label, Reason::from(missing.error));
                }
            }
        }
        finder.finish()?;
        finder.out.flush()?;
        Ok(finder.progress.finish())
    })
}

/// Looks up the file that a test compares with.
fn look_up(test: &mut Test, sessions: &mut Sessions, access: Access) -> Result<()> {
    match test {
        Test::Newer(_, reference) => {
            if let Reference::File(place, stamp) = reference {
                let time = stamp.among(&times_of(place, sessions)?);
                let unknown = || Failure::usage(place.display(), "has no time of birth");
                *reference = Reference::Time(time.ok_or_else(unknown)?);
            }
        }
        Test::Same(same) => {
            if let Same::Place(place) = same {
                let found = Operand::open(sessions, access, place, false)?.map_err(|missing| {
                    Failure::usage(missing.label, Reason::from(missing.error))
                })?;
                *same = Same::Inode(found.attr.ino);
            }
        }
        _ => {}
    }
    Ok(())
}

struct Finder<'a> {
    parsed: &'a Parsed,
    accounts: &'a Accounts,
    now: Time,
    out: Out,
    progress: Progress,
    rows: Rows,
    removed: u64,
    waiting: Waiting,
}

impl Finder<'_> {
    /// Walks the tree below a place; returns whether `-quit` has ended it.
    fn place(&mut self, place: &Operand) -> Result<bool> {
        let Operand { tree, path, attr } = place;
        let options = self.parsed.options;
        let world = World { tree, accounts: self.accounts, now: self.now };
        let mut top = Found::with_attributes(Box::default(), *attr);
        top.attr = top.attr.filter(|_| !self.parsed.changes());
        let (start, depth, dir) = (path.as_slice(), 0, None);
        let file = File::of(&top, start, start, depth, dir);
        if !options.contents_first {
            let flow = self.file(&file, &world)?;
            if flow.quit || flow.prune {
                return Ok(flow.quit);
            }
        }
        if attr.kind == FileKind::Directory {
            let walk_options = walk::Options {
                // A removal changes attributes of other files, which are read when they are needed.
                names_only: self.parsed.changes()
                    || !options.json && !self.parsed.expr.needs_attributes(),
                leaving: options.contents_first,
                one_subvolume: options.one_subvolume,
                depth_max: options.depth_max,
            };
            let top = (top.clone(), start);
            if Walk::through(tree.source(), top, walk_options, |walk| {
                self.walk(walk, start, &world)
            })? {
                return Ok(true);
            }
        }
        Ok(options.contents_first && self.file(&file, &world)?.quit)
    }

    /// Runs the commands that files still wait for.
    fn finish(&mut self) -> Result<()> {
        self.parsed.expr.actions(&mut |action| match action {
            Action::Exec(exec) => exec.finish(&mut self.waiting, &mut self.out, &mut self.progress),
            _ => Ok(()),
        })
    }

    fn walk(&mut self, walk: &mut Walk<'_>, start: &[u8], world: &World<'_>) -> Result<bool> {
        let contents_first = self.parsed.options.contents_first;
        while let Some(step) = walk.step() {
            let (found, is_whole) = match step {
                Step::Found(found) => {
                    let is_whole = !contents_first || found.kind != FileKind::Directory;
                    (found, is_whole)
                }
                Step::Left(found) => (found, true),
                Step::Failed(error) => {
                    let label = world.tree.label(walk.path());
                    self.progress.failure(label, Reason::from(error));
                    continue;
                }
            };
            if !is_whole {
                continue;
            }
            let file = File::of(&found, walk.path(), start, walk.depth(), walk.dir());
            let flow = self.file(&file, world)?;
            if flow.quit {
                return Ok(true);
            }
            // Behind its contents it is too late.
            if flow.prune && !contents_first {
                walk.skip();
            }
        }
        Ok(false)
    }

    fn file(&mut self, file: &File<'_>, world: &World<'_>) -> Result<Flow> {
        if file.depth < self.parsed.options.depth_min {
            return Ok(Flow::default());
        }
        let removed = self.removed;
        interrupt::check(|| format!("{} removed", counted(removed, "file")))?;
        let mut evaluator = Evaluator {
            out: &mut self.out,
            progress: &mut self.progress,
            json: self.parsed.options.json,
            null: self.parsed.options.null,
            rows: &mut self.rows,
            removed: &mut self.removed,
            waiting: &mut self.waiting,
        };
        evaluator.file(&self.parsed.expr, file, world)
    }
}
