//! Each lettered case of `scan.rs`, and arbitrary bytes.

use super::support::*;
use crate::{JournalPos, scan};
use proptest::prelude::*;
use shoal_base::{Addr, Code, Lsn, SegNo};
use shoal_device::{Device, MemDevice};
use shoal_format::batch::{BatchHeader, BatchKind};
use shoal_skip::property;

/// A journal of `batches` batches of one record each, every one flushed; with their positions.
fn sample(batches: u64, len: usize) -> (Rig, Vec<JournalPos>) {
    let rig = Rig::new(SMALL, quiet());
    let mut places = Vec::new();
    for n in 0..batches {
        places.push(rig.journal.flush_boundary(rig.journal.mark_boundary()).unwrap());
        let lsn = rig.journal.stage(&body(n, len)).unwrap();
        rig.journal.commit(lsn).unwrap();
    }
    places.push(rig.journal.flush_boundary(rig.journal.mark_boundary()).unwrap());
    (rig, places)
}

fn flip(device: &dyn Device, at: u64) {
    let mut byte = [0];
    device.read_at(&mut byte, at).unwrap();
    device.write_at(&[byte[0] ^ 0x40], at).unwrap();
}

fn wipe(device: &dyn Device, at: u64) {
    device.write_at(&[0; 4096], at).unwrap();
}

fn records_header(lsn: Lsn, len: usize, durable: Lsn) -> BatchHeader {
    BatchHeader {
        kind: BatchKind::Records,
        volume: VOLUME,
        incarnation: INCARNATION,
        len: len as u32,
        lsn_start: lsn,
        durable,
        next: Addr(0),
    }
}

#[test]
fn case_f_a_damaged_batch_before_an_acknowledged_one_is_corruption() {
    for damage in [flip as fn(&dyn Device, u64), wipe] {
        let (rig, places) = sample(8, 100);
        damage(&*rig.device, places[3].addr.0);
        let error = rig.scan().unwrap_err();
        assert_eq!(error.code(), Code::Io);
        let text = error.to_string();
        let lsn = format!("LSN {} (case F)", places[3].lsn.0);
        assert!(text.contains(&lsn) && text.contains(&places[3].addr.0.to_string()), "{text}");
    }
}

#[test]
fn case_f_is_found_through_a_lost_link_too() {
    let (rig, places) = sample(30, 4000);
    // A boundary was noted at the link: the batch that did not fit was to begin there.
    let second = SMALL.start_of(SegNo(3)).0;
    let before = places.iter().rposition(|p| p.addr.0 < second).unwrap();
    let link = places[before].addr;
    assert!(rig.scan().is_ok());
    wipe(&*rig.device, link.0);
    let text = rig.scan().unwrap_err().to_string();
    assert!(text.contains("case F"), "{text}");
}

#[test]
fn case_g_a_damaged_last_batch_is_a_torn_tail() {
    let (rig, places) = sample(8, 500);
    flip(&*rig.device, places[7].addr.0 + 300);
    let (found, end) = rig.scan().unwrap();
    assert_eq!((found.len(), end.end), (7, places[7]));
    assert!(end.torn.unwrap().contains("case G"));
}

#[test]
fn case_h_a_gap_before_batches_that_were_not_flushed_is_a_torn_tail() {
    let rig = Rig::new(SMALL, quiet());
    let mut places = Vec::new();
    for n in 0..4 {
        places.push(rig.start.addr.0 + n * 4096);
        rig.journal.stage(&body(n, 50)).unwrap();
        rig.journal.write_out().unwrap();
    }
    wipe(&*rig.device, places[1]);
    let (found, end) = rig.scan().unwrap();
    assert_eq!((found.len(), end.end.addr.0), (1, places[1]));
    assert!(end.torn.unwrap().contains("case H"));
}

#[test]
fn case_i_old_batches_of_a_reused_segment_are_the_end() {
    let (rig, places) = sample(3, 50);
    let end = places[3];
    put_batch(&*rig.device, end.addr, records_header(Lsn(1), 54, Lsn(1)), &[0; 54]);
    let mut other = records_header(end.lsn, 4, Lsn(!0));
    other.incarnation += 1;
    put_batch(&*rig.device, Addr(end.addr.0 + 4096), other, &[0; 4]);
    let (found, found_end) = rig.scan().unwrap();
    assert_eq!((found.len(), found_end.end, found_end.torn), (3, end, None));
}

#[test]
fn case_c_links_to_nowhere_or_back_are_corruption() {
    let (rig, places) = sample(3, 50);
    let at = places[3];
    let bad = [0, 1, 64 << 10 | 4096, SMALL.start_of(SegNo(2)).0, SMALL.bytes(), !0, !0 << 16];
    for next in bad {
        let link = BatchHeader {
            kind: BatchKind::Link,
            next: Addr(next),
            ..records_header(at.lsn, 0, at.lsn)
        };
        put_batch(&*rig.device, at.addr, link, &[]);
        let text = rig.scan().unwrap_err().to_string();
        assert!(text.contains("case C"), "{text}");
    }
}

