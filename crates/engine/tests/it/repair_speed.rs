//! Time to restore names: 200,000 files, 10,000 hard links, and no directory node left.
//!
//! `cargo test --release -p shoal-engine --test it -- repair_speed:: --ignored --nocapture`

use crate::common::*;
use shoal_engine::*;
use std::sync::Arc;
use std::time::Instant;

const FILES: usize = 200_000;
const LINKS: usize = 10_000;
const IN_A_DIRECTORY: usize = 250;

#[test]
#[ignore = "a measurement: run it in release"]
fn every_name_of_200_000_files() {
    let device = Arc::new(MemDevice::new(1 << 30));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for n in 0..FILES {
        if n % IN_A_DIRECTORY == 0 {
            let name = format!("directory-{}", dirs.len());
            dirs.push(
                volume.namespace().mkdir(&who, Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino,
            );
        }
        let dir = dirs[dirs.len() - 1];
        let name = format!("file-{n}");
        let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
        volume.files().write(file, 0, name.as_bytes(), false).unwrap();
        files.push(file);
    }
    for n in 0..LINKS {
        let (file, dir) = (files[n * 19 % FILES], dirs[n * 7 % dirs.len()]);
        volume.namespace().link(&who, file, dir, format!("link-{n}").as_bytes()).unwrap();
    }
    let before = shown(&volume);
    volume.close().unwrap();
    let blocks = blocks(&device);
    let nodes: Vec<_> = blocks["dirents leaf"].iter().chain(&blocks["dirents inner"]).collect();
    nodes.iter().for_each(|ptr| {
        device.write_at(&vec![0xee; ptr.len as usize], ptr.addr.0).unwrap();
    });
    let start = Instant::now();
    let report = repair(&device);
    let whole = start.elapsed().as_secs_f64();
    assert_eq!(report.left, vec![]);
    println!(
        "{} nodes destroyed; {} names back; repair {:.2} s: {:.0} inodes/s; with both checks \
         {whole:.2} s: {:.0} inodes/s",
        nodes.len(),
        report.actions.iter().filter(|a| a.message.contains("restored")).count(),
        report.seconds,
        report.inodes as f64 / report.seconds,
        report.inodes as f64 / whole,
    );
    let volume = open(&device);
    assert!(shown(&volume) == before, "every file under its own names, with its contents");
    volume.close().unwrap();
    assert_eq!(repair(&device).found, vec![]);
}
