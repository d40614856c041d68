//! Profiles of runs: weights of the families of operations, and sizes.

/// Profile of a run: weights of the families of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// For reports.
    pub name: &'static str,
    pub(super) make: u64,
    pub(super) remove: u64,
    pub(super) rename: u64,
    pub(super) attributes: u64,
    pub(super) contents: u64,
    pub(super) open_files: u64,
    pub(super) questions: u64,
    pub(super) durability: u64,
    pub(super) roots: u64,
    /// Roots at a time: each takes space before anything is in it.
    pub(super) roots_max: usize,
    /// Of 100 removals, how many are of whole trees.
    pub(super) trees: u64,
    /// Of 1,000 operations, how many are crashes.
    pub(super) crashes_per_mille: u64,
    /// Names: small pools collide, large ones fill directories.
    pub(super) names: u64,
    /// Largest usual write.
    pub(super) write_max: u64,
    /// Of 100 changes of contents, how many are bursts: thousands of small writes at a stride, then
    /// one call over all of them.
    pub(super) bursts: u64,
}

const GENERAL: Profile = Profile {
    name: "general",
    make: 22,
    remove: 12,
    rename: 10,
    attributes: 12,
    contents: 22,
    open_files: 6,
    questions: 12,
    durability: 4,
    roots: 1,
    roots_max: 4,
    trees: 6,
    crashes_per_mille: 8,
    names: 12,
    write_max: 20_000,
    bursts: 0,
};

/// Every profile.
pub const PROFILES: &[Profile] = &[
    GENERAL,
    Profile { name: "names", make: 40, rename: 30, contents: 3, names: 8, ..GENERAL },
    Profile { name: "many", make: 70, remove: 8, contents: 6, names: 4_000, ..GENERAL },
    Profile { name: "churn", make: 40, remove: 38, contents: 20, names: 300, ..GENERAL },
    Profile { name: "data", make: 6, remove: 3, contents: 70, names: 5, ..GENERAL },
    Profile { name: "large", contents: 60, names: 6, write_max: 600_000, ..GENERAL },
    Profile { name: "trees", make: 60, trees: 40, names: 30, crashes_per_mille: 15, ..GENERAL },
    Profile { name: "roots", roots: 25, remove: 4, names: 8, ..GENERAL },
    Profile { name: "attributes", attributes: 60, names: 6, crashes_per_mille: 15, ..GENERAL },
    Profile { name: "sync", durability: 40, crashes_per_mille: 15, ..GENERAL },
];

/// A user who wants to do harm: files of thousands of pieces and calls over all of them, far
/// offsets, roots, links, long names. Not drawn like the others, so that their seeds mean what they
/// meant: `cargo xtask sim --profile adversary`.
pub(super) const ADVERSARY: Profile = Profile {
    name: "adversary",
    make: 20,
    remove: 8,
    rename: 8,
    attributes: 14,
    contents: 60,
    open_files: 6,
    questions: 4,
    roots: 6,
    trees: 20,
    names: 9,
    crashes_per_mille: 4,
    write_max: 1_200_000,
    bursts: 12,
    ..GENERAL
};

/// Batches most of all. Not drawn like the others, of which three in four seeds have some batches
/// between their other operations.
pub(super) const BATCHES: Profile = Profile {
    name: "batches",
    make: 30,
    durability: 10,
    names: 20,
    crashes_per_mille: 20,
    ..GENERAL
};

/// Hundreds of roots with the longest names. Not drawn like the others: see [`FULL`].
pub(super) const MANY_ROOTS: Profile = Profile {
    name: "many roots",
    roots: 400,
    roots_max: 300,
    durability: 10,
    crashes_per_mille: 4,
    ..GENERAL
};

/// For small volumes: fills them with data and names, removes, and fills them again. Not drawn like
/// the others, so that the seeds of before mean what they meant: see [`runs_full`].
pub(super) const FULL: Profile = Profile {
    name: "full",
    make: 30,
    remove: 6,
    rename: 6,
    attributes: 6,
    contents: 60,
    open_files: 8,
    questions: 4,
    trees: 15,
    names: 60,
    crashes_per_mille: 10,
    write_max: 700_000,
    ..GENERAL
};

/// Returns whether the runs of a seed are on a small volume that they fill.
pub fn runs_full(seed: u64) -> bool {
    seed % 10 == 7
}

/// The profile of this name.
pub fn profile_named(name: &str) -> Option<Profile> {
    PROFILES
        .iter()
        .chain([&FULL, &ADVERSARY, &MANY_ROOTS, &BATCHES])
        .find(|p| p.name == name)
        .copied()
}
