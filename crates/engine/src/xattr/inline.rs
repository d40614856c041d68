//! Attributes in the inode: operations on an attribute fork's bytes. None has a side effect: each
//! returns the new fork, or the range to overwrite in the old one.

use shoal_base::{Error, Ino, Result};
use shoal_format::attr::{Attr, Attrs, Id};
use std::ops::Range;

/// An attribute found in a fork.
#[derive(Clone, Debug)]
pub(crate) struct Place<'f> {
    /// Range of its encoded bytes in the fork.
    pub range: Range<usize>,
    /// The attribute.
    pub attr: Attr<'f>,
}

/// Returns the error for an invalid fork: `EIO` with the inode's number. Other files are not
/// affected.
#[cold]
pub(crate) fn broken(ino: Ino, rule: impl Into<String>) -> Error {
    Error::corrupt(format!("attributes of inode {ino}"), None, rule)
}

/// Looks up an attribute.
#[inline]
pub(crate) fn find<'f>(ino: Ino, fork: &'f [u8], id: &Id<'_>) -> Result<Option<Place<'f>>> {
    let mut attrs = Attrs::new(fork);
    let mut start = 0;
    while let Some(attr) = attrs.next() {
        let attr = attr.ok_or_else(|| broken(ino, format!("no attribute at byte {start}")))?;
        let end = attrs.position();
        // Compared in the order in which they are most likely to differ.
        if attr.name == id.name && attr.space == id.space && attr.link(ino.root()) == id.link {
            return Ok(Some(Place { range: start..end, attr }));
        }
        start = end;
    }
    Ok(None)
}

/// Decodes all attributes of a fork.
pub(crate) fn all(ino: Ino, fork: &[u8]) -> Result<Vec<Attr<'_>>> {
    let attrs: Option<Vec<Attr<'_>>> = Attrs::new(fork).collect();
    attrs.ok_or_else(|| broken(ino, "not attributes"))
}

/// Returns the fork without `gone`, and with `new` in its place, or at the end if nothing is
/// removed.
pub(crate) fn spliced(fork: &[u8], gone: Option<&Range<usize>>, new: Option<&Attr<'_>>) -> Vec<u8> {
    let gone = gone.cloned().unwrap_or(fork.len()..fork.len());
    let added = new.map_or(0, Attr::encoded_len);
    let mut out = Vec::with_capacity(fork.len() - gone.len() + added);
    out.extend_from_slice(&fork[..gone.start]);
    if let Some(new) = new {
        new.encode(&mut out);
    }
    out.extend_from_slice(&fork[gone.end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_base::RootId;
    use shoal_format::attr::{Link, Namespace, Value, verify_fork};
    use shoal_skip::property;

    const INO: Ino = Ino(5 << 48 | 1);
    const ROOT: RootId = RootId(5);

    type Model = Vec<((Namespace, Vec<u8>, Option<Link>), Vec<u8>)>;

    fn check(fork: &[u8], model: &Model) {
        assert_eq!(verify_fork(ROOT, fork), Ok(()));
        let found: Model = all(INO, fork)
            .unwrap()
            .iter()
            .map(|a| {
                let Value::Local(value) = a.value else { panic!("remote") };
                ((a.space, a.name.to_vec(), a.link(ROOT)), value.to_vec())
            })
            .collect();
        let mut sorted = (found.clone(), model.clone());
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1);
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn behaves_as_a_list(
            ops in prop::collection::vec((0u8..3, 1u8..6, 0u8..4, 0u64..3, 0usize..40), 1..60),
        ) {
            let (mut fork, mut model) = (Vec::new(), Model::new());
            for (op, space, name, dir, len) in ops {
                let space = Namespace::from_number(space).unwrap();
                let name = vec![b'a' + name; 1 + name as usize * 3];
                let link = Link { dir: Ino(dir + 1), generation: 1 };
                let pointer = link.encode(ROOT);
                let parent = space == Namespace::Parent;
                let bytes = vec![len as u8; len];
                let value = if parent { &pointer[..] } else { &bytes[..] };
                let attr = Attr { space, name: &name, value: Value::Local(value) };
                let key = (space, name.clone(), parent.then_some(link));
                let place = find(INO, &fork, &attr.id(ROOT)).unwrap().map(|p| p.range);
                let known = model.iter().position(|(k, _)| *k == key);
                prop_assert_eq!(place.is_some(), known.is_some());
                if op == 0 {
                    fork = spliced(&fork, place.as_ref(), None);
                    known.map(|at| model.swap_remove(at));
                } else {
                    fork = spliced(&fork, place.as_ref(), Some(&attr));
                    known.map(|at| model.swap_remove(at));
                    model.push((key, value.to_vec()));
                }
                check(&fork, &model);
            }
        }

        #[test]
        fn arbitrary_bytes_are_an_error_at_most(raw in prop::collection::vec(any::<u8>(), 0..500)) {
            let found = find(Ino(7), &raw, &Id::new(Namespace::User, b"x"));
            if let Err(e) = found {
                prop_assert!(e.to_string().contains("inode 7") && e.errno() == 5);
            }
            let _ = all(Ino(7), &raw);
        }
    }
}
