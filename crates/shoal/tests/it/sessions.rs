//! The library on a volume that another process serves. Here it is the same process: nothing
//! between the two ends knows.

use shoal::{Changes, Credentials, FileOptions, ServeOptions, TreeChange, Volume};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Place for a socket of this test.
fn socket() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("shoal-session-{}-{number}.sock", std::process::id()))
}

#[test]
fn both_doors_lead_to_one_volume() {
    let volume = Volume::options().size(64 << 20).in_memory().unwrap();
    let serving = volume.serve(ServeOptions::new().socket(socket())).unwrap();
    let other = Volume::connect(serving.socket()).unwrap();
    let (here, there) = (volume.root(Credentials::root()), other.root(Credentials::current()));
    there.create_dir_all("a/b").unwrap();
    there.write("a/b/file", "hello").unwrap();
    assert_eq!(here.read("a/b/file").unwrap(), b"hello");
    here.rename("a/b/file", "a/moved").unwrap();
    assert_eq!(there.read("a/moved").unwrap(), b"hello");
    assert!(!there.exists("a/b/file").unwrap());
    let mut file = there.open("a/moved").unwrap();
    here.remove_file("a/moved").unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello", "open files live on");
    let error = there.open("a/moved").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("a/moved"), "{error}");
    assert_eq!(serving.sessions(), 1);
    drop(file);
    drop((there, other));
    drop(serving);
    drop(here);
    volume.close().unwrap();
}

/// Longer than one question, and than one answer.
#[test]
fn long_messages_come_through_whole() {
    let volume = Volume::options().size(256 << 20).in_memory().unwrap();
    let serving = volume.serve(ServeOptions::new().socket(socket())).unwrap();
    let other = Volume::connect(serving.socket()).unwrap();
    let there = other.root(Credentials::current());
    let long: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    there.write("long", &long).unwrap();
    assert!(there.read("long").unwrap() == long);
    let mut file = FileOptions::new().append(true).read(true).open(&there, "long").unwrap();
    file.write_all(b"end").unwrap();
    assert_eq!(there.metadata("long").unwrap().len(), 5_000_003);
    let mut part = vec![0; 300_000];
    assert_eq!(file.read_at(&mut part, 4_999_000).unwrap(), 1_003);
    // A batch of 3 MB.
    there
        .batch(|b| {
            for n in 0..100 {
                b.write(format!("batch-{n}"), vec![n as u8; 30_000])?;
            }
            Ok(())
        })
        .unwrap();
    assert!(there.read("batch-99").unwrap() == vec![99; 30_000]);
    for n in 0..3000 {
        there.create_new(format!("{n:0200}")).unwrap();
    }
    let names = there.entries().unwrap().map(|entry| entry.unwrap().name().to_vec());
    assert_eq!(names.count(), 3101);
}

#[test]
fn a_child_of_fork_and_a_dead_server_are_told() {
    let volume = Volume::options().size(64 << 20).in_memory().unwrap();
    let serving = volume.serve(ServeOptions::new().socket(socket())).unwrap();
    let other = Volume::connect(serving.socket()).unwrap();
    let there = other.root(Credentials::current());
    let place = serving.socket().to_owned();
    let again = volume.serve(ServeOptions::new().socket(&place)).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::ResourceBusy);
    drop(serving);
    let error = there.metadata("x").unwrap_err();
    assert!(error.to_string().contains("connect anew"), "{error}");
    let error = Volume::connect(&place).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
}

#[test]
fn a_session_reads_a_bounded_number_of_change_feeds() {
    let volume = Volume::options().size(64 << 20).in_memory().unwrap();
    let serving = volume.serve(ServeOptions::new().socket(socket())).unwrap();
    let other = Volume::connect(serving.socket()).unwrap();
    let there = other.root(Credentials::current());
    let mut feeds: Vec<_> = (0..16).map(|_| Changes::since(&there, None).unwrap()).collect();
    let refused = Changes::since(&there, None).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory, "{refused}");
    feeds.pop();
    feeds.push(Changes::since(&there, None).unwrap());
    assert!(feeds.into_iter().all(|feed| feed.count() == 1));
    // Each session has its own.
    let third = Volume::connect(serving.socket()).unwrap();
    let there = third.root(Credentials::current());
    assert_eq!(Changes::since(&there, None).unwrap().count(), 1);
}

/// The change stops with the server, and leaves nothing that would go on or be in use.
#[test]
fn a_change_of_a_tree_ends_with_its_server() {
    let volume = Volume::options().size(64 << 20).in_memory().unwrap();
    let root = volume.root(Credentials::root());
    for n in 0..3000 {
        root.create_new(format!("{n}")).unwrap();
    }
    let serving = volume.serve(ServeOptions::new().socket(socket())).unwrap();
    let other = Volume::connect(serving.socket()).unwrap();
    // Of what this user may not change there is more to tell than fits into an answer.
    let there = other.root(Credentials::user(1000, 1000));
    let serving = std::sync::Mutex::new(Some(serving));
    let change = TreeChange::new().mode("a+x").unwrap();
    let done = change.make_watched(&there, |_, _| {
        drop(serving.lock().unwrap().take());
        ControlFlow::Continue(())
    });
    assert!(done.unwrap_err().to_string().contains("connect anew"));
    assert!(serving.into_inner().unwrap().is_none());
    assert_eq!(change.make(&root).unwrap().changed(), 3001);
    drop((there, other, root));
    volume.close().unwrap();
}
