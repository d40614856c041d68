//! Changes since a mark, of a volume that is open here and of one that is served.

use shoal::{Change, ChangeKind, Changes, Credentials, Dir, Mark, Volume};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

fn volume() -> (Volume, Dir) {
    let volume = crate::place::volume(Volume::options().size(128 << 20));
    let root = volume.root(Credentials::root());
    (volume, root)
}

type Told = BTreeSet<(u8, String)>;

fn told(changes: &mut Changes) -> Told {
    let each = |change: &Change| {
        let one = |path: std::path::PathBuf| (change.kind() as u8, path.display().to_string());
        change.paths().map(one).collect::<Vec<_>>()
    };
    changes.map(Result::unwrap).flat_map(|change| each(&change)).collect()
}

fn told_of(kind: ChangeKind, path: &str) -> (u8, String) {
    (kind as u8, path.to_owned())
}

#[test]
fn a_feed_has_every_change_once() {
    let (volume, root) = volume();
    volume.keep_removed_names(true).unwrap();
    let inbox = root.create_dir("inbox").unwrap();
    inbox.write("one", "1").unwrap();
    root.create_dir("drafts").unwrap().write("two", "2").unwrap();
    let mark = Mark::now(&root).unwrap();
    assert!(!mark.wait(&root, Duration::ZERO));
    inbox.remove_file("one").unwrap();
    root.rename("drafts", "inbox/read").unwrap();
    inbox.write("three", "3").unwrap();
    assert!(mark.wait(&root, Duration::ZERO));

    let mut changes = Changes::since(&root, Some(&mark)).unwrap();
    let all = told(&mut changes);
    assert!(changes.has_all_removed());
    for (kind, path) in [
        (ChangeKind::Renamed, "inbox/read"),
        (ChangeKind::Removed, "inbox/one"),
        (ChangeKind::Created, "inbox/three"),
    ] {
        assert!(all.contains(&told_of(kind, path)), "{kind:?} {path}: {all:?}");
    }
    // A clock may call new what is as old as the mark.
    assert!(["inbox", "."].iter().all(|dir| all.iter().any(|(_, path)| path == dir)), "{all:?}");
    let mut changes = Changes::since(&root, Some(&mark)).unwrap();
    let moved = changes.find(|change| change.as_ref().unwrap().kind() == ChangeKind::Renamed);
    assert_eq!(moved.unwrap().unwrap().from(), Some("drafts".into()));
    // Nothing since the end of that.
    assert_eq!(told(&mut Changes::since(&root, Some(&changes.mark())).unwrap()).len(), 0);
    // Below one directory alone.
    let below = told(&mut Changes::since(&inbox, Some(&mark)).unwrap());
    assert!(below.contains(&told_of(ChangeKind::Created, "three")), "{below:?}");
}

/// More than an answer of a session may have, and than the feed finds at a time.
#[test]
fn a_long_feed_is_whole() {
    let (_volume, root) = volume();
    let long = "n".repeat(200);
    let dir = root.create_dir_all(format!("{long}/{long}")).unwrap();
    for n in 0..3000 {
        dir.create_new(format!("{n:04}-{long}")).unwrap();
    }
    let mut changes = Changes::since(&root, None).unwrap();
    let all = told(&mut changes);
    assert_eq!(all.len(), 3003);
    assert!(changes.has_all_removed());
    assert!(all.contains(&told_of(ChangeKind::Created, &format!("{long}/{long}/2999-{long}"))));
}

#[test]
fn feeds_are_read_side_by_side_and_given_back() {
    let (_volume, root) = volume();
    for n in 0..500 {
        root.create_new(format!("{n:0200}")).unwrap();
    }
    // More than a session may read at a time, most of them before their end.
    for _ in 0..40 {
        let mut feeds = [(); 4].map(|()| Changes::since(&root, None).unwrap());
        for _ in 0..150 {
            for feed in &mut feeds {
                feed.next().unwrap().unwrap();
            }
        }
    }
    let mut feeds = [(); 3].map(|()| Changes::since(&root, None).unwrap());
    let first: Vec<_> = feeds.iter_mut().map(|feed| feed.next().unwrap().unwrap()).collect();
    assert!(first.iter().all(|change| *change == first[0]));
    assert!(feeds.iter_mut().all(|feed| feed.count() == 500));
}

#[test]
fn feeds_that_cannot_be_read() {
    let (volume, root) = volume();
    let dir = root.create_dir("dir").unwrap();
    let refused = |dir: &Dir, mark: Option<&Mark>| Changes::since(dir, mark).err().unwrap().kind();
    let (_other, elsewhere) = self::volume();
    let mark = Mark::now(&elsewhere).unwrap();
    assert_eq!(refused(&root, Some(&mark)), ErrorKind::CrossesDevices);
    root.set_permissions("dir", 0o700).unwrap();
    let ada = volume.root(Credentials::user(1000, 1000));
    assert_eq!(
        ada.open_dir("dir").and_then(|dir| Changes::since(&dir, None)).err().unwrap().kind(),
        ErrorKind::PermissionDenied
    );
    // What a user cannot list is left out.
    dir.write("hidden", "1").unwrap();
    let all = told(&mut Changes::since(&ada, None).unwrap());
    assert!(all.iter().all(|(_, path)| !path.contains("hidden")), "{all:?}");
    root.remove_dir_all("dir").unwrap();
    assert_eq!(refused(&dir, None), ErrorKind::NotFound);
}
