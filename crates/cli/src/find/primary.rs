//! The tests, actions and options, by name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use shoal::raw::FileKind;

use super::exec::Exec;
use super::expr::{Action, Age, Field, Number, Pattern, Reference, Same, Sign, Test};
use super::perm::Perm;
use super::printf::Format;
use super::regex::PathRegex;
use super::stamp::Stamp;
use crate::accounts::Accounts;
use crate::clock;
use crate::failure::{Failure, Result};
use crate::text::printable;

/// Options: they hold for all files, wherever they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// `-mindepth`
    pub depth_min: usize,
    /// `-maxdepth`
    pub depth_max: usize,
    /// `-depth`: a directory after what is in it.
    pub contents_first: bool,
    /// `-xdev`: subvolumes are not entered.
    pub one_subvolume: bool,
    /// `--json`
    pub json: bool,
    /// `-0`
    pub null: bool,
}

/// A test or an action; an option is a test that is true.
pub(super) enum Primary {
    /// A test.
    Test(Test),
    /// An action.
    Action(Action),
}

/// Reads tests, actions and options; keeps the options.
pub(super) struct Primaries<'w> {
    /// Names of users and groups.
    pub accounts: &'w Accounts,
    /// The options so far.
    pub options: Options,
    /// `-daystart`, for the tests behind it.
    pub from_midnight: bool,
    /// Commands so far.
    pub commands: usize,
}

/// The source of the words behind the one being read.
type Words<'n, 'w> = &'n mut dyn FnMut() -> Option<&'w OsStr>;

const NO_FOLLOWING: &str = "symlinks are never followed here";
const NO_FILES: &str = "writes to standard output alone: redirect it";

impl<'w> Primaries<'w> {
    /// Reads one, whose name is `word`.
    pub(super) fn read(&mut self, word: &'w OsStr, next: Words<'_, 'w>) -> Result<Primary> {
        let name = word.to_str().unwrap_or_default();
        // As other options of the command are written: --name.
        let name = if name.starts_with("--") { &name[1..] } else { name };
        if self.is_option(name, word, next)? {
            return Ok(Primary::Test(Test::Always(true)));
        }
        if let "-exec" | "-execdir" | "-ok" | "-okdir" = name {
            self.commands += 1;
            let kind = (name.ends_with("dir"), name.starts_with("-ok"));
            let exec = Exec::read(word, kind, self.commands - 1, next)?;
            return Ok(Primary::Action(Action::Exec(exec)));
        }
        if let Some(action) = action(name, word, next)? {
            return Ok(Primary::Action(action));
        }
        let test = match self.of_name(name, word, next)? {
            Some(test) => Some(test),
            None => self.of_attributes(name, word, next)?,
        };
        match (test, name) {
            (Some(test), _) => Ok(Primary::Test(test)),
            (None, "-L" | "-H" | "-follow") => Err(failure(word, NO_FOLLOWING)),
            (None, "-fprint" | "-fprint0" | "-fprintf" | "-fls") => Err(failure(word, NO_FILES)),
            (None, _) => Err(failure(word, "is no test or action (shoal find --help has them)")),
        }
    }

