//! Comparison of the volume's result with the model's: equal, or as good.

use crate::call::Answer;
use crate::model::{Failed, Model, Outcome};
use crate::op::{Change, Op};
use shoal::raw::{Code, Error, Ino, Seek};

/// A difference in error codes that is not a mistake: where several errors apply, POSIX leaves open
/// which is returned. The model follows the order of Linux' own checks.
pub struct Allowed {
    /// The operation, or the change of a batch; "": any.
    pub op: &'static str,
    /// The model's codes.
    pub model: &'static [Code],
    /// The volume's.
    pub volume: Code,
    /// Why both are right.
    pub reason: &'static str,
}

/// All of them.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        op: "",
        model: &[Code::Access, Code::NotFound, Code::NotDirectory, Code::Exists, Code::Invalid],
        volume: Code::NameTooLong,
        reason: "a name that is too long is wrong wherever it stands",
    },
    Allowed {
        op: "mknod",
        model: &[
            Code::Access,
            Code::Exists,
            Code::NotFound,
            Code::NotDirectory,
            Code::NameTooLong,
            Code::Stale,
        ],
        volume: Code::NotPermitted,
        reason: "devices are root's alone, wherever they are made",
    },
    Allowed {
        op: "link",
        model: &[Code::Access, Code::Exists, Code::NotFound, Code::NotDirectory, Code::NameTooLong],
        volume: Code::NotPermitted,
        reason: "no directory may be linked, wherever to",
    },
    Allowed {
        op: "truncate",
        model: &[Code::IsDirectory, Code::Invalid, Code::Access, Code::Stale],
        volume: Code::FileTooBig,
        reason: "a size that no system call can pass",
    },
    Allowed {
        op: "fallocate",
        model: &[Code::IsDirectory, Code::Invalid, Code::Stale],
        volume: Code::FileTooBig,
        reason: "a range that no file can have",
    },
    Allowed {
        op: "rename",
        model: &[Code::Access],
        volume: Code::NotFound,
        reason: "the source is looked up before the target's directory is searched",
    },
    Allowed {
        op: "rename",
        model: &[Code::Access],
        volume: Code::NotDirectory,
        reason: "the target's directory is not one, the source's may not be searched",
    },
    Allowed {
        op: "rename",
        model: &[
            Code::Invalid,
            Code::NotFound,
            Code::Exists,
            Code::NotEmpty,
            Code::NotPermitted,
            Code::NotDirectory,
            Code::IsDirectory,
        ],
        volume: Code::Access,
        reason: "a directory that may not be changed is no place to look for other mistakes",
    },
    Allowed { op: "link", model: &[Code::Exists], volume: Code::Access, reason: "the same" },
    Allowed {
        op: "link",
        model: &[Code::CrossRoot],
        volume: Code::Stale,
        reason: "a session looks at the file first, and that went with its subvolume",
    },
    Allowed {
        op: "unlink",
        model: &[Code::NotPermitted],
        volume: Code::IsDirectory,
        reason: "a directory cannot be unlinked, whosever it is",
    },
    Allowed {
        op: "rmdir",
        model: &[Code::NotPermitted],
        volume: Code::NotDirectory,
        reason: "the same, the other way round",
    },
    Allowed {
        op: "remove_tree",
        model: &[Code::Access],
        volume: Code::NotPermitted,
        reason: "something below may not be removed, for both reasons: the order is not promised",
    },
    Allowed {
        op: "remove_tree",
        model: &[Code::NotPermitted],
        volume: Code::Access,
        reason: "the same, the other way round",
    },
    Allowed {
        op: "fallocate",
        model: &[Code::Invalid],
        volume: Code::NoDevice,
        reason: "ENODEV is what Linux says of pipes and links; ENXIO is as near as codes go",
    },
];

fn is_allowed(op: &str, model: Code, volume: Code) -> bool {
    let fits = |row: &Allowed| row.op.is_empty() || row.op == op;
    ALLOWED.iter().any(|row| fits(row) && row.model.contains(&model) && row.volume == volume)
}

/// Says what is wrong, if anything is.
pub fn compare(
    op: &Op,
    inos: &[Ino],
    model: &Model,
    expected: Outcome<Answer>,
    found: Result<Answer, Error>,
) -> Result<(), String> {
    let found = found.map_err(|error| error.code());
    if let Op::Seek { offset, what, .. } = op {
        return compare_seek(model, inos[0], *offset, *what, found);
    }
    if expected == found {
        return Ok(());
    }
    if let (Err(right), Err(code)) = (&expected, &found)
        && is_allowed(op.name(), *right, *code)
    {
        return Ok(());
    }
    Err(format!("{op}: expected {}, found {}", brief(&expected), brief(&found)))
}

/// The same of a batch: it fails by the change that the model says, as its single call would, and
/// says which it is.
pub fn compare_batch(
    op: &Op,
    changes: &[Change],
    expected: Result<(), Failed>,
    found: &Result<Answer, Error>,
) -> Result<(), String> {
    match (expected, found) {
        (Ok(()), Ok(_)) => Ok(()),
        (Err((number, right)), Err(error)) => {
            let change = &changes[number];
            let code = error.code();
            let named = format!("change {} of {} of a batch", number + 1, changes.len());
            if code != right && !is_allowed(change.name(), right, code) {
                return Err(format!(
                    "{op}: expected {} of change {} ({change}), found {}: {error}",
                    right.name(),
                    number + 1,
                    code.name()
                ));
            }
            if !error.to_string().starts_with(&named) {
                return Err(format!("{op}: {named} fails, but the error says: {error}"));
            }
            Ok(())
        }
        (Err((number, right)), Ok(_)) => Err(format!(
            "{op}: expected {} of change {} ({}), found no error",
            right.name(),
            number + 1,
            changes[number]
        )),
        (Ok(()), Err(error)) => Err(format!("{op}: expected no error, found {error}")),
    }
}

fn compare_seek(
    model: &Model,
    ino: Ino,
    offset: u64,
    what: Seek,
    found: Outcome<Answer>,
) -> Result<(), String> {
    let answer = found.map(|answer| match answer {
        Answer::Number(at) => at,
        _ => unreachable!("seek yields a number"),
    });
    // Where a directory or a pipe has holes is nobody's business.
    let regular = model.read(ino, 0, 0).is_ok();
    if regular { model.seek_is_right(ino, offset, what, answer) } else { Ok(()) }
}

fn brief(outcome: &Outcome<Answer>) -> String {
    match outcome {
        Err(code) => code.name().to_string(),
        Ok(Answer::Bytes(bytes)) if bytes.len() > 32 => {
            let hash = shoal_base::checksum(bytes);
            format!("{} bytes, checksum {hash:#x}", bytes.len())
        }
        Ok(Answer::Names(names)) => {
            let names = names.iter().map(|(name, ino)| format!("{}={ino}", name.escape_ascii()));
            format!("names [{}]", names.collect::<Vec<_>>().join(", "))
        }
        Ok(answer) => format!("{answer:?}"),
    }
}
