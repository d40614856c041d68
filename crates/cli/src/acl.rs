//! Access control lists: the entries in the bytes of their attributes, and their text in archives.
//!
//! `user::rwx`, `user:1000:r-x`, ..., one a line. Users are written as numbers. Names are read,
//! too, and a number behind the permissions, as star writes it.

use crate::accounts::Accounts;

/// Name of the access list.
pub(crate) const ACCESS: &str = "system.posix_acl_access";
/// Name of the default list.
pub(crate) const DEFAULT: &str = "system.posix_acl_default";

/// Version in front of the entries.
const VERSION: u32 = 2;
/// Id of entries that are for no one user or group.
const NO_ID: u32 = u32::MAX;

/// Tag of the owner.
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

/// Tags of entries with their words, in the order in which entries stand; and if they are for one
/// user or group.
const TAGS: [(u16, &str, bool); 6] = [
    (USER_OBJ, "user", false),
    (USER, "user", true),
    (GROUP_OBJ, "group", false),
    (GROUP, "group", true),
    (MASK, "mask", false),
    (OTHER, "other", false),
];

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    /// Whom it is for.
    pub tag: u16,
    /// The user or group, if it is for one.
    pub id: Option<u32>,
    /// Permissions: read 4, write 2, execute 1.
    pub bits: u16,
}

impl Entry {
    /// Returns the word for its tag.
    pub(crate) fn word(&self) -> &'static str {
        TAGS.iter().find(|(tag, ..)| *tag == self.tag).map_or("", |(_, word, _)| word)
    }
}

/// Returns permissions as `rwx`.
pub(crate) fn permissions(bits: u16) -> String {
    let bit = |bit, letter| if bits & bit != 0 { letter } else { '-' };
    [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')].iter().collect()
}

/// Returns the entries of a list; `None` if the bytes are none.
pub(crate) fn entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    let (entries, []) = entries.as_chunks::<8>() else { return None };
    let entry = |&[t0, t1, p0, p1, ref id @ ..]: &[u8; 8]| {
        let tag = u16::from_le_bytes([t0, t1]);
        let (_, _, has_id) = TAGS.iter().find(|(it, ..)| *it == tag)?;
        let id = has_id.then_some(u32::from_le_bytes(*id));
        Some(Entry { tag, id, bits: u16::from_le_bytes([p0, p1]) })
    };
    (u32::from_le_bytes(*version) == VERSION).then(|| entries.iter().map(entry).collect())?
}

/// Returns the text of a list; `None` if the bytes are none.
pub(crate) fn to_text(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = |entry: &Entry| {
        let id = entry.id.map_or(String::new(), |id| id.to_string());
        format!("{}:{id}:{}\n", entry.word(), permissions(entry.bits))
    };
    Some(entries(bytes)?.iter().map(line).collect::<String>().into_bytes())
}

/// Returns the bytes of a list; `None` if the text is none.
pub(crate) fn from_text(text: &[u8], accounts: &Accounts) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for line in text.split(['\n', ',']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            entries.push(entry(line, accounts)?);
        }
    }
    entries.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for Entry { tag, id, bits } in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.unwrap_or(NO_ID).to_le_bytes());
    }
    Some(bytes)
}

fn entry(line: &str, accounts: &Accounts) -> Option<Entry> {
    let line = line.strip_prefix("default:").unwrap_or(line);
    let fields: Vec<&str> = line.split(':').map(str::trim).collect();
    let (word, name, permissions, number) = match fields[..] {
        [word, permissions] => (word, "", permissions, None),
        [word, name, permissions] => (word, name, permissions, None),
        [word, name, permissions, number] => (word, name, permissions, Some(number)),
        _ => return None,
    };
    let is_word = |it: &str| it == word || it.get(..1) == Some(word);
    let (tag, ..) = TAGS.iter().find(|(_, it, id)| is_word(it) && *id != name.is_empty())?;
    let bit = |letter| match letter {
        'r' => Some(4),
        'w' => Some(2),
        'x' => Some(1),
        '-' => Some(0),
        _ => None,
    };
    let bits = permissions.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?))?;
    let id = match (*tag, name) {
        (_, "") => None,
        (USER, name) => Some(accounts.uid(name).or_else(|| number?.parse().ok())?),
        (_, name) => Some(accounts.gid(name).or_else(|| number?.parse().ok())?),
    };
    Some(Entry { tag: *tag, id, bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let text =
            "user::rwx\nuser:7:r-x\nuser:9:---\ngroup::r--\ngroup:8:-w-\nmask::rwx\nother::---\n";
        let bytes = from_text(text.as_bytes(), &Accounts::default()).expect("a list");
        assert_eq!(bytes.len(), 4 + 7 * 8);
        assert_eq!(to_text(&bytes), Some(text.as_bytes().to_vec()));
    }

    #[test]
    fn other_ways_to_write_it() {
        let accounts = Accounts::default();
        let plain =
            from_text(b"user::rwx\nuser:5:r--\ngroup::r-x\nmask::r-x\nother::r-x\n", &accounts);
        let star = b"other::r-x,m:r-x,g::r-x, u:lisa:r--:5 #effective:r--\n,u::rwx";
        assert!(plain.is_some());
        assert_eq!(from_text(star, &accounts), plain);
    }

    #[test]
    fn what_is_none() {
        for bad in
            ["user", "user:lisa:rwx", "user::rwz", "everybody::rwx", "a:b:c:d:e", "mask:5:rwx"]
        {
            assert_eq!(from_text(bad.as_bytes(), &Accounts::default()), None, "{bad}");
        }
        assert_eq!(to_text(&[2, 0, 0, 0, 1]), None);
        assert_eq!(to_text(&[3, 0, 0, 0]), None);
        assert_eq!(to_text(&[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
