//! Failures of an object store: their kinds, and errors of a volume made from them.
//!
//! | kind | examples | while a volume is open | before the store has answered once |
//! | --- | --- | --- | --- |
//! | passing | busy (5xx, 429), time-outs, connections that break | repeated, within [`Limits::patience`] | repeated, within [`Limits::first`] |
//! | refused | 401, 403: keys, rights, clocks | the same: keys are changed, clocks set | an error at once |
//! | full | a quota | an error at once (`ENOSPC`); the caller keeps what it could not store | the same |
//! | final | the store lacks an operation | an error at once | the same |
//!
//! Stores tell the kind of a refusal by a code in the body (`<Code>…</Code>`), which the library
//! gives as text only.
//!
//! [`Limits::patience`]: crate::Limits::patience
//! [`Limits::first`]: crate::Limits::first

use object_store::Error as StoreError;
use shoal_base::{Code, Error};

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    Passing,
    Refused,
    Full,
    Final,
}

/// Codes of a store whose quota is used up.
const FULL: [&str; 6] = [
    // Ceph, and stores made of it.
    "<Code>QuotaExceeded</Code>",
    // MinIO: the disks, a bucket's quota.
    "<Code>XMinioStorageFull</Code>",
    "<Code>XMinioAdminBucketQuotaExceeded</Code>",
    "<Code>InsufficientStorage</Code>",
    // Backblaze, in the message of a 403.
    "storage cap exceeded",
    "status code: 507 ",
];
/// Codes of a store that has no such bucket, in answer to anything.
const NO_BUCKET: [&str; 3] =
    ["<Code>NoSuchBucket</Code>", "ContainerNotFound", "specified bucket does not exist"];
/// Refusals: by their number, which the library keeps to itself for lists, or with another one.
const REFUSED: [&str; 9] = [
    "status code: 401 ",
    "status code: 403 ",
    "<Code>ExpiredToken</Code>",
    "<Code>InvalidToken</Code>",
    "<Code>RequestTimeTooSkewed</Code>",
    // Of another region.
    "<Code>AuthorizationHeaderMalformed</Code>",
    "incorrectly configured region",
    // Of a directory in place of a bucket: its permissions, a filesystem that is read-only.
    "(os error 13)",
    "(os error 30)",
];
/// Requests that a store does not know.
const LACKING: [&str; 2] = ["<Code>NotImplemented</Code>", "status code: 501 "];
/// An object ends before the range that was asked for.
const SHORT: [&str; 2] = ["<Code>InvalidRange</Code>", "status code: 416 "];

/// Beginnings of what the layers of the HTTP client say around a reason.
const LAYERS: [&str; 6] = [
    "error sending request",
    "client error (",
    "tcp connect error",
    "Generic ",
    "Error performing ",
    "request or response body error",
];

/// Remedies of refusals, by their codes.
const REMEDIES: [(&str, &str); 9] = [
    ("SignatureDoesNotMatch", "is the secret key right?"),
    ("InvalidAccessKeyId", "the store does not know this access key: are the keys right?"),
    ("RequestTimeTooSkewed", "the clock of this machine is wrong"),
    ("ExpiredToken", "the credentials have expired"),
    ("InvalidToken", "the session token is wrong: are the keys right?"),
    // Azure's.
    ("AuthenticationFailed", "are the account key and the clock of this machine right?"),
    ("AuthorizationHeaderMalformed", "is the region right (AWS_REGION)?"),
    ("incorrectly configured region", "is the region right (AWS_REGION)?"),
    (DENIED, "these keys do not allow it: are the keys right?"),
];
/// Code of a refusal of keys that are right, and lack a right.
const DENIED: &str = "AccessDenied";

/// Returns the kind of a failure.
pub(crate) fn trouble(error: &StoreError) -> Trouble {
    match error {
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => Trouble::Final,
        StoreError::InvalidPath { .. } => Trouble::Final,
        _ if says(error, &LACKING) => Trouble::Final,
        _ if says(error, &FULL) => Trouble::Full,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            Trouble::Refused
        }
        // Of a bucket, or the object would be known to be missing. It may come back.
        StoreError::NotFound { .. } => Trouble::Refused,
        _ if says(error, &REFUSED) || says(error, &NO_BUCKET) => Trouble::Refused,
        _ => Trouble::Passing,
    }
}

