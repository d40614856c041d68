//! Changes of access control lists as setfacl(1) writes them: `u:1000:rwX,m::rx`.

use shoal_base::{Code, Error, Result};
use shoal_format::tree_change::{AclEdit, AclEdits, IF_EXECUTABLE};

/// Tag of the owner, as Linux stores it.
pub(crate) const USER_OBJ: u16 = 0x01;
/// Tag of another user.
pub(crate) const USER: u16 = 0x02;
/// Tag of the file's group.
pub(crate) const GROUP_OBJ: u16 = 0x04;
/// Tag of another group.
pub(crate) const GROUP: u16 = 0x08;
/// Tag of the mask.
pub(crate) const MASK: u16 = 0x10;
/// Tag of all others.
pub(crate) const OTHER: u16 = 0x20;

/// Changes of the access list of files, or of the default list of directories, as of setfacl(1).
///
/// Entries are written `u::rwx` (owner), `u:1000:rwx`, `g::rwx`, `g:100:rwx`, `m::rwx` (mask) and
/// `o::rwx` (others), separated by commas; permissions also as one octal digit. `X` is `x` for
/// directories, and where somebody may execute the file.
///
/// Unless the mask is changed or kept, it becomes the union of what it limits. A default list that
/// gets its first entry takes owner, group and others from the access list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclChange(AclEdits);

impl AclChange {
    /// Changes of the access list.
    pub fn of_access() -> AclChange {
        AclChange(AclEdits::default())
    }

    /// Changes of the default list of directories; other files are left alone.
    pub fn of_default() -> AclChange {
        AclChange(AclEdits { default: true, ..AclEdits::default() })
    }

    /// First removes what a list need not have: all entries of a default list, and the named
    /// entries and the mask of an access list, whose group keeps what the mask left it.
    #[must_use]
    pub fn clear(mut self) -> AclChange {
        self.0.clears = true;
        self
    }

    /// Leaves the mask as it is. A list that gets its first named entry has the rights of the group
    /// as its mask.
    #[must_use]
    pub fn keep_mask(mut self) -> AclChange {
        self.0.keeps_mask = true;
        self
    }

    /// Adds entries, or replaces them, with numbers for users and groups.
    ///
    /// # Errors
    /// `EINVAL` if the text is no list of entries.
    pub fn set(self, entries: &str) -> Result<AclChange> {
        entries.split(',').try_fold(self, |change, entry| change.edit(false, entry, &number))
    }

    /// Removes entries, written without permissions. Those that a list does not have are ignored.
    ///
    /// # Errors
    /// `EINVAL` if the text is no list of entries.
    pub fn remove(self, entries: &str) -> Result<AclChange> {
        entries.split(',').try_fold(self, |change, entry| change.edit(true, entry, &number))
    }

    /// Adds the change of one entry. `id_of` returns the user (`false`) or group (`true`) of a
    /// name.
    ///
    /// # Errors
    /// `EINVAL` if the text is no entry, or the name is not known.
    pub fn edit(
        mut self,
        removes: bool,
        entry: &str,
        id_of: &dyn Fn(bool, &str) -> Option<u32>,
    ) -> Result<AclChange> {
        let edit = edit_of(removes, entry, id_of);
        let invalid = || {
            let form = if removes { "u:1000 or m" } else { "u:1000:rwX or m::rx" };
            let message = format!("'{entry}' is no entry of an access control list: write {form}");
            Error::refused(Code::Invalid, message)
        };
        self.0.edits.push(edit.ok_or_else(invalid)?);
        Ok(self)
    }

    pub(crate) fn edits(&self) -> &AclEdits {
        &self.0
    }

    /// The change is of the default list.
    pub fn is_of_default(&self) -> bool {
        self.0.default
    }

    /// First everything is removed that a list need not have ([`AclChange::clear`]).
    pub fn clears(&self) -> bool {
        self.0.clears
    }

    /// The mask stays as it is ([`AclChange::keep_mask`]).
    pub fn keeps_mask(&self) -> bool {
        self.0.keeps_mask
    }

    /// Returns the changes of entries as text, in their order: those to be set as setfacl(1) writes
    /// them, with numbers, those to be removed with a `-` in front. [`AclChange::with_entries`]
    /// reads it.
    pub fn entries(&self) -> String {
        self.0.edits.iter().map(text_of).collect::<Vec<_>>().join(",")
    }

    /// Adds changes of entries, as text of [`AclChange::entries`]. Empty text: none.
    ///
    /// # Errors
    /// `EINVAL` if it is no such text.
    pub fn with_entries(self, text: &str) -> Result<AclChange> {
        text.split(',').filter(|entry| !entry.is_empty()).try_fold(
            self,
            |change, entry| match entry.strip_prefix('-') {
                Some(entry) => change.edit(true, entry, &number),
                None => change.edit(false, entry, &number),
            },
        )
    }

