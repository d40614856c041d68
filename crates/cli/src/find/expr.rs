//! The expression: tests and actions, joined by operators.

use std::ffi::OsString;
use std::time::Duration;

use shoal::raw::{FileKind, Ino, Time};

use super::exec::Exec;
use super::perm::Perm;
use super::printf::Format;
use super::regex::PathRegex;
use super::stamp::Stamp;
use shoal::raw::glob;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// An expression.
#[derive(Debug)]
pub(crate) enum Expr {
    /// True or false by the file's properties.
    Test(Test),
    /// Does something; most are true.
    Action(Action),
    /// `!`
    Not(Box<Expr>),
    /// `-a`: true if all are; ends at the first that is false.
    And(Vec<Expr>),
    /// `-o`: true if one is; ends at the first that is true.
    Or(Vec<Expr>),
    /// `,`: all are evaluated; the value is that of the last.
    List(Vec<Expr>),
}

/// A test of one file.
#[derive(Debug)]
pub(crate) enum Test {
    /// `-true`, `-false`, and options, which are true.
    Always(bool),
    /// `-name`, `-iname`
    Name(Pattern),
    /// `-path`, `-ipath`
    Path(Pattern),
    /// `-lname`, `-ilname`: the target of a symlink.
    Target(Pattern),
    /// `-regex`, `-iregex`
    Regex(PathRegex),
    /// `-type`
    Type(Vec<FileKind>),
    /// `-xtype`: of what a symlink leads to; of one that leads nowhere, the symlink.
    Followed(Vec<FileKind>),
    /// `-size`: in units of so many bytes, rounded up.
    Size(Number, u64),
    /// `-mtime` and its like
    Age(Stamp, Age),
    /// `-newer` and its like: the file's stamp is later than the time.
    Newer(Stamp, Reference),
    /// `-samefile`
    Same(Same),
    /// `-links`, `-inum`, `-uid`, `-gid`, `-user`, `-group`
    Field(Field, Number),
    /// `-nouser`, `-nogroup`: the field has no name on this machine.
    Nameless(Field),
    /// `-perm`
    Perm(Perm),
    /// `-empty`
    Empty,
}

/// An action on one file.
#[derive(Debug)]
pub(crate) enum Action {
    /// `-print`, or one line of JSON.
    Print,
    /// `-print0`
    Print0,
    /// `-printf`
    Printf(Format),
    /// `-ls`
    Ls,
    /// `-delete`
    Delete,
    /// `-exec`, `-execdir`, `-ok`, `-okdir`
    Exec(Exec),
    /// `-prune`
    Prune,
    /// `-quit`
    Quit,
}

/// A shell pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Vec<u8>,
    ignores_case: bool,
}

impl Pattern {
    /// Returns a pattern.
    pub(crate) fn new(text: &[u8], ignores_case: bool) -> Pattern {
        let text = if ignores_case { glob::lower(text) } else { text.to_vec() };
        Pattern { text, ignores_case }
    }

    /// Returns whether all of `name` matches.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self.ignores_case {
            true => glob::matches(&self.text, &glob::lower(name)),
            false => glob::matches(&self.text, name),
        }
    }
}

/// The time that `-newer` compares with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reference {
    /// A time of a file, which is looked at when the walk begins.
    File(OsString, Stamp),
    /// A time.
    Time(Time),
}

/// The file that `-samefile` compares with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Same {
    /// A place in a volume, which is looked up when the walk begins.
    Place(OsString),
    /// An inode of the volume.
    Inode(Ino),
}

/// A number of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    /// Links.
    Links,
    /// Inode number.
    Inode,
    /// Owner.
    User,
    /// Group.
    Group,
}

/// `+N`, `-N` or `N`: more than, less than, exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    /// The sign.
    pub sign: Sign,
    /// The number.
    pub value: u64,
}

/// Sign of a number of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    /// `+`
    More,
    /// `-`
    Less,
    /// None.
    Exactly,
}

impl Sign {
    /// Splits the sign off.
    pub(crate) fn split(word: &str) -> (Sign, &str) {
        match (word.strip_prefix('+'), word.strip_prefix('-')) {
            (Some(rest), _) => (Sign::More, rest),
            (_, Some(rest)) => (Sign::Less, rest),
            _ => (Sign::Exactly, word),
        }
    }
}

impl Number {
    /// Reads a number with its sign.
    pub(crate) fn parse(word: &str) -> Option<Number> {
        let (sign, digits) = Sign::split(word);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let value = is_number.then(|| digits.parse().ok()).flatten()?;
        Some(Number { sign, value })
    }

    /// Returns whether a number is more, less or exactly so much.
    pub(crate) fn fits(&self, actual: u64) -> bool {
        match self.sign {
            Sign::More => actual > self.value,
            Sign::Less => actual < self.value,
            Sign::Exactly => actual == self.value,
        }
    }
}

/// An age that a time is compared with, in days or minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Age {
    /// More, less or exactly.
    pub sign: Sign,
    /// The age.
    pub amount: Duration,
    /// The unit is days, else minutes.
    pub in_days: bool,
    /// `-daystart`: counted from the end of the day.
    pub from_midnight: bool,
}

