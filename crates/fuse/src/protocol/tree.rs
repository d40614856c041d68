//! The ioctl that removes a tree: on an open directory, with a name in it.
//!
//! ```text
//! struct := ino 8 | flags 4 | length 2 | 0 2 | name, and whatever up to 256 bytes
//! ```
//!
//! | field | in | out |
//! | --- | --- | --- |
//! | ino | 0 | the inode that the name meant |
//! | flags | [`TOP_ONLY`] | [`STILL_SHOWN`] |
//! | length, name | the name, without a NUL | as they were |

use super::Errno;
use super::wire::TreeHead;
use shoal::limits::NAME_MAX;
use zerocopy::FromBytes;

/// In: only the top's name is looked at for permission. For the superuser.
pub const TOP_ONLY: u32 = 1 << 0;
/// Out: the tree is gone, but the kernel has not let go of the name yet, so that it may be seen
/// for a moment.
pub const STILL_SHOWN: u32 = 1 << 1;

/// Bytes of the head.
pub const HEAD: usize = size_of::<TreeHead>();
/// Bytes of the structure.
pub const SIZE: usize = HEAD + NAME_MAX + 1;

/// What is asked for.
pub fn question(bytes: &[u8]) -> Result<(TreeHead, &[u8]), Errno> {
    let (head, rest) = TreeHead::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
    let len = usize::from(head.len);
    if len > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let known = head.flags & !TOP_ONLY == 0 && head.padding == 0 && head.ino == 0;
    let name = rest.get(..len).filter(|name| known && is_name(name));
    name.map(|name| (head, name)).ok_or(Errno::EINVAL)
}

/// Whether a directory could hold it.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn questions_are_checked() {
        let ask = |head: TreeHead, name: &[u8]| {
            let len = name.len() as u16;
            let mut bytes = TreeHead { len, ..head }.as_bytes().to_vec();
            bytes.extend_from_slice(name);
            bytes.resize(SIZE.max(bytes.len()), b'/');
            question(&bytes).map(|(head, name)| (head.flags, name.to_vec()))
        };
        let good = TreeHead::default();
        assert_eq!(ask(good, b"name"), Ok((0, b"name".to_vec())));
        assert_eq!(ask(TreeHead { flags: TOP_ONLY, ..good }, &[b'x'; 255]), {
            Ok((TOP_ONLY, vec![b'x'; 255]))
        });
        assert_eq!(ask(good, &[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(ask(good, bad), Err(Errno::EINVAL));
        }
        for bad in [
            TreeHead { flags: STILL_SHOWN, ..good },
            TreeHead { padding: 1, ..good },
            TreeHead { ino: 1, ..good },
        ] {
            assert_eq!(ask(bad, b"name"), Err(Errno::EINVAL));
        }
        assert_eq!(question(&[0; 15]), Err(Errno::EINVAL));
    }
}