    fn is_option(&mut self, name: &str, word: &OsStr, next: Words<'_, 'w>) -> Result<bool> {
        let options = &mut self.options;
        match name {
            "-maxdepth" => options.depth_max = count(word, next)?,
            "-mindepth" => options.depth_min = count(word, next)?,
            "-depth" | "-d" => options.contents_first = true,
            "-xdev" | "-mount" => options.one_subvolume = true,
            "-daystart" => self.from_midnight = true,
            "-json" => options.json = true,
            "-0" | "-null" => options.null = true,
            "-P" | "-noleaf" | "-warn" | "-nowarn" => {}
            "-ignore_readdir_race" | "-noignore_readdir_race" => {}
            "-regextype" => {
                let kind = argument(word, next)?;
                if kind != "posix-extended" {
                    return Err(failure(kind, "is not supported (posix-extended is)"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a test of the name, path or type.
    fn of_name(&self, name: &str, word: &OsStr, next: Words<'_, 'w>) -> Result<Option<Test>> {
        let ignores_case = name.starts_with("-i");
        let mut pattern = || Ok(Pattern::new(argument(word, next)?.as_bytes(), ignores_case));
        Ok(Some(match name {
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-name" | "-iname" => Test::Name(pattern()?),
            "-path" | "-ipath" | "-wholename" | "-iwholename" => Test::Path(pattern()?),
            "-lname" | "-ilname" => Test::Target(pattern()?),
            "-regex" | "-iregex" => {
                let text = argument(word, next)?;
                let utf8 = text.to_str().ok_or_else(|| failure(text, "is not UTF-8"))?;
                let regex = PathRegex::new(utf8, ignores_case);
                Test::Regex(regex.map_err(|what| failure(text, &what))?)
            }
            "-type" => Test::Type(kinds(argument(word, next)?)?),
            "-xtype" => Test::Followed(kinds(argument(word, next)?)?),
            _ => return Ok(None),
        }))
    }

    /// Reads a test of an attribute.
    fn of_attributes(&self, name: &str, word: &OsStr, next: Words<'_, 'w>) -> Result<Option<Test>> {
        let accounts = self.accounts;
        Ok(Some(match name {
            "-size" => size(argument(word, next)?)?,
            "-atime" | "-ctime" | "-mtime" => Test::Age(stamp(name)?, self.age(word, next, true)?),
            "-amin" | "-cmin" | "-mmin" => Test::Age(stamp(name)?, self.age(word, next, false)?),
            "-links" => Test::Field(Field::Links, number(argument(word, next)?)?),
            "-inum" => Test::Field(Field::Inode, number(argument(word, next)?)?),
            "-uid" => Test::Field(Field::User, number(argument(word, next)?)?),
            "-gid" => Test::Field(Field::Group, number(argument(word, next)?)?),
            "-user" | "-group" => {
                let text = argument(word, next)?;
                let utf8 = text.to_str().unwrap_or_default();
                let (field, id, what) = match name {
                    "-user" => (Field::User, accounts.uid(utf8), "no such user on this machine"),
                    _ => (Field::Group, accounts.gid(utf8), "no such group on this machine"),
                };
                let value = id.ok_or_else(|| failure(text, what))?.into();
                Test::Field(field, Number { sign: Sign::Exactly, value })
            }
            "-nouser" => Test::Nameless(Field::User),
            "-nogroup" => Test::Nameless(Field::Group),
            "-perm" => {
                let mode = argument(word, next)?;
                let perm = Perm::parse(mode.to_str().unwrap_or_default());
                let what = "is no mode: write octal or symbolic permission bits, as -u+w or /222";
                Test::Perm(perm.ok_or_else(|| failure(mode, what))?)
            }
            "-empty" => Test::Empty,
            "-samefile" => Test::Same(Same::Place(argument(word, next)?.to_owned())),
            "-newer" | "-mnewer" => newer(Stamp::Modify, argument(word, next)?),
            "-anewer" => newer(Stamp::Access, argument(word, next)?),
            "-cnewer" => newer(Stamp::Change, argument(word, next)?),
            _ => return newer_xy(name, word, next),
        }))
    }

    fn age(&self, word: &OsStr, next: Words<'_, 'w>, in_days: bool) -> Result<Age> {
        let word = argument(word, next)?;
        let (sign, digits) = Sign::split(word.to_str().unwrap_or_default());
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let amount = digits.parse::<f64>().ok().filter(|_| is_number);
        let unit = if in_days { 86_400.0 } else { 60.0 };
        let amount = amount.and_then(|amount| Duration::try_from_secs_f64(amount * unit).ok());
        let what = "is no age: write a number, +N for more, or -N for less";
        let amount = amount.ok_or_else(|| failure(word, what))?;
        Ok(Age { sign, amount, in_days, from_midnight: self.from_midnight })
    }
}

fn action<'w>(name: &str, word: &OsStr, next: Words<'_, 'w>) -> Result<Option<Action>> {
    Ok(Some(match name {
        "-print" => Action::Print,
        "-print0" => Action::Print0,
        "-printf" => {
            let text = argument(word, next)?;
            let format = Format::parse(text.as_bytes());
            Action::Printf(format.map_err(|what| failure(text, &what))?)
        }
        "-ls" => Action::Ls,
        "-delete" => Action::Delete,
        "-prune" => Action::Prune,
        "-quit" => Action::Quit,
        _ => return Ok(None),
    }))
}

/// Failure about a word.
pub(super) fn failure(word: &OsStr, what: &str) -> Failure {
    Failure::usage(printable(word.as_bytes()), what)
}

fn argument<'w>(word: &OsStr, next: Words<'_, 'w>) -> Result<&'w OsStr> {
    next().ok_or_else(|| failure(word, "has no argument"))
}

fn number(word: &OsStr) -> Result<Number> {
    let number = word.to_str().and_then(Number::parse);
    number.ok_or_else(|| failure(word, "is not a number: write 5, +5 for more, or -5 for less"))
}

fn count<'w>(word: &OsStr, next: Words<'_, 'w>) -> Result<usize> {
    let word = argument(word, next)?;
    let number = word.to_str().and_then(Number::parse).filter(|it| it.sign == Sign::Exactly);
    let count = number.and_then(|number| usize::try_from(number.value).ok());
    count.ok_or_else(|| failure(word, "is no number of levels"))
}

fn size(word: &OsStr) -> Result<Test> {
    let text = word.to_str().unwrap_or_default();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'c') => (&text[..text.len() - 1], 1),
        Some(b'w') => (&text[..text.len() - 1], 2),
        Some(b'b') => (&text[..text.len() - 1], 512),
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 512),
    };
    let what = "is no size: write a number, and c, w, b, k, M or G";
    Ok(Test::Size(Number::parse(digits).ok_or_else(|| failure(word, what))?, unit))
}

/// Returns the time that the second letter of a name means.
fn stamp(name: &str) -> Result<Stamp> {
    Ok(match name.as_bytes().get(1) {
        Some(b'a') => Stamp::Access,
        Some(b'B') => Stamp::Birth,
        Some(b'c') => Stamp::Change,
        Some(b'm') => Stamp::Modify,
        _ => return Err(failure(OsStr::new(name), "is no test of a time")),
    })
}

fn newer(stamp: Stamp, than: &OsStr) -> Test {
    Test::Newer(stamp, Reference::File(than.to_owned(), Stamp::Modify))
}

/// Reads `-newerXY`: the file's time X is later than Y of another, or than a time that is written.
fn newer_xy<'w>(name: &str, word: &OsStr, next: Words<'_, 'w>) -> Result<Option<Test>> {
    let Some([x, y]) = name.strip_prefix("-newer").map(str::as_bytes) else { return Ok(None) };
    let letter = |letter: u8| stamp(&format!("-{}", char::from(letter)));
    let mine = letter(*x)?;
    let other = argument(word, next)?;
    if *y != b't' {
        return Ok(Some(Test::Newer(mine, Reference::File(other.to_owned(), letter(*y)?))));
    }
    let what = "is no time: write 2026-11-20, 2026-11-20 16:47 or @ and seconds since 1970, in UTC";
    let time = clock::parse(other.to_str().unwrap_or_default());
    Ok(Some(Test::Newer(mine, Reference::Time(time.ok_or_else(|| failure(other, what))?))))
}

fn kinds(letters: &OsStr) -> Result<Vec<FileKind>> {
    let kinds: Option<_> = letters.to_str().unwrap_or_default().split(',').map(kind).collect();
    let what = "is no list of types: f, d, l, p, s, c or b, with commas between them";
    kinds.ok_or_else(|| failure(letters, what))
}

fn kind(letter: &str) -> Option<FileKind> {
    Some(match letter {
        "f" => FileKind::Regular,
        "d" => FileKind::Directory,
        "l" => FileKind::Symlink,
        "p" => FileKind::Fifo,
        "s" => FileKind::Socket,
        "c" => FileKind::CharDevice,
        "b" => FileKind::BlockDevice,
        _ => return None,
    })
}
