//! Permission bits as chmod(1) writes them: octal, or changes such as `u=rwx,g+w`.

use shoal_format::tree_change::{Clause, Source};

/// Changes of permission bits, as of chmod(1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange(Vec<Clause>);

const SET_ID: u32 = 0o6000;
const USER: u32 = 0o4700;
const GROUP: u32 = 0o2070;
const OTHER: u32 = 0o1007;
const ALL: u32 = 0o7777;

impl ModeChange {
    /// Reads an octal mode, or symbolic changes.
    pub fn parse(text: &str) -> Option<ModeChange> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let value = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= ALL)?;
            // Only five digits name the set-id bits that they clear.
            let mentioned = if text.len() < 5 { value & ALL | 0o777 } else { ALL };
            let source = Source::Bits;
            return Some(ModeChange(vec![Clause {
                operator: b'=',
                source,
                affected: ALL as u16,
                value: value as u16,
                mentioned: mentioned as u16,
            }]));
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            clause_of(clause.as_bytes(), &mut changes)?;
        }
        Some(ModeChange(changes))
    }

    /// Returns the changes, in their order.
    pub(crate) fn clauses(&self) -> &[Clause] {
        &self.0
    }

    /// Makes the changes of a stored state.
    pub(crate) fn of(clauses: Vec<Clause>) -> ModeChange {
        ModeChange(clauses)
    }

    /// Returns a mode's permission bits after the changes.
    pub fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        self.0.iter().fold(mode & ALL, |mode, change| {
            let mentioned = u32::from(change.mentioned);
            let omitted = if is_directory { SET_ID & !mentioned } else { 0 };
            let mut value = u32::from(change.value);
            match change.source {
                Source::Bits => {}
                Source::Executable if is_directory || mode & 0o111 != 0 => value |= 0o111,
                Source::Executable => {}
                Source::Users => {
                    let of_users = mode & value;
                    let spread = |bits: u32| if of_users & bits != 0 { bits } else { 0 };
                    value = spread(0o444) | spread(0o222) | spread(0o111);
                }
            }
            let affected = u32::from(change.affected);
            value &= if affected != 0 { affected } else { !umask } & !omitted;
            match change.operator {
                b'+' => mode | value,
                b'-' => mode & !value,
                _ => mode & (if affected != 0 { !affected } else { 0 } | omitted) | value,
            }
        })
    }
}

/// Reads `ug+rw-x`: users, and one or more operators with permissions.
fn clause_of(clause: &[u8], changes: &mut Vec<Clause>) -> Option<()> {
    let mut at = 0;
    let mut affected = 0;
    while let Some(users) = clause.get(at).and_then(|byte| users_of(*byte)) {
        affected |= users;
        at += 1;
    }
    if at == clause.len() {
        return None;
    }
    while at < clause.len() {
        let operator = clause[at];
        if !matches!(operator, b'+' | b'-' | b'=') {
            return None;
        }
        at += 1;
        let (mut value, mut source) = (0, Source::Bits);
        let copied = clause.get(at).filter(|byte| **byte != b'a').and_then(|byte| users_of(*byte));
        if let Some(users) = copied {
            (value, source) = (users & 0o777, Source::Users);
            at += 1;
        }
        while source != Source::Users
            && let Some(byte) = clause.get(at)
        {
            match byte {
                b'r' => value |= 0o444,
                b'w' => value |= 0o222,
                b'x' => value |= 0o111,
                b'X' => source = Source::Executable,
                b's' => value |= SET_ID,
                b't' => value |= 0o1000,
                _ => break,
            }
            at += 1;
        }
        let mentioned = if affected != 0 { affected & value } else { value };
        let bits = [affected, value, mentioned].map(|bits: u32| bits as u16);
        let [affected, value, mentioned] = bits;
        changes.push(Clause { operator, source, affected, value, mentioned });
    }
    Some(())
}

fn users_of(byte: u8) -> Option<u32> {
    match byte {
        b'u' => Some(USER),
        b'g' => Some(GROUP),
        b'o' => Some(OTHER),
        b'a' => Some(ALL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_chmod_does() {
        let cases: &[(&str, u32, bool, Option<u32>)] = &[
            ("644", 0o777, false, Some(0o644)),
            ("7777", 0, false, Some(0o7777)),
            ("755", 0o6700, true, Some(0o6755)),
            ("00755", 0o6700, true, Some(0o755)),
            ("755", 0o6700, false, Some(0o755)),
            ("u=rwx,g=rx,o=", 0o777, false, Some(0o750)),
            ("g+w,o+w", 0, false, Some(0o022)),
            ("a+x", 0o640, false, Some(0o751)),
            ("+w", 0, false, Some(0o200)),
            ("=rw", 0o7777, false, Some(0o644)),
            ("u+s,g+s", 0o755, false, Some(0o6755)),
            ("u=rwx", 0o4000, true, Some(0o4700)),
            ("u=rwx", 0o4000, false, Some(0o700)),
            ("u-s", 0o4700, true, Some(0o700)),
            ("+t", 0o777, true, Some(0o1777)),
            ("u+t", 0o777, true, Some(0o777)),
            ("u+rw-x", 0o100, false, Some(0o600)),
            ("a+X", 0o600, false, Some(0o600)),
            ("a+X", 0o600, true, Some(0o711)),
            ("a+X", 0o610, false, Some(0o711)),
            ("g=u,o=g", 0o750, false, Some(0o777)),
            ("a=", 0o7777, false, Some(0)),
            ("", 0, false, None),
            ("8", 0, false, None),
            ("77777", 0, false, None),
            ("u", 0, false, None),
            ("u+y", 0, false, None),
            ("u+r,", 0, false, None),
            ("zzz", 0, false, None),
        ];
        for (text, mode, is_directory, expected) in cases {
            let changed = ModeChange::parse(text).map(|it| it.apply(*mode, *is_directory, 0o022));
            assert_eq!(changed, *expected, "{text} of {mode:o}");
        }
    }
}
