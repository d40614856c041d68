//! Names of users and groups, as this machine has them in `/etc/passwd` and `/etc/group`.
//!
//! A volume holds numbers alone. Accounts of other sources (a directory service) have no names
//! here, and are shown as numbers.

use std::collections::HashMap;
use std::path::Path;

/// The names of users and groups.
#[derive(Default, Debug)]
pub(crate) struct Accounts {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
    uids: HashMap<String, u32>,
    gids: HashMap<String, u32>,
}

impl Accounts {
    /// Reads the accounts of this machine. A file that cannot be read has none.
    pub(crate) fn of_this_machine() -> Accounts {
        let read = |path: &str| {
            let bytes = std::fs::read(Path::new(path)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Accounts::parse(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// Reads the texts of the two files. Of several entries with a number or name the first counts.
    fn parse(passwd: &str, group: &str) -> Accounts {
        let mut accounts = Accounts::default();
        for (name, uid) in entries(passwd) {
            accounts.users.entry(uid).or_insert_with(|| name.to_owned());
            accounts.uids.entry(name.to_owned()).or_insert(uid);
        }
        for (name, gid) in entries(group) {
            accounts.groups.entry(gid).or_insert_with(|| name.to_owned());
            accounts.gids.entry(name.to_owned()).or_insert(gid);
        }
        accounts
    }

    /// Returns the name of a user.
    pub(crate) fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    /// Returns the name of a group.
    pub(crate) fn group(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }

    /// Returns the name of a user, or the number.
    pub(crate) fn user_or_number(&self, uid: u32) -> String {
        self.user(uid).map_or_else(|| uid.to_string(), str::to_owned)
    }

    /// Returns the name of a group, or the number.
    pub(crate) fn group_or_number(&self, gid: u32) -> String {
        self.group(gid).map_or_else(|| gid.to_string(), str::to_owned)
    }

    /// Returns the number of a user, given by name or number.
    pub(crate) fn uid(&self, text: &str) -> Option<u32> {
        self.uids.get(text).copied().or_else(|| number(text))
    }

    /// Returns the number of a group, given by name or number.
    pub(crate) fn gid(&self, text: &str) -> Option<u32> {
        self.gids.get(text).copied().or_else(|| number(text))
    }
}

/// Returns names and numbers of the lines `name:password:number:...`.
fn entries(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (!name.is_empty()).then_some((name, number(id)?))
    })
}

fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let passwd =
            "root:x:0:0:root:/:/bin/sh\ntoor:x:0:0::/:\nann:x:1000:5\n# no entry\n+::\n7:x:8:";
        let accounts = Accounts::parse(passwd, "users:x:100:\n");
        assert_eq!((accounts.user(0), accounts.user(1)), (Some("root"), None));
        assert_eq!(accounts.uid("toor"), Some(0));
        assert_eq!(accounts.uid("7"), Some(8), "a name comes before a number");
        assert_eq!(accounts.uid("12"), Some(12));
        for bad in ["nobody-here", "", "-1", "+1", "4294967296"] {
            assert_eq!(accounts.uid(bad), None, "{bad}");
        }
        assert_eq!(accounts.gid("users"), Some(100));
        assert_eq!(accounts.user_or_number(1000) + &accounts.group_or_number(5), "ann5");
    }
}
