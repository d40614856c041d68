//! Changes of the entries of an access control list, as of setfacl(1).

use super::acl::{Acl, Entry, NO_ID};
use crate::types::AclChange;
use crate::types::acl_change::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};
use shoal_base::{Code, Error, Result};
use shoal_format::inode::Core;
use shoal_format::tree_change::{AclEdit, AclEdits, IF_EXECUTABLE};

impl AclChange {
    /// Returns the list after the change of a file with this mode and these lists, as the bytes of
    /// `system.posix_acl_access` or `system.posix_acl_default`: for files that another program
    /// stores, as the kernel in a mount. `None`: the file has no such list any more. A list that
    /// says the same as the mode of a file is one.
    ///
    /// # Errors
    /// `EINVAL` if a list is none, or the result would be none; `EOPNOTSUPP` for a list of another
    /// version.
    pub fn applied(
        &self,
        mode: u32,
        access: Option<&[u8]>,
        default: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let list = |raw: Option<&[u8]>| raw.map_or(Ok(None), Acl::parse);
        let (access, default) = (list(access)?, list(default)?);
        let core = Core { mode, ..Core::default() };
        let changed = changed_acl(self.edits(), &core, access.as_ref(), default.as_ref())?;
        Ok(changed.map(|acl| acl.to_bytes()))
    }
}

/// Returns an inode's access list, or its default list, after the changes; `None` for a default
/// list without entries. `access` and `default` are its lists, if it has them.
///
/// As setfacl(1): a default list that gets its first entries takes owner, group and others from the
/// access list; the mask becomes the union of what it limits, unless it is changed itself or kept.
///
/// # Errors
/// `EINVAL` if the result is no list: an entry that each list has is removed, or the mask of a list
/// with named entries.
pub(crate) fn changed_acl(
    edits: &AclEdits,
    core: &Core,
    access: Option<&Acl>,
    default: Option<&Acl>,
) -> Result<Option<Acl>> {
    let own = || access.cloned().unwrap_or_else(|| Acl::of_mode(core.mode));
    let mut entries = match (edits.default, edits.clears) {
        (false, false) => own().entries,
        (false, true) => without_mask(&own()),
        (true, false) => default.map_or_else(Vec::new, |acl| acl.entries.clone()),
        (true, true) => Vec::new(),
    };
    edits.edits.iter().for_each(|edit| make(edit, core.is_dir(), &mut entries));
    if entries.is_empty() && edits.default {
        return Ok(None);
    }
    if edits.default {
        for entry in base_of(&own()) {
            if !entries.iter().any(|e| e.tag == entry.tag) {
                entries.push(entry);
            }
        }
    }
    if !edits.edits.iter().any(|edit| edit.tag == MASK) {
        put_mask(edits.keeps_mask, &mut entries);
    }
    entries.sort_by_key(|e| (e.tag, e.id));
    let acl = Acl { entries };
    match acl.is_valid() {
        true => Ok(Some(acl)),
        false => Err(Error::Code(Code::Invalid)),
    }
}

/// Owner, group and others of a list.
fn base_of(acl: &Acl) -> Vec<Entry> {
    let base = |e: &&Entry| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER);
    acl.entries.iter().filter(base).copied().collect()
}

/// Owner, group and others, with the group's rights as the mask has limited them.
fn without_mask(acl: &Acl) -> Vec<Entry> {
    let mut entries = base_of(acl);
    let mask = acl.perm(MASK).unwrap_or(7);
    entries.iter_mut().filter(|e| e.tag == GROUP_OBJ).for_each(|e| e.perm &= mask);
    entries
}

fn make(edit: &AclEdit, is_dir: bool, entries: &mut Vec<Entry>) {
    let id = if matches!(edit.tag, USER | GROUP) { edit.id } else { NO_ID };
    let is_it = |e: &Entry| e.tag == edit.tag && (id == NO_ID || e.id == id);
    if edit.removes {
        entries.retain(|e| !is_it(e));
        return;
    }
    let executes = is_dir || entries.iter().any(|e| e.perm & 1 != 0);
    let perm = match u32::from(edit.perm) {
        perm if perm & u32::from(IF_EXECUTABLE) != 0 => perm & 7 | u32::from(executes),
        perm => perm,
    };
    match entries.iter_mut().find(|e| is_it(e)) {
        Some(entry) => entry.perm = perm,
        None => entries.push(Entry { tag: edit.tag, perm, id }),
    }
}

