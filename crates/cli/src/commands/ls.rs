//! `shoal ls`.
//!
//! A listing is sorted, for which one directory is held in memory; with `-U` it is written batch
//! by batch as the directory is read.

use std::io::IsTerminal;
use std::sync::Arc;

use shoal::raw::{Attr, FileKind, Time};

use crate::ahead::{Ahead, Job};
use crate::args::{LsArgs, When};
use crate::clock;
use crate::failure::{Failure, Reason, Result};
use crate::json;
use crate::location::{join, split_last};
use crate::ls::{Colors, Columns, Style, indicator, order, quoted};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Cursor, Found, Sessions};
use crate::source::{Batch, DirId};
use crate::tree::{Operand, Tree};

/// Lists directories.
pub(crate) fn run(args: &LsArgs) -> Result<u8> {
    let style = if args.full_time { "full-iso" } else { &args.time_style };
    let style = Style::parse(style).map_err(|what| Failure::usage("--time-style", what))?;
    Sessions::run(Access::Read, |sessions| {
        let mut lister = Lister {
            args,
            style: &style,
            now: clock::now(),
            colors: colors(args.color),
            out: Out::new(),
            progress: Progress::counting(),
            row: String::new(),
            headed: false,
        };
        for place in &args.places {
            let follow = !args.is_long() && !args.directory;
            match Operand::open(sessions, Access::Read, place, follow)? {
                Ok(place) => lister.operand(&place)?,
                Err(missing) => {
                    lister.progress.failure(missing.label, Reason::from(missing.error));
                }
            }
        }
        lister.out.flush()?;
        Ok(lister.progress.finish())
    })
}

fn colors(when: When) -> Option<Colors> {
    let is_on = match when {
        When::Always => true,
        When::Auto => std::io::stdout().is_terminal(),
        When::Never => false,
    };
    is_on.then(|| Colors::parse(&std::env::var("LS_COLORS").unwrap_or_default()))
}

struct Lister<'a> {
    args: &'a LsArgs,
    style: &'a Style,
    now: Time,
    colors: Option<Colors>,
    out: Out,
    progress: Progress,
    /// The columns of the current line.
    row: String,
    /// A heading has been written, so that the next is set apart by an empty line.
    headed: bool,
}

/// A directory to be listed.
struct Dir {
    path: Vec<u8>,
    id: DirId,
    job: Arc<Job>,
}

impl Dir {
    fn of(path: Vec<u8>, attr: &Attr) -> Dir {
        let id = DirId { ino: attr.ino, path: path.as_slice().into() };
        Dir { path, job: Arc::new(Job::new(id.clone())), id }
    }
}

