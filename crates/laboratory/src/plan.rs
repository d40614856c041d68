//! Sizes of a run: how much of each experiment is done.

/// A size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// Everything once, tiny: only to see that it works.
    Smoke,
    /// Ten minutes on two processors.
    Quick,
    /// As much as a claim needs.
    Full,
}

impl Size {
    /// The word in commands and reports.
    pub(crate) fn word(self) -> &'static str {
        self.of(["smoke", "quick", "full"])
    }

    /// The value for this size, of those for all.
    pub(crate) fn of<T: Copy>(self, [smoke, quick, full]: [T; 3]) -> T {
        match self {
            Size::Smoke => smoke,
            Size::Quick => quick,
            Size::Full => full,
        }
    }

    /// Rounds of each experiment.
    pub(crate) fn rounds(self) -> u32 {
        self.of([1, 3, 5])
    }
}