impl Age {
    /// Returns whether a time has this age at the time `now`.
    ///
    /// The rules are those of find(1). Days count as whole ones, rounded down: `1` is at least 24
    /// and less than 48 hours, `+1` at least 48, `-1` less than 24, with one second for free.
    /// Minutes are rounded up: `1` is up to 60 seconds, `+1` more than that, `-1` less.
    pub(crate) fn fits(&self, time: Time, now: Time) -> bool {
        let now = if self.from_midnight { next_midnight(now) } else { now };
        let ns = |time: Time| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
        let age = ns(now) - ns(time);
        let amount = self.amount.as_nanos() as i128;
        let unit: i128 = if self.in_days { 86_400_000_000_000 } else { 60_000_000_000 };
        // The age at which the unit that is meant begins to be over.
        let end = if self.in_days { amount + unit } else { amount };
        match (self.sign, self.in_days) {
            (Sign::More, _) => age > end,
            (Sign::Exactly, _) => end - unit <= age && age < end,
            (Sign::Less, true) => age < amount + 1_000_000_000,
            (Sign::Less, false) => age < amount,
        }
    }
}

/// Returns the end of a day, in UTC.
fn next_midnight(time: Time) -> Time {
    let sec = time.sec - time.sec.rem_euclid(DAY) + DAY;
    Time { sec, nsec: 0 }
}

impl Expr {
    /// Calls `each` with all actions, until it fails.
    pub(crate) fn actions<E>(
        &self,
        each: &mut dyn FnMut(&Action) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Expr::Test(_) => Ok(()),
            Expr::Action(action) => each(action),
            Expr::Not(one) => one.actions(each),
            Expr::And(all) | Expr::Or(all) | Expr::List(all) => {
                all.iter().try_for_each(|one| one.actions(each))
            }
        }
    }

    /// Calls `each` with all tests, until it fails.
    pub(crate) fn tests_mut<E>(
        &mut self,
        each: &mut dyn FnMut(&mut Test) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Expr::Test(test) => each(test),
            Expr::Action(_) => Ok(()),
            Expr::Not(one) => one.tests_mut(each),
            Expr::And(all) | Expr::Or(all) | Expr::List(all) => {
                all.iter_mut().try_for_each(|one| one.tests_mut(each))
            }
        }
    }

    /// Returns whether `is` holds for a test or action in it.
    pub(crate) fn any(&self, is: &dyn Fn(Result<&Test, &Action>) -> bool) -> bool {
        match self {
            Expr::Test(test) => is(Ok(test)),
            Expr::Action(action) => is(Err(action)),
            Expr::Not(one) => one.any(is),
            Expr::And(all) | Expr::Or(all) | Expr::List(all) => all.iter().any(|one| one.any(is)),
        }
    }

    /// Returns whether it has an action that `is` holds for.
    pub(crate) fn has(&self, is: fn(&Action) -> bool) -> bool {
        self.any(&|part| part.is_err_and(is))
    }

    /// Returns whether it needs more of a file than name, type and inode number.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.any(&|part| match part {
            Ok(test) => matches!(
                test,
                Test::Size(..)
                    | Test::Age(..)
                    | Test::Newer(..)
                    | Test::Field(Field::Links | Field::User | Field::Group, _)
                    | Test::Nameless(_)
                    | Test::Perm(_)
                    | Test::Empty
            ),
            Err(Action::Printf(format)) => format.needs_attributes(),
            Err(action) => matches!(action, Action::Ls),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_as_find_does() {
        let now = Time { sec: 1_000_000_000, nsec: 5 };
        let age = |word: &str, in_days: bool| {
            let (sign, digits) = Sign::split(word);
            let unit = if in_days { 86_400 } else { 60 };
            let amount = Duration::from_secs(digits.parse::<u64>().expect("a number") * unit);
            Age { sign, amount, in_days, from_midnight: false }
        };
        let cases: &[(&str, bool, i64, bool)] = &[
            ("0", true, 86_399, true),
            ("0", true, 86_400, false),
            ("1", true, 86_400, true),
            ("+0", true, 86_399, false),
            ("+0", true, 86_401, true),
            ("-1", true, 86_400, true),
            ("-1", true, 86_401, false),
            ("-1", true, -50, true),
            ("1", false, 0, true),
            ("1", false, 59, true),
            ("1", false, 60, false),
            ("+1", false, 61, true),
            ("-1", false, 59, true),
            ("-1", false, 60, false),
        ];
        for (word, in_days, seconds, fits) in cases {
            let time = Time { sec: now.sec - seconds, nsec: now.nsec };
            assert_eq!(age(word, *in_days).fits(time, now), *fits, "{word} {in_days} {seconds}");
        }
        // A billion seconds are 1:46:40 after midnight.
        let today = Age { from_midnight: true, ..age("0", true) };
        assert!(today.fits(Time { sec: now.sec - 6399, nsec: 0 }, now));
        assert!(!today.fits(Time { sec: now.sec - 6400, nsec: 0 }, now));
        assert_eq!(next_midnight(Time { sec: -1, nsec: 3 }), Time { sec: 0, nsec: 0 });
    }
}
