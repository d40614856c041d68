//! Attributes of many files with one call, as a program uses it.

use shoal::{Credentials, Dir, Fields, FileKind, Filter, Ino, Listed, Listing, Metadata, Volume};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Mutex;

fn volume() -> (Volume, Dir) {
    let volume = crate::place::volume(Volume::options().size(128 << 20));
    let root = volume.root(Credentials::root());
    (volume, root)
}

#[test]
fn many_are_as_each_of_them() {
    let (_volume, root) = volume();
    let dir = root.create_dir_all("a/b").unwrap();
    let mut paths: Vec<String> = (0..1000).map(|i| format!("f{i}")).collect();
    for (i, path) in paths.iter().enumerate() {
        dir.write(path, vec![0; i]).unwrap();
    }
    dir.symlink("f7", "link").unwrap();
    dir.symlink("../../outside", "escape").unwrap();
    dir.symlink("nowhere", "dangling").unwrap();
    dir.create_dir("sub").unwrap().write("x", b"xyz").unwrap();
    let others =
        ["link", "escape", "dangling", "sub", "sub/x", "sub/", "f1/", "", ".", "..", "/f1", "-"];
    paths.extend(others.map(str::to_owned));
    let shown = |found: shoal::Result<Metadata>| found.map_err(|e| e.to_string());
    let many = dir.metadata_many(&paths).into_iter().map(shown);
    let each = paths.iter().map(|path| shown(dir.metadata(path)));
    assert!(many.clone().filter(Result::is_ok).count() > 1004);
    for ((many, each), path) in many.zip(each).zip(&paths) {
        assert_eq!(many, each, "{path:?}");
    }
    let none: [&str; 0] = [];
    assert!(dir.metadata_many(&none).is_empty());
}

#[test]
fn inodes_are_scanned_by_threads_and_by_pages() {
    let (volume, root) = volume();
    let dir = root.create_dir("d").unwrap();
    for i in 0..3000 {
        dir.write(format!("f{i}"), b"").unwrap();
    }
    dir.hard_link("f0", "again").unwrap();
    let expected: BTreeSet<u64> = root
        .walk()
        .into_iter()
        .map(|entry| entry.unwrap().metadata().ino().0)
        .chain([Ino::ROOT.0])
        .collect();
    assert_eq!(expected.len(), 3002);
    for threads in [1, 3] {
        let found = Mutex::new(Vec::new());
        let add = |batch: &[Metadata]| {
            found.lock().unwrap().extend(batch.iter().map(|metadata| metadata.ino().0));
        };
        volume.inodes().threads(threads).for_each(add).unwrap();
        let mut found = found.into_inner().unwrap();
        assert!(threads > 1 || found.is_sorted());
        found.sort_unstable();
        assert!(found.iter().eq(&expected), "{threads} threads");
    }
    let (mut scan, mut paged) = (volume.inodes(), Vec::new());
    loop {
        let page = scan.page(700).unwrap();
        paged.extend(page.iter().map(|metadata| metadata.ino().0));
        let Some(last) = page.last() else { break };
        assert!(page.len() == 700 || paged.len() == expected.len());
        scan = scan.after(last.ino());
    }
    assert!(paged.iter().eq(&expected));
}

#[test]
fn a_subvolume_is_scanned_alone() {
    let (volume, root) = volume();
    let top = volume.subvolumes().create("sub").unwrap();
    let file = top.create_new("inside").unwrap().ino();
    root.write("outside", b"").unwrap();
    let sub = volume.subvolumes().list().unwrap().remove(0);
    let scan = volume.inodes().subvolume(&sub);
    let found: Vec<Ino> = scan.page(10).unwrap().iter().map(Metadata::ino).collect();
    assert_eq!(found, [sub.top, file]);
    assert!(scan.page(0).unwrap().is_empty());
    drop(top);
    volume.subvolumes().delete("sub").unwrap();
    let gone = scan.page(10).unwrap_err();
    assert_eq!(gone.errno(), shoal::raw::Code::Stale.errno(), "{gone}");
}

/// Each entry once, in batches of any size, in parts, and from a cookie on.
#[test]
fn a_listing_goes_on_where_it_was() {
    let (_volume, root) = volume();
    let dir = root.create_dir("d").unwrap();
    for i in 0..1000 {
        dir.write(format!("f{i}"), vec![0; i]).unwrap();
    }
    dir.create_dir("sub").unwrap();
    let names = |batch: &[Listed<'_>]| batch.iter().map(|it| it.path()).collect::<Vec<_>>();
    let all = names(&Listing::of(&dir).unwrap().next_batch(usize::MAX).unwrap());
    assert_eq!(all.len(), 1001);
    for at_most in [1, 7, 500, 1001, 5000] {
        let mut listing = Listing::of(&dir).unwrap();
        let mut found = Vec::new();
        loop {
            let batch = listing.next_batch(at_most).unwrap();
            let ended = batch.len() < at_most;
            if let Some(last) = batch.last() {
                assert_eq!(last.cookie() == listing.cookie(), !ended);
            }
            found.extend(names(&batch));
            if ended {
                break;
            }
            // Another one goes on as well.
            listing = Listing::of(&dir).unwrap().after(listing.cookie());
        }
        assert_eq!(found, all, "{at_most}");
        assert!(listing.next_batch(1).unwrap().is_empty());
    }
    let parts = Listing::of(&dir).unwrap().split(5);
    let parts = parts.into_iter().flat_map(|mut part| part.next_batch(usize::MAX).unwrap());
    assert_eq!(names(&parts.collect::<Vec<_>>()), all);
    let large = Filter::new().kind(FileKind::Regular).size(990..);
    let mut large = Listing::of(&dir).unwrap().filter(large);
    let mut sizes = Vec::new();
    let three = large.for_each(|entry| {
        sizes.push(entry.metadata().unwrap().unwrap().len());
        if sizes.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    three.unwrap();
    sizes.extend(large.next_batch(100).unwrap().iter().map(|it| it.stat().unwrap().size));
    sizes.sort_unstable();
    assert_eq!(sizes, (990..1000).collect::<Vec<u64>>());
}

#[test]
fn a_listing_shows_what_the_user_may_see() {
    let (volume, root) = volume();
    let dir = root.create_dir("d").unwrap();
    dir.write("file", b"x").unwrap();
    let user = |mode| {
        root.set_permissions("d", mode).unwrap();
        volume.root(Credentials::user(1000, 1000)).open_dir("d").unwrap()
    };
    let denied = |error: shoal::Error| assert_eq!(error.errno(), 13, "{error}");
    denied(Listing::of(&user(0o711)).unwrap_err());
    // To list, but not to reach what is there.
    let names = user(0o744);
    let mut listing = Listing::of(&names).unwrap();
    denied(listing.next_batch(10).unwrap_err());
    let mut listing = listing.want(Fields::TYPE | Fields::INO);
    assert_eq!(listing.next_batch(10).unwrap().len(), 1);
    let sizes = Filter::new().size(1..);
    let mut by_size = Listing::of(&names).unwrap().want(Fields::NONE).filter(sizes);
    denied(by_size.next_batch(10).unwrap_err());
    let mut gone = Listing::of(&user(0o755)).unwrap();
    root.remove_file("d/file").unwrap();
    root.remove_dir("d").unwrap();
    // The handle keeps it, empty.
    assert!(gone.next_batch(1).unwrap().is_empty());
}
