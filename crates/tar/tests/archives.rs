//! Archives that come back as they were written, and damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_skip::property;
use shoal_tar::{Extent, Kind, Member, Problem, Reader, Writer};

/// Writes members, each with the contents that its number stands for.
fn archive(members: &[Member]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (number, member) in (0u8..).zip(members) {
        writer.member(member).expect("a member");
        let data = vec![number; usize::try_from(writer.left()).expect("a small file")];
        // The map of a sparse file has been written already.
        writer.data(&data).expect("contents");
    }
    writer.finish().expect("an end")
}

/// Reads all members, and the bytes of each.
fn read(bytes: &[u8]) -> (Vec<(Member, Vec<u8>)>, Option<shoal_tar::Error>) {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    loop {
        let member = match reader.next_member() {
            Ok(Some(member)) => member,
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        };
        let mut contents = Vec::new();
        let mut buffer = [0; 700];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => contents.extend_from_slice(&buffer[..read]),
                Err(error) => return (all, Some(error)),
            }
        }
        all.push((member, contents));
    }
}

/// Names without NUL, of a length that fits a header, needs its prefix, or needs a record.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let part = vec(prop_oneof![Just(b'/'), 1u8..=255], 1..20);
    (part, 0usize..20).prop_map(|(part, times)| {
        let mut name = part.repeat(times + 1);
        name.truncate(300);
        // A slash at the end would make a directory of it.
        name.push(b'x');
        name
    })
}

fn xattrs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let value = vec(any::<u8>(), 0..200);
    proptest::collection::btree_map(vec(1u8..=255, 1..20), value, 0..4)
        .prop_map(|map| map.into_iter().collect())
}

fn member() -> impl Strategy<Value = Member> {
    let kind = prop_oneof![
        Just(Kind::File),
        Just(Kind::HardLink),
        Just(Kind::Symlink),
        Just(Kind::CharDevice),
        Just(Kind::BlockDevice),
        Just(Kind::Directory),
        Just(Kind::Fifo),
    ];
    let numbers = (0u32..0o10000, any::<u32>(), any::<u32>(), 0u64..3000, any::<(u16, u16)>());
    let time = (any::<i64>(), 0u32..1_000_000_000);
    let extents = proptest::option::of(vec((0u64..900, 0u64..900), 0..40));
    let acl = proptest::option::of(Just(b"user::rwx\n".to_vec()));
    (kind, name(), name(), numbers, time, xattrs(), extents, acl).prop_map(
        |(kind, name, link, (mode, uid, gid, size, device), mtime, xattrs, extents, acl)| {
            let mut member = Member { mode, uid, gid, mtime, xattrs, ..Member::new(name, kind) };
            member.acl = acl;
            member.user = link[..link.len().min(40)].to_vec();
            if matches!(kind, Kind::HardLink | Kind::Symlink) {
                member.link = link;
            }
            if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
                member.device = (device.0.into(), device.1.into());
            }
            if kind == Kind::File {
                member.size = size;
                let mut end = 0;
                let place = |(gap, len): (u64, u64)| {
                    let offset = end + gap;
                    end = offset + len;
                    Extent { offset, len }
                };
                member.sparse = extents.map(|it| it.into_iter().map(place).collect());
                member.size += end;
            }
            member
        },
    )
}

