//! Names of volumes in a bucket. A program without support for buckets knows them too: it must say
//! so, and not that a file of that name does not exist.

/// Schemes of URLs.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "file"];

/// Returns whether this names a bucket and not a file: it starts with a scheme, in capitals or not,
/// and `://`.
pub fn is_bucket(name: &[u8]) -> bool {
    SCHEMES.iter().any(|scheme| {
        let rest = name.split_at_checked(scheme.len());
        rest.is_some_and(|(start, rest)| {
            start.eq_ignore_ascii_case(scheme.as_bytes()) && rest.starts_with(b"://")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_buckets_are_told_from_paths() {
        for url in ["s3://b/p", "S3://b/p", "gs://b", "az://c/p", "file:///tmp"] {
            assert!(is_bucket(url.as_bytes()), "{url}");
        }
        for path in ["s3:/b", "s3", "/s3://b", "http://b/p", "vol.img:/a"] {
            assert!(!is_bucket(path.as_bytes()), "{path}");
        }
    }
}
