//! `shoal getfacl` and `shoal setfacl`.

use shoal::raw::{AclChange, Attr, Code, FileKind, TreeChange};

use super::chmod::{Below, Stop, each};
use crate::accounts::Accounts;
use crate::acl::{ACCESS, DEFAULT};
use crate::acl::{Entry, GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, entries, permissions};
use crate::args::{GetfaclArgs, SetfaclArgs};
use crate::failure::{Failure, Reason, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Found, Sessions};
use crate::tree::{Operand, Tree};
use crate::walk::{Options, Step, Walk};

/// Prints access control lists.
pub(crate) fn get(args: &GetfaclArgs) -> Result<u8> {
    let accounts = if args.numeric { Accounts::default() } else { Accounts::of_this_machine() };
    let mut printer = Printer { args, accounts, out: Out::new(), progress: Progress::hidden() };
    Sessions::run(Access::Read, |sessions| {
        for place in &args.places {
            match Operand::open(sessions, Access::Read, place, true)? {
                Ok(place) => printer.tree(&place)?,
                Err(missing) => {
                    printer.progress.failure(missing.label, Reason::from(missing.error));
                }
            }
        }
        printer.out.flush()?;
        Ok(printer.progress.finish())
    })
}

struct Printer<'a> {
    args: &'a GetfaclArgs,
    accounts: Accounts,
    out: Out,
    progress: Progress,
}

impl Printer<'_> {
    /// Prints the lists of a file and, with -R, of everything below it.
    fn tree(&mut self, place: &Operand) -> Result<()> {
        let Operand { tree, path, attr } = place;
        self.file(tree, path, (attr, true))?;
        if !self.args.recursive || attr.kind != FileKind::Directory {
            return Ok(());
        }
        let top = (Found::with_attributes(Box::default(), *attr), &path[..]);
        Walk::through(tree.source(), top, Options::default(), |walk| {
            while let Some(step) = walk.step() {
                match step {
                    Step::Found(Found { attr: Some(attr), .. }) => {
                        self.file(tree, walk.path(), (&attr, false))?;
                    }
                    Step::Failed(error) => {
                        self.progress.failure(tree.label(walk.path()), Reason::from(error));
                    }
                    Step::Found(_) | Step::Left(_) => {}
                }
            }
            Ok(())
        })
    }

    /// Prints the lists of a file; `follow`: of what a symlink refers to.
    fn file(&mut self, tree: &Tree, path: &[u8], (attr, follow): (&Attr, bool)) -> Result<()> {
        if attr.kind == FileKind::Symlink {
            return Ok(());
        }
        match lists_of(tree, path, follow) {
            Ok([access, default]) => {
                let access = access.unwrap_or_else(|| of_mode(attr.mode));
                self.print(&tree.label(path), attr, &access, &default.unwrap_or_default())
            }
            Err(error) => {
                self.progress.failure(tree.label(path), Reason::from(error));
                Ok(())
            }
        }
    }

    fn print(
        &mut self,
        label: &str,
        attr: &Attr,
        access: &[Entry],
        default: &[Entry],
    ) -> Result<()> {
        if !self.args.omit_header {
            self.out.line(&format!("# file: {label}"))?;
            self.out.line(&format!("# owner: {}", self.accounts.user_or_number(attr.uid)))?;
            self.out.line(&format!("# group: {}", self.accounts.group_or_number(attr.gid)))?;
            let flag = |bit, letter| if attr.mode & bit != 0 { letter } else { '-' };
            if attr.mode & 0o7000 != 0 {
                let [uid, gid, sticky] = [flag(0o4000, 's'), flag(0o2000, 's'), flag(0o1000, 't')];
                self.out.line(&format!("# flags: {uid}{gid}{sticky}"))?;
            }
        }
        if !self.args.default {
            self.list(access, "")?;
        }
        if !self.args.access {
            self.list(default, if self.args.default { "" } else { "default:" })?;
        }
        // As getfacl, which prints nothing at all where there is nothing.
        match self.args.omit_header && self.args.default && default.is_empty() {
            true => Ok(()),
            false => self.out.line(""),
        }
    }

    fn list(&mut self, entries: &[Entry], prefix: &str) -> Result<()> {
        let mask = entries.iter().find(|entry| entry.tag == MASK).map(|entry| entry.bits);
        for entry in entries {
            let name = match (entry.tag, entry.id) {
                (USER, Some(id)) => self.accounts.user_or_number(id),
                (_, Some(id)) => self.accounts.group_or_number(id),
                (_, None) => String::new(),
            };
            let left = entry.bits & mask.unwrap_or(7);
            let is_limited = matches!(entry.tag, USER | GROUP_OBJ | GROUP);
            let is_shown = left != entry.bits || self.args.all_effective && mask.is_some();
            let effective = match is_limited && is_shown && !self.args.no_effective {
                true => format!("\t#effective:{}", permissions(left)),
                false => String::new(),
            };
            let (word, bits) = (entry.word(), permissions(entry.bits));
            self.out.line(&format!("{prefix}{word}:{name}:{bits}{effective}"))?;
        }
        Ok(())
    }
}