proptest! {
    #![proptest_config(property(200))]

    #[test]
    fn members_come_back(members in vec(member(), 0..6)) {
        let bytes = archive(&members);
        prop_assert_eq!(bytes.len() % 10_240, 0);
        let (found, error) = read(&bytes);
        prop_assert!(error.is_none(), "{:?}", error);
        let (found, contents): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        for (number, (member, contents)) in (0u8..).zip(found.iter().zip(&contents)) {
            let stored = match &member.sparse {
                Some(extents) => extents.iter().map(|extent| extent.len).sum(),
                None => member.size,
            };
            prop_assert_eq!(contents.len() as u64, stored);
            prop_assert!(contents.iter().all(|byte| *byte == number));
        }
        prop_assert_eq!(found, members);
    }

    /// Each prefix of an archive ends with an error, and the members before it are whole.
    #[test]
    fn a_truncated_archive_says_so(
        members in vec(member(), 1..4),
        at in any::<prop::sample::Index>(),
    ) {
        let bytes = archive(&members);
        let (_, end) = (0..bytes.len() / 512).fold((0, 0), |(zeros, end), block| {
            let is_zero = bytes[block * 512..][..512].iter().all(|byte| *byte == 0);
            (zeros + usize::from(is_zero), if is_zero { end } else { block + 1 })
        });
        let cut = at.index(end * 512);
        let (found, error) = read(&bytes[..cut]);
        let problem = error.map(|error| error.problem);
        prop_assert!(matches!(problem, Some(Problem::Truncated | Problem::NoEnd)), "{:?}", problem);
        prop_assert!(found.len() <= members.len());
        prop_assert!(found.iter().map(|(member, _)| member).eq(&members[..found.len()]));
    }

    /// Damage is found, or changes what is read: it never fails otherwise, and never reads beyond.
    #[test]
    fn damage_does_no_harm(
        members in vec(member(), 1..4),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = archive(&members);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            // With a right checksum, if it is in a header.
            let block = at / 512 * 512;
            let header = &mut bytes[block..block + 512];
            if header[257..262] == *b"ustar" {
                header[148..156].fill(b' ');
                let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
                header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        let (found, error) = read(&bytes);
        let read: usize = found.iter().map(|(_, contents)| contents.len()).sum();
        prop_assert!(read <= bytes.len());
        if let Some(error) = error {
            prop_assert!(error.offset <= bytes.len() as u64);
        }
    }
}

/// The first block of a member, with fields set and a right checksum.
fn header(kind: u8, size: &str, name: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name);
    header[124..124 + size.len()].copy_from_slice(size.as_bytes());
    header[156] = kind;
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// The header of a file that is too large for octal digits; its contents are left out.
#[test]
fn files_of_more_than_8_gib() {
    for size in [(8 << 30) - 1, 8 << 30, 1 << 40, i64::MAX as u64] {
        let member = Member { size, ..Member::new(b"large".to_vec(), Kind::File) };
        let mut writer = Writer::new(Vec::new());
        writer.member(&member).expect("a header");
        assert_eq!(writer.left(), size);
        let written = usize::try_from(writer.written()).expect("small");
        let bytes = {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).member(&member).expect("a header");
            bytes
        };
        assert_eq!(bytes.len(), written);
        let mut reader = Reader::new(&bytes[..]);
        assert_eq!(reader.next_member().expect("a member"), Some(member));
        let cut = reader.next_member().map_err(|error| error.problem);
        assert!(matches!(cut, Err(Problem::Truncated)), "{cut:?}");
    }
}

#[test]
fn sizes_that_lie() {
    let (found, error) = read(&header(b'0', "77777777777", b"large"));
    let error = error.expect("an error");
    assert!(found.is_empty());
    assert_eq!(error.to_string(), "the archive is truncated (at \"large\", offset 512)");
    for kind in [b'x', b'g', b'L', b'K'] {
        let (_, error) = read(&header(kind, "77777777777", b"long"));
        let problem = error.map(|error| error.problem);
        assert!(matches!(problem, Some(Problem::TooLong(_))), "{problem:?}");
    }
    // Many extensions before one member.
    let mut many = Vec::new();
    for number in 0..3000 {
        let mut record = format!("3000 key{number}=").into_bytes();
        record.resize(2999, b'v');
        record.push(b'\n');
        many.extend(header(b'x', "5670", b"records"));
        many.extend(&record);
        many.resize(many.len().next_multiple_of(512), 0);
    }
    let (_, error) = read(&many);
    let problem = error.map(|error| error.problem);
    assert!(matches!(problem, Some(Problem::TooLong("extended records"))), "{problem:?}");
}

#[test]
fn what_is_no_archive() {
    for bytes in [&b""[..], &[7; 100], &[b'x'; 2000]] {
        let (found, error) = read(bytes);
        assert!(found.is_empty() && error.is_some());
    }
    let error = read(&[b'x'; 2000]).1.expect("an error");
    assert_eq!(error.offset, 0);
    assert!(matches!(error.problem, Problem::NoHeader));
}

#[test]
fn types_that_are_not_known() {
    let mut bytes = header(b'M', "3", b"rest");
    bytes.extend(vec![1; 512]);
    bytes.extend(header(b'0', "0", b"file"));
    bytes.extend(vec![0; 1024]);
    let (found, error) = read(&bytes);
    assert!(error.is_none());
    assert!(matches!(found[0].0.kind, Kind::Other(_)));
    assert_eq!(found[1].0.name, b"file");
}