/// Gives a list with named entries its mask, and any mask its value.
fn put_mask(keeps: bool, entries: &mut Vec<Entry>) {
    let limited = |e: &&Entry| matches!(e.tag, USER | GROUP | GROUP_OBJ);
    let union = entries.iter().filter(limited).fold(0, |perm, e| perm | e.perm);
    let group = entries.iter().find(|e| e.tag == GROUP_OBJ).map_or(0, |e| e.perm);
    let is_named = entries.iter().any(|e| matches!(e.tag, USER | GROUP));
    match entries.iter_mut().find(|e| e.tag == MASK) {
        Some(_) if keeps => {}
        Some(mask) => mask.perm = union,
        None if is_named => {
            let perm = if keeps { group } else { union };
            entries.push(Entry { tag: MASK, perm, id: NO_ID });
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `getfacl -cn` prints it, on one line.
    fn text(acl: Option<&Acl>) -> String {
        let name = |e: &Entry| match e.tag {
            USER_OBJ => "user:".to_owned(),
            USER => format!("user:{}", e.id),
            GROUP_OBJ => "group:".to_owned(),
            GROUP => format!("group:{}", e.id),
            MASK => "mask:".to_owned(),
            _ => "other:".to_owned(),
        };
        let line = |e: &Entry| format!("{}:{}", name(e), e.perm);
        acl.map_or(String::new(), |acl| acl.entries.iter().map(line).collect::<Vec<_>>().join(" "))
    }

    fn core(mode: u32) -> Core {
        Core { mode, ..Core::default() }
    }

    /// Applies changes of the access list of a file of mode 640, one after the other.
    fn access(changes: &[AclChange]) -> Result<String> {
        let acl = changes.iter().try_fold(None, |acl: Option<Acl>, change| {
            changed_acl(change.edits(), &core(0o100_640), acl.as_ref(), None)
        });
        acl.map(|acl| text(acl.as_ref()))
    }

    fn set(entries: &str) -> AclChange {
        AclChange::of_access().set(entries).expect("entries")
    }

    fn remove(entries: &str) -> AclChange {
        AclChange::of_access().remove(entries).expect("entries")
    }

    /// The results are those of setfacl 2.3.
    #[test]
    fn access_lists_change_as_by_setfacl() {
        let bare = "user::6 group::4 other::0";
        let clear = || AclChange::of_access().clear();
        for (changes, result) in [
            (vec![remove("u:1234")], bare),
            (vec![set("u:9:7")], "user::6 user:9:7 group::4 mask::7 other::0"),
            (vec![set("u:9:7"), remove("u:9")], "user::6 group::4 mask::4 other::0"),
            (
                vec![set("u:9:7"), set("m::r"), set("u::7")],
                "user::7 user:9:7 group::4 mask::7 other::0",
            ),
            (vec![set("u:9:7,m::r"), remove("u:5")], "user::6 user:9:7 group::4 mask::7 other::0"),
            (vec![set("u:9:7,m::-"), clear()], "user::6 group::0 other::0"),
            (
                vec![set("u:9:7,m::-"), clear().set("u:6:1").expect("an entry")],
                "user::6 user:6:1 group::0 mask::1 other::0",
            ),
            (
                vec![set("u:9:r,m::7"), set("u:7:7").keep_mask()],
                "user::6 user:7:7 user:9:4 group::4 mask::7 other::0",
            ),
            (vec![set("u:7:7").keep_mask()], "user::6 user:7:7 group::4 mask::4 other::0"),
            (
                vec![set("u:1:rX"), set("u::x,u:2:rX")],
                "user::1 user:1:4 user:2:5 group::4 mask::5 other::0",
            ),
            (vec![set("u:1:7"), remove("u:1,m")], bare),
            (vec![set("g:5:7"), set("g:5:-")], "user::6 group::4 group:5:0 mask::4 other::0"),
            (vec![set("m::rw"), set("u::x")], "user::1 group::4 mask::4 other::0"),
        ] {
            assert_eq!(access(&changes).as_deref(), Ok(result), "{changes:?}");
        }
        for wrong in [vec![set("u:9:7"), remove("m")], vec![remove("u")], vec![remove("o")]] {
            assert_eq!(access(&wrong).expect_err("no list").code(), Code::Invalid);
        }
    }

    #[test]
    fn default_lists_change_as_by_setfacl() {
        let new = AclChange::of_default;
        let set = |entries| new().set(entries).expect("entries");
        let remove = |entries| new().remove(entries).expect("entries");
        let named = "user::7 user:5:7 group::5 mask::7 other::0";
        for (changes, result) in [
            (vec![set("u:5:7")], named),
            (vec![set("u:5:7"), remove("u:5")], "user::7 group::5 mask::5 other::0"),
            (vec![set("u:5:7"), remove("m,u:5")], "user::7 group::5 other::0"),
            (vec![set("u:5:7"), remove("u")], named),
            (vec![set("u:5:7"), new().clear()], ""),
            (vec![remove("u:5")], ""),
            (vec![set("u::r")], "user::4 group::5 other::0"),
            (vec![set("u:5:rX")], "user::7 user:5:5 group::5 mask::5 other::0"),
            (vec![set("m::r")], "user::7 group::5 mask::4 other::0"),
            (vec![set("u:5:7").keep_mask()], "user::7 user:5:7 group::5 mask::5 other::0"),
        ] {
            let acl = changes.iter().try_fold(None, |acl: Option<Acl>, change| {
                changed_acl(change.edits(), &core(0o040_750), None, acl.as_ref())
            });
            assert_eq!(text(acl.expect("a list").as_ref()), result, "{changes:?}");
        }
    }
}
