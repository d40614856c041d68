//! Each structure encoded and decoded, and each broken rule named.

use super::*;

const GEOMETRY: Geometry = Geometry { segment_size: 1 << 20, segments: 2050, inode_size: 512 };
const OF: Expected<'static> = Expected { geometry: &GEOMETRY, volume: 9, epoch: 7 };
const DATA: UsageEntry = UsageEntry { live: U48::new(5), kind: SegKind::Data, sealed: false };

/// Page 0, with every kind of segment.
fn page() -> UsagePage {
    let mut entries = vec![UsageEntry::default(); 1024];
    entries[0].kind = SegKind::Super;
    entries[1] = UsageEntry { live: U48::new(77), kind: SegKind::Meta, sealed: true };
    entries[2] = UsageEntry { live: U48::new(1 << 20), kind: SegKind::Data, sealed: true };
    entries[3] = DATA;
    entries[4].kind = SegKind::Journal;
    UsagePage { number: 0, epoch: 7, entries }
}

fn ptr(addr: u64, len: usize) -> Ptr {
    Ptr::sealed(Addr(addr), 2, len as u32, 3)
}

fn index() -> UsageIndex {
    let pages = vec![ptr(1 << 20, PAGE_MAX), Ptr::NULL, ptr(2 << 20, HEADER + 2 * ENTRY)];
    UsageIndex { number: 0, epoch: 6, pages }
}

fn table() -> UsageTable {
    let mut positions = [Addr(0); STREAMS];
    positions[2] = Addr(3 * (1 << 20) + 8);
    let mut table = UsageTable::blank(&GEOMETRY, positions);
    table.enter(&page());
    table
}

fn root() -> UsageRoot {
    let (positions, totals) = (table().positions, table().totals());
    UsageRoot { epoch: 7, positions, totals, indexes: vec![ptr(3 << 20, index_len(&GEOMETRY, 0))] }
}

#[test]
fn what_is_encoded_is_decoded() {
    let raw = page().encode(9);
    assert_eq!(raw.len(), page_len(&GEOMETRY, 0));
    assert_eq!(UsagePage::decode(&raw, Addr(0), 0, &OF).unwrap(), page());
    assert!(page().to_text().contains("segment 3 data live 5 open"));
    let last = UsagePage { number: 2, epoch: 1, entries: vec![DATA, UsageEntry::default()] };
    let raw = last.encode(9);
    assert_eq!(UsagePage::decode(&raw, Addr(0), 2, &OF).unwrap(), last);
    assert_eq!(number_at(&raw, 9), Some((PAGE_MAGIC, 2)));
    assert!(last.to_text().contains("segment 2048 data live 5 open"));
    let raw = index().encode(9);
    assert_eq!(raw.len(), index_len(&GEOMETRY, 0));
    assert_eq!(UsageIndex::decode(&raw, Addr(0), 0, &OF).unwrap(), index());
    assert_eq!(number_at(&raw, 9), Some((INDEX_MAGIC, 0)));
    assert_eq!((number_at(&raw, 8), number_at(&raw[..31], 9)), (None, None));
    assert!(index().to_text().contains("page 2 at byte 2097152"));
    let raw = root().encode(9, 2050);
    assert_eq!(raw.len(), root_len(&GEOMETRY));
    assert_eq!(UsageRoot::decode(&raw, Addr(0), &OF).unwrap(), root());
    assert_eq!(number_at(&raw, 9), None);
    assert!(root().to_text().contains("2 data segments, live 1048581"));
    assert_eq!(table().verify(&GEOMETRY, &root().totals), Ok(()));
}

#[test]
fn the_largest_volume_has_the_lengths_said() {
    let geometry = Geometry { segments: limits::SEGMENTS_MAX, ..GEOMETRY };
    assert_eq!(indexes(&geometry) as usize, INDEXES_MAX);
    assert_eq!(root_len(&geometry), ROOT_MAX);
    let last = (pages(&geometry) - 1, indexes(&geometry) - 1);
    assert_eq!((page_len(&geometry, last.0), index_len(&geometry, last.1)), (PAGE_MAX, INDEX_MAX));
    // A number beyond the volume has no rows.
    assert_eq!(page_len(&geometry, u32::MAX), HEADER);
}