impl Lister<'_> {
    fn operand(&mut self, place: &Operand) -> Result<()> {
        let Operand { tree, path, attr } = place;
        if attr.kind != FileKind::Directory || self.args.directory {
            return self.file(tree, path, *attr);
        }
        let headings = self.args.recursive || self.args.places.len() > 1;
        Ahead::run(tree.source(), false, |ahead| {
            // Directories still to list; the next is the last.
            let mut waiting = vec![Dir::of(path.clone(), attr)];
            while let Some(dir) = waiting.pop() {
                let first = ahead.first(&dir.job);
                if let Err(error) = first.entries {
                    self.progress.failure(tree.label(&dir.path), Reason::from(error));
                    continue;
                }
                if headings && !self.args.json {
                    self.heading(tree, &dir.path)?;
                }
                let below = self.directory(tree, ahead, &dir, first)?;
                ahead.want(below.iter().map(|dir| dir.job.clone()).collect());
                waiting.extend(below.into_iter().rev());
            }
            Ok(())
        })
    }

    fn heading(&mut self, tree: &Tree, path: &[u8]) -> Result<()> {
        if self.headed {
            self.out.line("")?;
        }
        self.headed = true;
        if let Tree::Volume(start) = tree {
            self.out.bytes(start.session.path.as_os_str().as_encoded_bytes())?;
            self.out.bytes(b":")?;
        }
        self.out.name(path)?;
        self.out.line(":")
    }

    /// Lists one directory; returns its subdirectories if `-R` lists them.
    fn directory(
        &mut self,
        tree: &Tree,
        ahead: &Ahead<'_>,
        dir: &Dir,
        first: Batch,
    ) -> Result<Vec<Dir>> {
        let path = &dir.path[..];
        let mut below = Vec::new();
        let mut held = self.dots(tree, path);
        let mut batch = Some(first);
        while let Some(Batch { entries, next }) = batch.take() {
            let entries = match entries {
                Ok(entries) => entries,
                Err(error) => {
                    self.progress.failure(tree.label(path), Reason::from(error));
                    break;
                }
            };
            if next != Cursor::End {
                batch = Some(ahead.list(&dir.id, next));
            }
            let shows_all = self.args.all || self.args.almost_all;
            let shown = entries.into_iter().filter(|it| shows_all || it.name[0] != b'.');
            let before = held.len();
            held.extend(shown);
            for entry in &mut held[before..] {
                if let Some(error) = entry.failed.take() {
                    let label = tree.label(&join(path, &entry.name));
                    self.progress.failure(label, Reason::from(error));
                }
            }
            if self.args.unsorted && !self.args.has_total() {
                self.entries(tree, path, &held, &mut below)?;
                held.clear();
            }
        }
        if !self.args.unsorted {
            held.sort_unstable_by(|a, b| order(self.args, a, b));
            if self.args.reverse {
                held.reverse();
            }
        }
        if self.args.has_total() {
            let columns = Columns::of(self.args, self.style, self.now, &held);
            self.out.line(&columns.total(&held))?;
        }
        self.entries(tree, path, &held, &mut below)?;
        Ok(below)
    }

    /// Returns the entries `.` and `..`, if asked for.
    fn dots(&mut self, tree: &Tree, path: &[u8]) -> Vec<Found> {
        if !self.args.all {
            return Vec::new();
        }
        match tree.dots(path) {
            Ok([own, parent]) => vec![
                Found::with_attributes(Box::from(&b"."[..]), own),
                Found::with_attributes(Box::from(&b".."[..]), parent),
            ],
            Err(error) => {
                self.progress.failure(tree.label(path), Reason::from(error));
                Vec::new()
            }
        }
    }

    fn entries(
        &mut self,
        tree: &Tree,
        path: &[u8],
        entries: &[Found],
        below: &mut Vec<Dir>,
    ) -> Result<()> {
        let columns = Columns::of(self.args, self.style, self.now, entries);
        for entry in entries {
            let name = &entry.name;
            let is_dot = **name == *b"." || **name == *b"..";
            match &entry.attr {
                Some(attr)
                    if self.args.recursive && attr.kind == FileKind::Directory && !is_dot =>
                {
                    below.push(Dir::of(join(path, name), attr));
                }
                _ => {}
            }
            self.entry(tree, &|| join(path, name), entry, &columns)?;
        }
        Ok(())
    }

    /// Shows an operand that is no directory, under the name it was given by.
    fn file(&mut self, tree: &Tree, path: &[u8], attr: Attr) -> Result<()> {
        let name: Box<[u8]> = if self.args.json {
            split_last(path).name.into()
        } else {
            match tree {
                Tree::Volume(_) => tree.label(path).into_bytes().into(),
                Tree::Mount(_) => path.into(),
            }
        };
        let listed = [Found::with_attributes(name, attr)];
        let columns = Columns::of(self.args, self.style, self.now, &listed);
        self.entry(tree, &|| path.to_vec(), &listed[0], &columns)
    }

    /// Shows an entry; `path` makes its whole path, which is seldom needed.
    fn entry(
        &mut self,
        tree: &Tree,
        path: &dyn Fn() -> Vec<u8>,
        entry: &Found,
        columns: &Columns<'_>,
    ) -> Result<()> {
        let args = self.args;
        let name = &entry.name[..];
        let Some(attr) = &entry.attr else { return self.unreadable(path, entry, columns) };
        let shows_target = attr.kind == FileKind::Symlink && (args.json || args.is_long());
        let target = match shows_target {
            true => tree.target(&path(), attr).unwrap_or_else(|error| {
                self.progress.failure(tree.label(&path()), Reason::from(error));
                None
            }),
            false => None,
        };
        if args.json {
            return self.out.json(json::file(&path(), name, attr, target.as_deref()));
        }
        let leads_to = self.leads_to(tree, path, attr);
        self.row.clear();
        columns.row(entry, &mut self.row);
        self.out.bytes(self.row.as_bytes())?;
        let around = match &mut self.colors {
            Some(colors) => colors.name(name, attr.mode, attr.nlink, leads_to),
            None => Default::default(),
        };
        self.name(name, around)?;
        match target {
            None => self.indicator(attr.mode)?,
            Some(target) => {
                self.out.bytes(b" -> ")?;
                let around = match &mut self.colors {
                    Some(colors) => colors.target(&target, leads_to),
                    None => Default::default(),
                };
                self.name(&target, around)?;
                leads_to.map_or(Ok(()), |mode| self.indicator(mode))?;
            }
        }
        self.out.line("")
    }

    /// Shows an entry whose attributes cannot be read: its directory has its name and type.
    fn unreadable(
        &mut self,
        path: &dyn Fn() -> Vec<u8>,
        entry: &Found,
        columns: &Columns<'_>,
    ) -> Result<()> {
        let Found { name, ino, kind, .. } = entry;
        if self.args.json {
            return self.out.json(json::name(&path(), name, *kind, *ino));
        }
        self.row.clear();
        columns.row(entry, &mut self.row);
        self.out.bytes(self.row.as_bytes())?;
        self.name(name, Default::default())?;
        self.indicator(kind.mode_bits())?;
        self.out.line("")
    }

    /// Returns the mode of what a symlink leads to, if that is shown and there is something.
    fn leads_to(&self, tree: &Tree, path: &dyn Fn() -> Vec<u8>, attr: &Attr) -> Option<u32> {
        let is_long = self.args.is_long();
        let by_color = self.colors.as_ref().is_some_and(|colors| colors.need_targets(is_long));
        let is_needed = attr.kind == FileKind::Symlink && (by_color || self.args.classify);
        is_needed.then(|| tree.find(&path()).ok().map(|found| found.mode)).flatten()
    }

    fn name(&mut self, name: &[u8], [before, behind]: [String; 2]) -> Result<()> {
        self.out.bytes(before.as_bytes())?;
        match self.args.quote_name {
            true => self.out.name(&quoted(name))?,
            false => self.out.name(name)?,
        }
        self.out.bytes(behind.as_bytes())
    }

    fn indicator(&mut self, mode: u32) -> Result<()> {
        let is_shown = self.args.classify || self.args.slash;
        match indicator(mode, self.args.classify).filter(|_| is_shown) {
            Some(character) => self.out.bytes(&[character]),
            None => Ok(()),
        }
    }
}
