//! Failures of an object store as errors of a volume.

use object_store::Error as StoreError;
use shoal_base::{Code, Error};

/// Returns whether another attempt may succeed: the store was busy, slow or out of reach.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. })
}

/// Returns whether a conditional request was refused because the object is there.
pub(crate) fn is_taken(error: &StoreError) -> bool {
    matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. })
}

/// Builds the error of a request that failed for good.
pub(crate) fn failed(store: &str, doing: &str, name: &str, error: &StoreError) -> Error {
    let (code, remedy) = match error {
        StoreError::PermissionDenied { .. } => (Code::Access, ": the keys do not allow it"),
        StoreError::Unauthenticated { .. } => (Code::Access, ": are the keys right?"),
        StoreError::NotFound { .. } => (Code::NotFound, ": does the bucket exist?"),
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
            (Code::NotSupported, ": the store lacks an operation that Shoal needs")
        }
        _ => (Code::Io, ""),
    };
    Error::refused(code, format!("{store}: {doing} {name} failed: {}{remedy}", reason(error)))
}

/// Returns the reason in one line: the innermost message that says something.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
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
    if text.len() > 400 {
        text.truncate(text.floor_char_boundary(400));
        text.push_str("...");
    }
    text
}