#[test]
fn case_d_valid_batches_of_impossible_records_are_corruption() {
    let (rig, places) = sample(3, 50);
    let at = places[3];
    let (one, cut) = (&[1, 0, 0, 0, 9][..], &[1, 0, 0, 0, 9, 5, 0, 0, 0, 1][..]);
    let overlong = vec![0; (64 << 10) - 4 * 4096];
    for (lsn, records, pos) in [
        (at.lsn, &[][..], rig.start),
        (at.lsn, cut, rig.start),
        (at.lsn, &overlong[..], rig.start),
        (Lsn(u64::MAX), one, JournalPos { lsn: Lsn(u64::MAX), ..at }),
    ] {
        put_batch(&*rig.device, at.addr, records_header(lsn, records.len(), at.lsn), records);
        let text = rig.scan_from(pos).unwrap_err().to_string();
        assert!(text.contains("case D"), "{text}");
    }
}

#[test]
fn case_e_a_start_where_no_batch_can_be_is_corruption() {
    let (rig, _) = sample(1, 50);
    for addr in [0, 4096, (64 << 10) + 8, SMALL.bytes(), !0] {
        let pos = JournalPos { addr: Addr(addr), lsn: START };
        assert!(rig.scan_from(pos).unwrap_err().to_string().contains("case E"));
    }
}

#[test]
fn an_error_of_the_receiver_stops_the_scan() {
    let (rig, _) = sample(3, 50);
    let mut calls = 0;
    let each = |_, _: &[u8]| {
        calls += 1;
        Err(Code::NoMemory.into())
    };
    let result = scan(&*rig.device, &SMALL, VOLUME, INCARNATION, rig.start, each);
    assert!(result.unwrap_err().is(Code::NoMemory));
    assert_eq!(calls, 1);
}

/// A piece of a journal segment: mostly batches that are nearly right.
fn pieces() -> impl Strategy<Value = Vec<(u8, u64, u32, u64, u8)>> {
    let piece = (0..6u8, 0..40u64, 0..9000u32, any::<u64>(), 0..12u8);
    proptest::collection::vec(piece, 1..60)
}

proptest! {
    #![proptest_config(property(300))]

    /// Whatever is on the device, a scan ends, and delivers only consistent records.
    #[test]
    fn arbitrary_bytes_never_panic_or_loop(pieces in pieces(), start in 0..40u64) {
        let geometry = shoal_format::Geometry { segments: 6, ..SMALL };
        let device = MemDevice::new(geometry.bytes());
        let blocks = geometry.bytes() / 4096;
        for (n, (kind, lsn, len, noise, seg)) in pieces.iter().enumerate() {
            let addr = Addr((16 + n as u64 * 5 + u64::from(*seg)) % blocks * 4096);
            let len = (*len as usize).min((geometry.bytes() - addr.0) as usize - 64);
            let mut header = records_header(Lsn(*lsn), len, Lsn(noise % 80));
            let mut records = vec![0; len];
            if *kind < 2 {
                header.kind = BatchKind::Link;
                header.next = Addr(u64::from(*seg) * geometry.segment_size + noise % 2 * 4096);
                header.len = 0;
                records.clear();
            } else if *kind == 2 {
                header.len = *noise as u32;
            } else if *kind == 3 && len >= 4 {
                records[..4].copy_from_slice(&(len as u32 - 4).to_le_bytes());
            } else if *kind == 4 {
                device.write_at(&noise.to_le_bytes(), addr.0 + noise % 4000).unwrap();
                continue;
            }
            put_batch(&device, addr, header, &records);
        }
        let addr = Addr((16 + start) * 4096);
        let mut last = 0;
        let each = |lsn: Lsn, record: &[u8]| {
            assert!(lsn.0 >= last + record.len() as u64);
            last = lsn.0;
            Ok(())
        };
        let pos = JournalPos { addr, lsn: Lsn(start % 5) };
        let _ = scan(&device, &geometry, VOLUME, INCARNATION, pos, each);
    }

    #[test]
    fn one_damaged_byte_is_found(at in 0..(30u64 * 4096), bit in 0..8u8) {
        one_damaged_bit(at, bit);
    }
}

/// Found by a search.
#[test]
fn the_first_bit_of_the_journal_is_damaged() {
    one_damaged_bit(0, 0);
}

/// One damaged bit in a flushed journal: a prefix of the written records is delivered, and only
/// damage in the last batch (or in padding) goes unreported.
fn one_damaged_bit(at: u64, bit: u8) {
    let (rig, places) = sample(30, 700);
    let place = rig.start.addr.0 + at;
    let mut byte = [0];
    rig.device.read_at(&mut byte, place).unwrap();
    rig.device.write_at(&[byte[0] ^ (1 << bit)], place).unwrap();
    let last = places[29].addr.0;
    match rig.scan() {
        Ok((found, _)) => {
            let right = found.iter().enumerate().all(|(n, (_, r))| *r == body(n as u64, 700));
            assert!(right, "delivered something else");
            assert!(found.len() == 30 || place >= last);
        }
        Err(error) => assert!(error.to_string().contains("case F"), "{}", error),
    }
}