/// Returns whether a conditional request was refused because the object is there.
pub(crate) fn is_taken(error: &StoreError) -> bool {
    matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. })
        && !says(error, &FULL)
}

/// Returns whether an object is missing, and its bucket is there.
pub(crate) fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) && !says(error, &NO_BUCKET)
}

/// Returns whether an object ends before the range that was asked for.
pub(crate) fn is_short(error: &StoreError) -> bool {
    says(error, &SHORT)
}

fn says(error: &StoreError, any: &[&str]) -> bool {
    let text = reason_of(error, usize::MAX);
    any.iter().any(|code| text.contains(code))
}

/// Returns whether a right is missing: other requests with the same keys may be allowed.
pub(crate) fn is_denied(error: &StoreError) -> bool {
    trouble(error) == Trouble::Refused
        && !matches!(error, StoreError::Unauthenticated { .. })
        && !says(error, &NO_BUCKET)
        && !says(error, &["status code: 401 "])
        && !REMEDIES.iter().any(|(code, _)| *code != DENIED && says(error, &[code]))
}

/// Builds the error of a request that failed for good.
pub(crate) fn failed(store: &str, doing: &str, name: &str, error: &StoreError) -> Error {
    let (code, remedy) = remedy(error);
    Error::refused(code, format!("{store}: {doing} {name} failed: {}: {remedy}", reason(error)))
}

/// Returns the code of a failure, and what to do.
pub(crate) fn remedy(error: &StoreError) -> (Code, &'static str) {
    let text = reason_of(error, usize::MAX);
    let of_code = REMEDIES.iter().find(|(code, _)| text.contains(code)).map(|(_, remedy)| *remedy);
    match trouble(error) {
        _ if says(error, &NO_BUCKET) => {
            (Code::NotFound, "there is no such bucket: create it first")
        }
        Trouble::Full => (Code::NoSpace, "a quota of the store is used up"),
        Trouble::Refused => (Code::Access, of_code.unwrap_or("are the keys right?")),
        Trouble::Final => (Code::NotSupported, "the store lacks an operation that Shoal needs"),
        Trouble::Passing => (Code::Io, "is the address of the store right, and does it run?"),
    }
}

/// Returns the reason in one line: what the store has answered, or the innermost message that says
/// something.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let text = reason_of(error, usize::MAX);
    let between = |before: &str, after: &str| {
        let (_, rest) = text.split_once(before)?;
        rest.split_once(after).map(|(found, _)| found.trim()).filter(|found| !found.is_empty())
    };
    match between("status code: ", ":") {
        Some(status) => {
            let said = [between("<Code>", "</Code>"), between("<Message>", "</Message>")];
            let said = said.into_iter().flatten().fold(String::new(), |all, it| all + ", " + it);
            format!("the store answers {status}{said}")
        }
        None => unreached(&text).unwrap_or_else(|| reason_of(error, 400)),
    }
}

/// Returns the reason for which a request has no answer, with the host it was sent to: the library
/// names each of its layers, some of them twice. `None`: it is another failure.
fn unreached(text: &str) -> Option<String> {
    let (request, layers) = text.split_once("HTTP error")?;
    let (before, after) = request.rsplit_once("://")?;
    let scheme = before.rsplit(' ').next()?;
    let host = after.split(['/', '?', ' ']).next()?;
    let mut said: Vec<&str> = Vec::new();
    for part in layers.split(": ").map(|part| part.trim_matches([' ', ':', '-'])) {
        let is_layer = part.contains("HTTP error") || LAYERS.iter().any(|it| part.starts_with(it));
        if !part.is_empty() && !is_layer && !said.contains(&part) {
            said.push(part);
        }
    }
    let said = said.join(": ");
    let said = said.split(" (os error ").next().filter(|said| !said.is_empty())?;
    let (first, rest) = said.split_at_checked(1)?;
    Some(format!("{scheme}://{host}: {}{rest}", first.to_lowercase()))
}