#[test]
fn each_broken_rule_of_a_page_is_named() {
    type Break = fn(&mut UsagePage);
    let cases: [(&str, Break); 9] = [
        ("segment 5: kind is super", |p| p.entries[5].kind = SegKind::Super),
        ("segment 0: kind is free", |p| p.entries[0].kind = SegKind::Free),
        ("segment 2: 137438953473 live bytes", |p| p.entries[2].live = U48::new((1 << 37) + 1)),
        ("segment 4: a journal segment with 1", |p| p.entries[4].live = U48::new(1)),
        ("segment 4: a journal segment with 0", |p| p.entries[4].sealed = true),
        ("segment 1: a sealed meta segment without", |p| p.entries[1].live = U48::new(0)),
        ("epoch 8 is after 7", |p| p.epoch = 8),
        ("number 1, expected 0", |p| p.number = 1),
        ("1023 rows in", |p| p.entries.truncate(1023)),
    ];
    for (expected, damage) in cases {
        let mut page = page();
        damage(&mut page);
        let error = UsagePage::decode(&page.encode(9), Addr(8), 0, &OF).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} instead of {expected}");
        assert!(error.contains("usage page 0 (segments 0 to 1023)"), "{error}");
    }
    let error = UsagePage::decode(&page().encode(8), Addr(0), 0, &OF).unwrap_err().to_string();
    assert!(error.contains("volume 0x8, expected 0x9"), "{error}");
}

#[test]
fn each_broken_rule_of_an_index_or_the_root_is_named() {
    let cannot = "which cannot be";
    let long = ptr(1 << 20, PAGE_MAX + 8);
    let cases: [(&str, UsageIndex); 6] = [
        (cannot, UsageIndex { pages: vec![long, Ptr::NULL, Ptr::NULL], ..index() }),
        (cannot, UsageIndex { pages: vec![ptr(8, PAGE_MAX); 3], ..index() }),
        (cannot, UsageIndex { pages: vec![ptr((1 << 20) + 4, PAGE_MAX); 3], ..index() }),
        ("4 pointers in", UsageIndex { pages: vec![Ptr::NULL; 4], ..index() }),
        ("number 3, expected 0", UsageIndex { number: 3, ..index() }),
        ("epoch 9 is after 7", UsageIndex { epoch: 9, ..index() }),
    ];
    for (expected, index) in cases {
        let error = UsageIndex::decode(&index.encode(9), Addr(0), 0, &OF).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} instead of {expected}");
    }
    type Break = fn(&mut UsageRoot);
    let cases: [(&str, Break); 7] = [
        ("which no stream can", |r| r.positions[2].0 += 1),
        ("which no stream can", |r| r.positions[2].0 = 2050 << 20),
        ("totals of 2051 segments", |r| r.totals.add(&DATA)),
        ("epoch 6, expected 7", |r| r.epoch = 6),
        ("epoch 8 is after 7", |r| r.epoch = 8),
        ("2 index pages in", |r| r.indexes.push(Ptr::NULL)),
        ("which cannot be", |r| r.indexes[0].len += 8),
    ];
    for (expected, damage) in cases {
        let mut root = root();
        damage(&mut root);
        let error = UsageRoot::decode(&root.encode(9, 2050), Addr(0), &OF).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} instead of {expected}");
    }
    let error = UsageRoot::decode(&root().encode(9, 2049), Addr(0), &OF).unwrap_err();
    assert!(error.to_string().contains("2049 segments, the volume has 2050"), "{error}");
}

#[test]
fn each_broken_rule_of_the_table_is_named() {
    type Break = fn(&mut UsageTable);
    let cases: [(&str, Break); 5] = [
        ("not its own", |t| t.positions[0] = t.positions[2]),
        ("not its own", |t| t.positions[3] = t.positions[2]),
        ("1 segments are open, 0 streams", |t| t.positions[2].0 = 0),
        ("the totals say 1 meta segments with 77 live", |t| t.entries[1].live = U48::new(78)),
        ("segment 9: kind is super", |t| t.entries[9].kind = SegKind::Super),
    ];
    for (expected, damage) in cases {
        let mut table = table();
        damage(&mut table);
        let error = table.verify(&GEOMETRY, &root().totals).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} instead of {expected}");
    }
}

#[test]
fn short_long_or_foreign_bytes_are_errors() {
    type Taken = fn(&[u8]) -> bool;
    let decode: [(Vec<u8>, Taken); 3] = [
        (page().encode(9), |raw| UsagePage::decode(raw, Addr(0), 0, &OF).is_ok()),
        (index().encode(9), |raw| UsageIndex::decode(raw, Addr(0), 0, &OF).is_ok()),
        (root().encode(9, 2050), |raw| UsageRoot::decode(raw, Addr(0), &OF).is_ok()),
    ];
    for (raw, taken) in decode {
        assert!(taken(&raw));
        assert!((0..raw.len()).all(|len| !taken(&raw[..len])));
        assert!(!taken(&[&raw[..], &[0]].concat()));
        // Magic, count, volume, the epoch's high bytes, number, reserved.
        for at in 0..HEADER {
            let mut bad = raw.clone();
            bad[at] ^= 0x80;
            assert!(!taken(&bad), "byte {at}");
        }
    }
    let raw = page().encode(9);
    for at in (HEADER..raw.len()).filter(|at| at % ENTRY > 3) {
        let mut bad = raw.clone();
        bad[at] ^= 0x80;
        assert!(UsagePage::decode(&bad, Addr(0), 0, &OF).is_err(), "byte {at}");
    }
}
