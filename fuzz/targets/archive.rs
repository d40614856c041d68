//! Archives of tar, which come from anywhere: read to their end or to an error; what was read is
//! written and read again.

use shoal_tar::{Kind, Member, Reader, Writer};

/// Contents that are written again, at most.
const CONTENTS_MAX: u64 = 64 << 10;

/// Members with their contents, until an error.
fn read(data: &[u8]) -> Vec<(Member, Vec<u8>)> {
    let mut reader = Reader::new(data);
    let mut members = Vec::new();
    while let Ok(Some(member)) = reader.next_member() {
        let mut contents = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            contents.extend_from_slice(&buffer[..read]);
        }
        assert!(reader.offset() <= data.len() as u64);
        members.push((member, contents));
    }
    members
}

/// Members of archives that this crate writes: names have an end, and are those of their kind.
fn is_plain(member: &Member, contents: &[u8]) -> bool {
    let Member { name, link, user, group, sparse, .. } = member;
    let extents = sparse.as_ref().map_or(0, Vec::len);
    let stored = match sparse {
        Some(extents) => extents.iter().map(|extent| extent.len).sum(),
        None => member.size,
    };
    let has_contents = member.kind == Kind::File;
    !matches!(member.kind, Kind::Other(_))
        && [name, link, user, group].into_iter().all(|text| !text.contains(&0))
        && !name.is_empty()
        && (has_contents != name.ends_with(b"/") || !has_contents)
        && (has_contents || stored == 0)
        && stored <= CONTENTS_MAX
        && stored == contents.len() as u64
        && extents <= 1000
}

/// Reads an archive.
pub fn archive(data: &[u8]) {
    let members = read(data);
    let total: usize = members.iter().map(|(_, contents)| contents.len()).sum();
    assert!(total <= data.len());
    let plain = members.iter().filter(|(member, contents)| is_plain(member, contents));
    let plain: Vec<&(Member, Vec<u8>)> = plain.collect();
    let mut writer = Writer::new(Vec::new());
    for (member, contents) in &plain {
        writer.member(member).expect("a member that was read");
        writer.data(contents).expect("as many bytes as it has");
    }
    let again = read(&writer.finish().expect("memory"));
    assert!(again.iter().eq(plain.into_iter()), "{again:?}");
}
