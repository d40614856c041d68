//! The same calls in the same situations on Shoal and on a tmpfs of this kernel, by root and by
//! two ordinary users: errno, result and effect on the whole tree must agree.
//!
//! Every Linux program already relies on the behaviour of the kernel's filesystems, so the
//! expectations are not written down here, they are measured. A case is one call in a tree that is
//! always the same ([`tree`]); after it both trees are compared, name by name ([`tree::Snapshot`]),
//! and restored. A failed call must change nothing. Intended differences are in [`known`], each
//! with its reason, and in `docs/posix.md`.
//!
//! There are tens of thousands of cases. A run takes one in `SHOAL_POSIX_SHARE`, chosen by
//! `SHOAL_POSIX_SEED`; 1 takes all.

#[macro_use]
mod sys;

mod descriptors;
mod known;
mod paths;
mod tree;
mod two_paths;

use crate::common::*;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use tree::{Snapshot, Tree};

/// A caller.
struct User {
    name: &'static str,
    uid: u32,
    groups: &'static [u32],
}

const USERS: [User; 3] = [
    User { name: "root", uid: 0, groups: &[] },
    User { name: "alice", uid: tree::ALICE, groups: &[] },
    User { name: "bob", uid: tree::BOB, groups: &[tree::BOB, tree::ALICE, tree::GROUP] },
];

/// One call, ready to be made in the current directory.
pub(crate) struct Case {
    /// The call as a reader would write it.
    pub what: String,
    /// Something is changed before the call, and so even if it fails.
    pub prepares: bool,
    /// Makes the call; returns its result in words.
    pub run: Box<dyn Fn() -> Res<String> + Sync>,
}

/// A tmpfs beside the mount, as the reference.
struct Reference {
    dir: PathBuf,
}

impl Reference {
    fn new(m: &TestMount) -> Reference {
        let dir = m.base().join("reference");
        std::fs::create_dir(&dir).unwrap();
        // As a Shoal mount is by default.
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", &dir, "tmpfs", flags, c"mode=755,size=64m").unwrap();
        Reference { dir }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        unmount(&self.dir, UnmountFlags::DETACH).unwrap();
    }
}

/// Outcome of a case on one side.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The result in words, or the errno.
    pub answer: String,
    /// Changes in the tree, name by name.
    pub effect: Vec<String>,
}

/// Both trees, and the results so far.
struct Comparison {
    sides: [Tree; 2],
    /// Shoal checks permissions, not the kernel.
    shoal_checks: bool,
    pristine: [Snapshot; 2],
    /// Cases since the trees were last compared.
    unchecked: Vec<String>,
    compared: usize,
    excused: BTreeMap<&'static str, usize>,
    problems: Vec<String>,
}

/// Failed calls after which the trees are compared at the latest.
const UNCHECKED_MAX: usize = 64;

impl Comparison {
    fn new(reference: &Reference, m: &TestMount, shoal_checks: bool) -> Comparison {
        let sides = [Tree::new(&reference.dir), Tree::new(&m.dir)];
        let pristine = [sides[0].look(), sides[1].look()];
        let mut comparison = Comparison {
            sides,
            shoal_checks,
            pristine,
            unchecked: Vec::new(),
            compared: 0,
            excused: BTreeMap::new(),
            problems: Vec::new(),
        };
        comparison.expect_equal_trees();
        comparison
    }

    fn expect_equal_trees(&mut self) {
        let [reference, shoal] = &self.pristine;
        assert_eq!(reference.facts(), shoal.facts(), "the trees differ from the beginning");
    }

    fn run(&mut self, user: &User, case: &Case) {
        let answers = self.sides.each_ref().map(|side| side.run_as(user, &case.run));
        let what = format!("{}: {}", user.name, case.what);
        self.compared += 1;
        self.unchecked.push(what.clone());
        let failed = !case.prepares && answers.iter().all(Result::is_err);
        let words = answers.map(|answer| answer.unwrap_or_else(sys::name));
        let effects = match failed && self.unchecked.len() < UNCHECKED_MAX {
            true => [Vec::new(), Vec::new()],
            false => self.effects(),
        };
        if failed && effects.iter().any(|effect| !effect.is_empty()) {
            let cases = self.unchecked.join("\n  ");
            self.problems.push(format!("an effect of one of these:\n  {cases}\n  {effects:?}"));
            return self.rebuild();
        }
        let changed = effects.iter().any(|effect| !effect.is_empty());
        let [reference, shoal]: [Outcome; 2] = words
            .into_iter()
            .zip(effects)
            .map(|(answer, effect)| Outcome { answer, effect })
            .collect::<Vec<_>>()
            .try_into()
            .ok()
            .unwrap();
        if reference != shoal {
            match known::excuse(self.shoal_checks, &case.what, &reference, &shoal) {
                Some(reason) => *self.excused.entry(reason).or_default() += 1,
                None => self.problems.push(describe(&what, &reference, &shoal)),
            }
        }
        if changed {
            self.rebuild();
        }
    }