    /// Makes the changes of a stored state.
    pub(crate) fn of(edits: AclEdits) -> AclChange {
        AclChange(edits)
    }
}

fn text_of(edit: &AclEdit) -> String {
    let AclEdit { removes, tag, perm, id } = *edit;
    let word = match tag {
        USER | USER_OBJ => "u",
        GROUP | GROUP_OBJ => "g",
        MASK => "m",
        _ => "o",
    };
    let id = if matches!(tag, USER | GROUP) { id.to_string() } else { String::new() };
    if removes {
        return format!("-{word}:{id}");
    }
    let letter = |bit: u8, letter: char| if perm & bit != 0 { letter } else { '-' };
    let perm = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x'), letter(IF_EXECUTABLE, 'X')];
    format!("{word}:{id}:{}", perm.iter().collect::<String>())
}

fn number(_is_group: bool, text: &str) -> Option<u32> {
    text.parse().ok()
}

fn edit_of(
    removes: bool,
    entry: &str,
    id_of: &dyn Fn(bool, &str) -> Option<u32>,
) -> Option<AclEdit> {
    let mut fields: Vec<&str> = entry.trim().split(':').collect();
    let (named, unnamed) = match fields[0] {
        "u" | "user" => (USER, USER_OBJ),
        "g" | "group" => (GROUP, GROUP_OBJ),
        "m" | "mask" => (MASK, MASK),
        "o" | "other" => (OTHER, OTHER),
        _ => return None,
    };
    // Mask and others have no name: "m:r" is "m::r".
    if named == unnamed && !removes && fields.len() == 2 {
        fields.insert(1, "");
    }
    let (name, perm) = match (removes, &fields[1..]) {
        (true, []) => ("", ""),
        (true, [name]) | (true, [name, ""]) => (*name, ""),
        (false, [name, perm]) => (*name, *perm),
        _ => return None,
    };
    let (tag, id) = match name {
        "" => (unnamed, 0),
        _ if named == unnamed => return None,
        // The largest number means nobody.
        name => (named, id_of(named == GROUP, name).filter(|id| *id != u32::MAX)?),
    };
    let perm = if removes { 0 } else { perm_of(perm)? };
    Some(AclEdit { removes, tag, perm, id })
}

fn perm_of(text: &str) -> Option<u8> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Some(digit - b'0');
    }
    let bits = text.bytes().map(|byte| match byte {
        b'r' => Some(4),
        b'w' => Some(2),
        b'x' => Some(1),
        b'X' => Some(IF_EXECUTABLE),
        b'-' => Some(0),
        _ => None,
    });
    let all = bits.collect::<Option<Vec<u8>>>()?;
    (!all.is_empty()).then(|| all.iter().fold(0, |perm, bit| perm | bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_as_setfacl_writes_them() {
        let one = |removes, text| edit_of(removes, text, &number);
        let set = |tag, perm, id| Some(AclEdit { removes: false, tag, perm, id });
        for (text, edit) in [
            ("u::rwx", set(USER_OBJ, 7, 0)),
            ("user:5:r-x", set(USER, 5, 5)),
            ("g:7:6", set(GROUP, 6, 7)),
            ("group::rX", set(GROUP_OBJ, 4 | IF_EXECUTABLE, 0)),
            ("m::r", set(MASK, 4, 0)),
            ("m:r", set(MASK, 4, 0)),
            ("other:-", set(OTHER, 0, 0)),
            ("u:5", None),
            ("u:5:", None),
            ("u:5:8", None),
            ("u:5:rq", None),
            ("u:4294967295:r", None),
            ("m:5:r", None),
            ("u:5:r:w", None),
            ("", None),
        ] {
            assert_eq!(one(false, text), edit, "{text}");
        }
        let gone = |tag, id| Some(AclEdit { removes: true, tag, perm: 0, id });
        assert_eq!(one(true, "u:5"), gone(USER, 5));
        assert_eq!(one(true, "u:5:"), gone(USER, 5));
        assert_eq!((one(true, "m"), one(true, "o")), (gone(MASK, 0), gone(OTHER, 0)));
        assert_eq!(one(true, "u:5:r"), None);
        let all = AclChange::of_default().set("u:5:rX,m::rx,o::-,g::7,u::w").unwrap();
        let all = all.remove("u:7,m,g:9,o").unwrap().keep_mask();
        let text = "u:5:r--X,m::r-x-,o::----,g::rwx-,u::-w--,-u:7,-m:,-g:9,-o:";
        assert_eq!(all.entries(), text);
        let again = AclChange::of_default().keep_mask().with_entries(text).unwrap();
        assert_eq!(again, all);
        assert_eq!(AclChange::of_access().with_entries("").unwrap(), AclChange::of_access());
        assert!(AclChange::of_access().with_entries("-u:5:r").is_err());
        assert_eq!(AclChange::of_access().set("u:1:r,x").unwrap_err().code(), Code::Invalid);
    }
}
