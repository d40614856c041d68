//! A structure and an enumeration with every form that a declaration supports.

use super::Field;
use shoal_base::{Addr, RootId};

numbered! {
    /// A size.
    pub(super) enum Kind: u16 {
        /// Small.
        1 Small,
        /// Large.
        7 Large,
    }
}

layout! {
    /// A thing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Thing: "thing", 30 of varying, "A thing." {
        0 magic: u32 = 0x0102_0304, "a constant";
        4 kind: Kind, "its size";
        6 reserved[2], "zero";
        8 place: Addr, "where it is";
        16 roots: [RootId; 2], "two roots";
        20 sealed: bool, "whether it is sealed";
        21 pad[1], "zero";
        22 checksum[8], "of all before";
    }
}

const THING: Thing =
    Thing { kind: Kind::Large, place: Addr(0x99), roots: [RootId(3), RootId(4)], sealed: true };

#[test]
fn bytes_lie_where_they_are_declared_and_read_back() {
    let raw = THING.store();
    let mut out = vec![5];
    THING.append(&mut out);
    assert_eq!((out[1..] == raw, Thing::SIZE), (true, 30));
    assert_eq!(raw[..8], [4, 3, 2, 1, 7, 0, 0, 0]);
    assert_eq!((raw[8], raw[16], raw[18], raw[20]), (0x99, 3, 4, 1));
    assert_eq!(Thing::load(&raw), Ok(THING));
    assert_eq!(Thing::read(&[&raw[..], &[9]].concat()), Ok(THING));
    assert_eq!(Thing::TABLE.at("roots"), 16);
    assert_eq!(THING.fields_text(), "thing kind Large place 153 roots [3 4] sealed true");
    assert_eq!((Kind::ALL.len(), Kind::LEN, Thing::LEN), (2, 2, 30));
}

#[test]
fn a_broken_field_is_named() {
    let broken = |at: usize, byte: u8| {
        let mut raw = THING.store();
        raw[at] = byte;
        Thing::load(&raw)
    };
    assert_eq!(broken(0, 5), Err("magic"));
    assert_eq!(broken(4, 2), Err("kind"));
    assert_eq!(broken(20, 2), Err("sealed"));
    // Bytes that are not fields may get a meaning later.
    assert_eq!(broken(6, 1), Ok(THING));
    assert_eq!(Thing::read(&[0; 29]), Err("length"));
}