    /// Returns the changes in both trees since they were built.
    fn effects(&mut self) -> [Vec<String>; 2] {
        self.unchecked.clear();
        [0, 1].map(|side| self.pristine[side].changes_to(&self.sides[side].look()))
    }

    fn rebuild(&mut self) {
        for side in [0, 1] {
            self.sides[side].rebuild();
            self.pristine[side] = self.sides[side].look();
        }
        self.expect_equal_trees();
    }
}

/// Describes a difference.
fn describe(what: &str, reference: &Outcome, shoal: &Outcome) -> String {
    let mut text = format!("{what}\n    reference {}, shoal {}", reference.answer, shoal.answer);
    if reference.effect != shoal.effect {
        for (name, outcome) in [("reference", reference), ("shoal", shoal)] {
            text += &format!("\n    {name}: {}", outcome.effect.join(" | "));
        }
    }
    text
}

/// Reads a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Returns whether a run takes this case.
fn taken(user: &User, case: &Case, share: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (setting("SHOAL_POSIX_SEED", 1), user.uid, &case.what).hash(&mut hasher);
    hasher.finish().is_multiple_of(setting("SHOAL_POSIX_SHARE", share))
}

/// Compares one in `share` of the cases, on a read-only mount if `read_only`.
fn compare(options: &str, read_only: bool, share: u64, cases: &[Case]) {
    let Some(mut m) = mount(options) else { return };
    let reference = Reference::new(&m);
    let mut comparison = Comparison::new(&reference, &m, options == SHOAL_CHECKS);
    if read_only {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(&reference.dir, flags, c"").unwrap();
        if m.is_native() {
            return skipped("a native directory is not made read-only");
        }
        m.remount_with(&format!("{options},ro"));
        comparison.pristine = comparison.sides.each_ref().map(Tree::look);
    }
    for case in cases {
        for user in USERS.iter().filter(|user| taken(user, case, share)) {
            comparison.run(user, case);
        }
    }
    let left = comparison.effects();
    assert!(left.iter().all(Vec::is_empty), "failed calls have changed something: {left:?}");
    let Comparison { compared, excused, problems, .. } = comparison;
    let all = cases.len() * USERS.len();
    println!("{options}: {compared} of {all} compared, {excused:?} differ on purpose");
    for problem in &problems {
        println!("{problem}");
    }
    assert!(problems.is_empty(), "{} of {compared} differ, see above", problems.len());
}

const KERNEL_CHECKS: &str = "allow_other";
const SHOAL_CHECKS: &str = "allow_other,no_default_permissions";

#[test]
fn calls_with_a_path() {
    compare(KERNEL_CHECKS, false, 64, &paths::cases());
}

#[test]
fn calls_with_a_path_checked_by_shoal() {
    compare(SHOAL_CHECKS, false, 64, &paths::cases());
}

#[test]
fn calls_with_a_path_on_a_read_only_mount() {
    compare(KERNEL_CHECKS, true, 32, &paths::cases());
}

#[test]
fn calls_with_two_paths() {
    compare(KERNEL_CHECKS, false, 96, &two_paths::cases());
}

#[test]
fn calls_with_two_paths_checked_by_shoal() {
    compare(SHOAL_CHECKS, false, 96, &two_paths::cases());
}

#[test]
fn calls_with_a_descriptor() {
    compare(KERNEL_CHECKS, false, 16, &descriptors::cases());
}

#[test]
fn calls_with_a_descriptor_checked_by_shoal() {
    compare(SHOAL_CHECKS, false, 32, &descriptors::cases());
}

#[test]
fn the_page_tells_every_known_difference() {
    let page = include_str!("../../../../../docs/posix.md");
    for known in known::DIFFERENCES {
        assert!(page.contains(known.reason), "docs/posix.md does not say: {}", known.reason);
    }
}