fn reason_of(error: &(dyn std::error::Error + 'static), max: usize) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut at = Some(error);
    while let Some(error) = at {
        let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // An error usually repeats the text of its source.
        if let Some(last) = texts.last_mut() {
            *last = last.replace(&text, "").trim_end_matches([':', ' ']).to_owned();
        }
        texts.push(text);
        at = error.source();
    }
    texts.retain(|text| !text.is_empty());
    let mut text = texts.join(": ");
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(body: &str) -> StoreError {
        let source = format!("Server returned non-2xx status code: 403 Forbidden: {body}").into();
        StoreError::PermissionDenied { path: "p".into(), source }
    }

    fn other(text: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn kinds_of_failures() {
        let quota = "<Error><Code>QuotaExceeded</Code></Error>";
        assert_eq!(trouble(&denied(quota)), Trouble::Full);
        let gone = "status code: 507 Insufficient Storage: ";
        assert_eq!(trouble(&other(gone)), Trouble::Full);
        assert_eq!(trouble(&denied("<Code>AccessDenied</Code>")), Trouble::Refused);
        assert_eq!(trouble(&other("<Code>ExpiredToken</Code>")), Trouble::Refused);
        assert_eq!(trouble(&other("status code: 503 Slow Down: ")), Trouble::Passing);
        let lacks = "status code: 501 Not Implemented: <Code>NotImplemented</Code>";
        assert_eq!(trouble(&other(lacks)), Trouble::Final);
        let region = "status code: 400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>";
        assert_eq!(trouble(&other(region)), Trouble::Refused);
        assert!(is_denied(&denied("<Code>AccessDenied</Code>")) && is_denied(&denied("")));
        for keys in ["InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed"] {
            assert!(!is_denied(&denied(keys)), "{keys}");
        }
        assert!(!is_denied(&denied(quota)) && !is_denied(&other(region)));
        let missing =
            |body: &str| StoreError::NotFound { path: "p".into(), source: body.to_owned().into() };
        assert!(is_missing(&missing("<Code>NoSuchKey</Code>")));
        let no_bucket = missing("<Code>NoSuchBucket</Code>");
        assert!(!is_missing(&no_bucket));
        assert_eq!(trouble(&no_bucket), Trouble::Refused);
        assert!(is_short(&other("status code: 416 Range Not Satisfiable: ")));
        let source = quota.to_owned().into();
        let conflict = StoreError::AlreadyExists { path: "p".into(), source };
        assert!(!is_taken(&conflict) && trouble(&conflict) == Trouble::Full);
    }

    #[test]
    fn a_store_that_is_not_reached_is_named_with_the_reason_once() {
        let url = "http://127.0.0.1:7480/bucket?list-type=2&prefix=a%2Fmanifest";
        let request = format!("Error performing list request: Error performing GET {url}");
        let said =
            |reason: &str| super::reason(&other(&format!("{request} in 362.151µs {reason}")));
        let refused = "error sending request: client error (Connect): tcp connect error: \
                       Connection refused (os error 111)";
        let wanted = "http://127.0.0.1:7480: connection refused";
        assert_eq!(said(&format!("-: HTTP error: {refused}")), wanted);
        assert_eq!(said(&format!("- HTTP error: {refused}: {refused}")), wanted);
        let twice = format!("- HTTP error: {refused}: {request}: HTTP error: {refused}");
        assert_eq!(said(&twice), wanted);
        let name = "- HTTP error: error sending request: client error (Connect): dns error: failed \
                    to lookup address information: Name or service not known";
        let wanted = "http://127.0.0.1:7480: dns error: failed to lookup address information: \
                      Name or service not known";
        assert_eq!(said(name), wanted);
        let late = "- HTTP error: error sending request: operation timed out";
        assert_eq!(said(late), "http://127.0.0.1:7480: operation timed out");
        // Nothing is lost of a text that says no more than that.
        let bare = said("- HTTP error: error sending request");
        assert!(bare.contains("error sending request"), "{bare}");
    }

    #[test]
    fn errors_say_what_to_do() {
        let said = |error: &StoreError| {
            let error = failed("s3://b", "listing", "manifest", error);
            (error.code(), error.to_string())
        };
        let (code, text) = said(&denied("<Code>SignatureDoesNotMatch</Code>"));
        assert_eq!(code, Code::Access);
        let wanted = "s3://b: listing manifest failed: the store answers 403 Forbidden, \
                      SignatureDoesNotMatch: is the secret key right?";
        assert_eq!(text, wanted);
        let (code, text) = said(&other("connection refused"));
        assert_eq!(code, Code::Io);
        assert!(text.contains("does it run?"), "{text}");
    }
}
