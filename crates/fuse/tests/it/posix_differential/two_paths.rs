//! Calls that take two paths: every pair of them.

use super::Case;
use libc::{AT_FDCWD, AT_SYMLINK_FOLLOW, SYS_linkat, SYS_renameat2};
use std::ffi::CString;

/// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`, and an unknown flag.
const FLAGS: [(&str, u32); 7] = [
    ("rename", 0),
    ("rename NOREPLACE", 1),
    ("rename EXCHANGE", 2),
    ("rename WHITEOUT", 4),
    ("rename NOREPLACE|EXCHANGE", 3),
    ("rename EXCHANGE|WHITEOUT", 6),
    ("rename with bad flags", 8),
];

fn paths() -> Vec<CString> {
    let written = "file shared suid one two dir open open/sub empty alices alices/roots \
        alices/inner setgid sticky fifo socket device tofile todir dangling loop missing \
        open/inner open/roots open/new open/sub/new dir/inner dir/new alices/new groups/new \
        setgid/new sticky/alice sticky/bob sticky/alices sticky/new hersticky/bob hersticky/new \
        locked/inner locked/new unsearchable/new hidden/inner hidden/new readonly/inner \
        readonly/new missing/x file/x file/ open/ empty/ missing/ todir/ todir/new dangling/ . .. \
        open/sub/.. /sys/new";
    let mut list: Vec<_> = written.split_whitespace().map(str::to_owned).collect();
    list.push(String::new());
    list.push("n".repeat(255));
    list.push("n".repeat(256));
    list.into_iter().map(|path| CString::new(path).unwrap()).collect()
}

/// Returns every call with every pair of paths.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for from in paths() {
        for to in paths() {
            pair(&mut cases, &from, &to);
        }
    }
    cases
}

fn pair(cases: &mut Vec<Case>, from: &CString, to: &CString) {
    let shown = |path: &CString| match path.to_bytes().len() {
        ..=200 => path.to_string_lossy().into_owned(),
        len => format!("({len} bytes)"),
    };
    let mut add = |name: &str, number: i64, flags: u32| {
        let what = format!("{name} \"{}\" \"{}\"", shown(from), shown(to));
        let (from, to) = (from.clone(), to.clone());
        let run = move || {
            let outcome = sys!(number, AT_FDCWD, &*from, AT_FDCWD, &*to, flags);
            outcome.map(|value| value.to_string())
        };
        cases.push(Case { what, prepares: false, run: Box::new(run) });
    };
    for (name, flags) in FLAGS {
        add(name, SYS_renameat2, flags);
    }
    add("link", SYS_linkat, 0);
    add("link FOLLOW", SYS_linkat, AT_SYMLINK_FOLLOW as u32);
}
