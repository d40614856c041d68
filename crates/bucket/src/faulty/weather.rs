//! Weather: faults that a store has for some time, in the form in which the library reports them.
//!
//! | weather | fate of a request |
//! | --- | --- |
//! | fair | carried out |
//! | refused | one of the refusals of [`Refusal`], drawn for each request |
//! | quota | 403 or 507 for a PUT that would make the store too large |
//! | hung | carried out when the weather ends; or never answered, and carried out at some time or never |

use object_store::Error;
use std::time::Duration;

/// Time after which the transport gives up a request, as that of real stores does.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The requests that have a kind of weather; others have fair weather.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// GET and LIST.
    pub reads: bool,
    /// PUT and DELETE.
    pub writes: bool,
}

impl Scope {
    /// All requests.
    pub const ALL: Scope = Scope { reads: true, writes: true };

    fn has(self, asked: Asked) -> bool {
        match asked {
            Asked::Read | Asked::List => self.reads,
            Asked::Write => self.writes,
        }
    }
}

/// Faults of a store that last for some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Weather {
    /// None.
    #[default]
    Fair,
    /// Keys, rights, clocks, a bucket that is not there.
    Refused(Scope),
    /// A PUT that would make the store larger than so many bytes is refused.
    Quota(u64),
    /// Requests are not answered.
    Hung(Scope),
}

/// A period of one weather.
#[derive(Clone, Copy, Default)]
pub(super) struct Spell {
    pub number: u64,
    pub weather: Weather,
    pub lasts: Duration,
}

/// Kinds of requests, as far as weather depends on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    List,
    Write,
}

/// The fate of a request.
pub(super) enum Fate {
    CarriedOut,
    Refused(Refusal),
    /// Carried out after this time.
    Late(Duration),
    /// Never answered: the transport gives it up after this time. `is_held`: the store carries it
    /// out all the same, at some time.
    Silent {
        is_held: bool,
        after: Duration,
    },
}

impl Weather {
    /// Decides on the fate of a request in weather that lasts for `left` from now.
    pub(super) fn fate(self, asked: Asked, left: Duration, random: &dyn Fn(u64) -> u64) -> Fate {
        match self {
            Weather::Refused(scope) if scope.has(asked) => {
                Fate::Refused(REFUSALS[random(REFUSALS.len() as u64) as usize])
            }
            Weather::Hung(scope) if scope.has(asked) => match random(4) {
                0 => Fate::Silent { is_held: false, after: ANSWER_MAX },
                1 => Fate::Silent { is_held: true, after: ANSWER_MAX },
                _ if left > ANSWER_MAX => Fate::Silent { is_held: false, after: ANSWER_MAX },
                _ => Fate::Late(left),
            },
            // That of a PUT is decided where its size is known.
            Weather::Fair | Weather::Refused(_) | Weather::Quota(_) | Weather::Hung(_) => {
                Fate::CarriedOut
            }
        }
    }
}

/// A refusal that may pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    status: &'static str,
    code: &'static str,
}

const REFUSALS: [Refusal; 7] = [
    Refusal { status: "403 Forbidden", code: "AccessDenied" },
    Refusal { status: "403 Forbidden", code: "RequestTimeTooSkewed" },
    Refusal { status: "403 Forbidden", code: "InvalidAccessKeyId" },
    Refusal { status: "401 Unauthorized", code: "Unauthorized" },
    Refusal { status: "400 Bad Request", code: "ExpiredToken" },
    Refusal { status: "400 Bad Request", code: "InvalidToken" },
    Refusal { status: "404 Not Found", code: "NoSuchBucket" },
];

impl Refusal {
    /// The library's error. Of a list it tells the status in its text alone.
    pub(super) fn error(self, asked: Asked, name: &str) -> Error {
        let Refusal { status, code } = self;
        let (path, source) = (name.to_owned(), answer(status, code).into());
        match &status[..3] {
            _ if asked == Asked::List => Error::Generic { store: "S3", source },
            "401" => Error::Unauthenticated { path, source },
            "403" => Error::PermissionDenied { path, source },
            "404" => Error::NotFound { path, source },
            _ => Error::Generic { store: "S3", source },
        }
    }
}

fn answer(status: &str, code: &str) -> String {
    format!("Server returned non-2xx status code: {status}: <Error><Code>{code}</Code></Error>")
}

/// The error of a PUT that the quota has no room for: stores have several.
pub(super) fn quota(name: &str, form: u64) -> Error {
    match form {
        0 => {
            let source = answer("403 Forbidden", "QuotaExceeded").into();
            Error::PermissionDenied { path: name.to_owned(), source }
        }
        _ => {
            let source = answer("507 Insufficient Storage", "XMinioStorageFull").into();
            Error::Generic { store: "S3", source }
        }
    }
}

/// The error of a GET whose range begins behind the end of the object.
pub(super) fn short() -> Error {
    let source = answer("416 Requested Range Not Satisfiable", "InvalidRange").into();
    Error::Generic { store: "S3", source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Trouble, is_missing, is_short, is_taken, trouble};

    #[test]
    fn each_refusal_is_taken_for_one() {
        for refusal in REFUSALS {
            for asked in [Asked::Read, Asked::List, Asked::Write] {
                let error = refusal.error(asked, "name");
                assert_eq!(trouble(&error), Trouble::Refused, "{refusal:?}: {error}");
                assert!(!is_missing(&error) && !is_taken(&error), "{refusal:?}: {error}");
            }
        }
        for form in 0..2 {
            assert_eq!(trouble(&quota("name", form)), Trouble::Full);
        }
        assert!(is_short(&short()));
    }
}
