//! Words that must not stay: notes to self, machine paths, unsafe code outside its few files.

use super::Problem;
use crate::repository::Repository;
use crate::source::Source;
use std::path::Path;

/// The only files, or folders, that may hold unsafe code, each with the reason.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("crates/base/src/fork.rs", "a page that the kernel zeroes in a child of fork"),
    ("crates/base/src/memory.rs", "a global allocator with a reserve"),
    ("crates/base/src/prefetch.rs", "the processor's instruction to load a cache line"),
    ("crates/engine/tests/memory.rs", "a global allocator that fails when told to"),
    ("crates/engine/tests/shared_lines", "memory whose every access is noted: signal handlers"),
    ("crates/sim/src/memory.rs", "an allocator that refuses on demand"),
    ("crates/journal/src/ring.rs", "many threads copy records into one buffer without a lock"),
    ("crates/journal/src/sum.rs", "the processor's instruction for a checksum"),
    ("crates/journal/src/memory.rs", "a mapped file, in which the ring of a killed process lies"),
    ("crates/device/src/discard.rs", "the ioctl that discards a range of a block device"),
    ("crates/session/src/memory.rs", "a mapped file, which another process has mapped too"),
    ("crates/session/src/peer.rs", "the credentials of a peer in another pid namespace"),
    ("crates/fuse/src/apart.rs", "a thread with descriptors of its own"),
    ("crates/fuse/src/preemptions.rs", "what the kernel counts of a thread"),
    ("crates/fuse/src/transport/apart.rs", "the descriptor that such a thread keeps"),
    ("crates/fuse/src/transport/device.rs", "the ioctl that clones a FUSE descriptor"),
    (
        "crates/fuse/src/transport/uring/slots.rs",
        "memory that the kernel and the server use in turn",
    ),
    ("crates/fuse/src/transport/uring/lane.rs", "submissions to a ring, which are addresses"),
    ("crates/fuse/src/control.rs", "the ioctls by which a mount is synced and its server found"),
    ("crates/xarray/src/entry.rs", "an Arc as the pointer in a slot, and back"),
    ("crates/xarray/src/epoch.rs", "what is freed later must be out of reach: promised, not seen"),
    ("crates/xarray/src/node", "nodes are reached by raw pointers, and freed when nobody can"),
    ("crates/xarray/src/tests/model.rs", "an Arc of which the model checker sees the counter"),
    ("crates/shoal/tests/it/fork.rs", "fork, which nobody has wrapped, as it cannot be safe"),
    ("crates/fuse/tests", "system calls that nobody has wrapped: file handles, forks"),
    ("crates/run/src/abi", "functions of the C library, which take the program's pointers"),
    ("crates/run/src/kernel.rs", "system calls, and the functions that this library replaces"),
    ("crates/run/src/answer.rs", "structures of the C library, which begin as zeros"),
    ("crates/run/src/listing.rs", "the pointer that stands for the C library's DIR"),
    ("crates/peers/src/engines/lmdb/env.rs", "the memory map of a database: promised, not seen"),
];

/// Folders whose functions have the contracts of functions of the C library, as the head of each
/// file says: only blocks need reasons of their own.
const OF_THE_C_LIBRARY: &[&str] = &["crates/run/src/abi"];

/// Words and macros of work that is not finished, in halves so that this file does not hold them.
const UNFINISHED: &[(&str, &str)] = &[("FIX", "ME"), ("TO", "DO"), ("XX", "X")];
const UNFINISHED_MACROS: &[(&str, &str)] = &[("to", "do!"), ("unimple", "mented!"), ("db", "g!")];

/// Folders of build machines for checkouts and homes, in halves for the same reason.
const MACHINE_PATHS: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/ro", "ot/"), ("/Us", "ers/"), ("/bui", "lds/")];

/// Lines above `unsafe` in which its reason may begin.
const SAFETY_WITHIN: usize = 8;

/// Checks the code of one Rust file.
pub(super) fn check_rust(path: &Path, source: &Source, problems: &mut Vec<Problem>) {
    for (head, tail) in UNFINISHED_MACROS {
        let word = format!("{head}{tail}");
        for (at, _) in source.code.match_indices(&word) {
            problems.push(Problem::new(path, source.line_of(at), format!("{word}: finish it")));
        }
    }
    let allowed = UNSAFE_FILES.iter().any(|(place, _)| path.starts_with(place));
    let lines: Vec<&str> = source.text.lines().collect();
    for at in source.words("unsafe") {
        let line = source.line_of(at);
        if !allowed {
            let message = "unsafe code outside the files that the tidy rule lists for it";
            problems.push(Problem::new(path, line, message));
        }
        let is_block = source.text[at..].trim_start_matches("unsafe").trim_start().starts_with('{');
        if !is_block && OF_THE_C_LIBRARY.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let above = &lines[line.saturating_sub(SAFETY_WITHIN)..line];
        if !above.iter().any(|text| text.contains("SAFETY:") || text.contains("# Safety")) {
            let message = "unsafe without `// SAFETY:` above it, saying why it holds";
            problems.push(Problem::new(path, line, message));
        }
    }
}

/// Checks any text file.
pub(super) fn check_text(
    repository: &Repository,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Result<(), String> {
    let text = repository.read(path)?;
    check_lines(path, &text, problems);
    Ok(())
}

fn check_lines(path: &Path, text: &str, problems: &mut Vec<Problem>) {
    for (number, line) in text.lines().enumerate() {
        for (head, tail) in UNFINISHED {
            let word = format!("{head}{tail}");
            if stands_alone(line, &word) {
                let message = format!("{word}: finish it, or open an issue");
                problems.push(Problem::new(path, number + 1, message));
            }
        }
        for (head, tail) in MACHINE_PATHS {
            let place = format!("{head}{tail}");
            if begins_a_path(line, &place) {
                let message = format!("{place}… is a path of one machine");
                problems.push(Problem::new(path, number + 1, message));
            }
        }
    }
}

fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let part_of_word = |c: Option<char>| c.is_some_and(|c| c == '_' || c.is_alphanumeric());
        !part_of_word(before) && !part_of_word(after)
    })
}

fn begins_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> usize {
        let mut problems = Vec::new();
        check_lines(Path::new("a.md"), text, &mut problems);
        problems.len()
    }

    fn of_rust(path: &str, text: &str) -> usize {
        let mut problems = Vec::new();
        check_rust(Path::new(path), &Source::new(text), &mut problems);
        problems.len()
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(of_text(concat!("// TO", "DO: later")), 1);
        assert_eq!(of_text(concat!("MASTO", "DON")), 0);
        assert_eq!(of_rust("a.rs", concat!("fn f() { to", "do!() }")), 1);
        assert_eq!(of_rust("a.rs", concat!("fn f() { \"to", "do!()\"; }")), 0);
    }

    #[test]
    fn machine_paths_are_found() {
        assert_eq!(of_text(concat!("see /wo", "rk/main")), 1);
        assert_eq!(of_text(concat!("crates/wo", "rk/a and mnt/ho", "me/b")), 0);
    }

    #[test]
    fn unsafe_code_needs_its_file_and_its_reason() {
        let ring = "crates/journal/src/ring.rs";
        assert_eq!(of_rust(ring, "// SAFETY: one writer.\nunsafe { f() }"), 0);
        assert_eq!(of_rust(ring, "unsafe { f() }"), 1);
        assert_eq!(of_rust("crates/a.rs", "// SAFETY: one writer.\nunsafe { f() }"), 1);
        assert_eq!(of_rust("crates/a.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    }
}