/// Returns the entries of the access list and the default list; `None` if the file has none.
fn lists_of(tree: &Tree, path: &[u8], follow: bool) -> shoal::raw::Result<[Option<Vec<Entry>>; 2]> {
    let raw = match tree {
        Tree::Volume(start) => start.session.lists(&start.real(path))?,
        Tree::Mount(mount) => {
            let file = mount.open_file(path, follow)?;
            [file.list(ACCESS)?, file.list(DEFAULT)?]
        }
    };
    // The volume, or the mount's, has checked that they are lists.
    let read = |raw: Vec<u8>| entries(&raw).ok_or(shoal::raw::Error::Code(Code::Io));
    let [access, default] = raw;
    Ok([access.map(read).transpose()?, default.map(read).transpose()?])
}

/// The list that says the same as a mode.
fn of_mode(mode: u32) -> Vec<Entry> {
    let entry = |(tag, shift)| Entry { tag, id: None, bits: (mode >> shift & 7_u32) as u16 };
    [(USER_OBJ, 6_u32), (GROUP_OBJ, 3), (OTHER, 0)].map(entry).to_vec()
}

/// The changes that a command line asks for: of the access list and of the default list.
struct Changes {
    access: Option<AclChange>,
    default: Option<AclChange>,
}

impl Changes {
    fn of(args: &SetfaclArgs) -> Result<Changes> {
        let accounts = Accounts::of_this_machine();
        let mut changes = Changes { access: None, default: None };
        if args.remove_all {
            changes.access = Some(AclChange::of_access().clear());
        }
        if args.remove_all || args.remove_default {
            changes.default = Some(AclChange::of_default().clear());
        }
        let whole = args.set.iter().map(|text| (false, true, text));
        let set = args.modify.iter().map(|text| (false, false, text));
        let removed = args.remove.iter().map(|text| (true, false, text));
        for (removes, replaces, text) in whole.chain(set).chain(removed) {
            for entry in text.split(',') {
                changes.add(entry, args.default, (removes, replaces), &accounts)?;
            }
        }
        if args.no_mask {
            changes.access = changes.access.map(AclChange::keep_mask);
            changes.default = changes.default.map(AclChange::keep_mask);
        }
        Ok(changes)
    }

    fn add(
        &mut self,
        entry: &str,
        default: bool,
        (removes, replaces): (bool, bool),
        accounts: &Accounts,
    ) -> Result<()> {
        let of_default = entry.strip_prefix("default:").or(entry.strip_prefix("d:"));
        let list = match default || of_default.is_some() {
            true => &mut self.default,
            false => &mut self.access,
        };
        let new = if default || of_default.is_some() {
            AclChange::of_default
        } else {
            AclChange::of_access
        };
        let begun = match list.take() {
            Some(begun) => begun,
            None if replaces => whole(new()).map_err(|error| Failure::usage(entry, error))?,
            None => new(),
        };
        let id_of = |is_group: bool, name: &str| match is_group {
            true => accounts.gid(name),
            false => accounts.uid(name),
        };
        let edited = begun.edit(removes, of_default.unwrap_or(entry), &id_of);
        *list = Some(edited.map_err(|error| Failure::usage(entry, error))?);
        Ok(())
    }
}

/// A change that begins with an empty list.
fn whole(change: AclChange) -> shoal::raw::Result<AclChange> {
    change.clear().remove("u,g,o")
}

/// Changes access control lists.
pub(crate) fn set(args: &SetfaclArgs) -> Result<u8> {
    let Changes { access, default } = Changes::of(args)?;
    let mut status = 0;
    for (change, of_default) in [(access, false), (default, true)] {
        let Some(change) = change else { continue };
        let tree = TreeChange { acl: Some(change.clone()), ..TreeChange::default() };
        let below = if args.recursive { Below::AtOnce(&tree) } else { Below::Nothing };
        let one = each(&args.places, below, true, |file| {
            let attr = file.attr();
            // As those that a change of a tree passes over.
            let is_dir = attr.kind == FileKind::Directory;
            let has_list = attr.kind != FileKind::Symlink && (is_dir || !of_default);
            if args.recursive && !has_list {
                return Ok(());
            }
            if of_default && !is_dir {
                return Err(Stop::File(Reason::Text("only directories have default lists".into())));
            }
            Ok(file.change_acl(&change)?)
        })?;
        status = status.max(one);
    }
    Ok(status)
}
