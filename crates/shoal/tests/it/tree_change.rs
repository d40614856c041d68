//! Changes of trees, on a volume that is open here and on one that is served.

use shoal::{AclChange, Credentials, Dir, TreeChange, Volume};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn volume() -> (Volume, Dir) {
    let volume = crate::place::volume(Volume::options().size(128 << 20));
    let root = volume.root(Credentials::root());
    (volume, root)
}

#[test]
fn owners_modes_and_lists_of_a_tree() {
    let (volume, root) = volume();
    let mail = root.create_dir("mail").unwrap();
    mail.create_dir_all("a/b").unwrap().write("1", "hello").unwrap();
    let change = TreeChange::new().owner(Some(1000), None).mode("u=rwX,go=").unwrap();
    let done = change.make(&mail).unwrap();
    assert_eq!((done.changed(), done.failed()), (4, 0));
    let found = mail.metadata("a/b/1").unwrap();
    assert_eq!((found.uid(), found.permissions() & 0o777), (1000, 0o600));
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    TreeChange::new().times(then, then).make(&mail).unwrap();
    assert_eq!(mail.metadata("a/b/1").unwrap().modified(), then);
    let list = AclChange::of_access().set("u:2000:rwX").unwrap();
    TreeChange::new().list(list).make(&mail).unwrap();
    let bob = volume.root(Credentials::user(2000, 2000));
    bob.write("mail/a/b/1", "new").unwrap();
    // The whole volume.
    assert_eq!(TreeChange::new().owner(Some(0), Some(0)).make(&root).unwrap().changed(), 5);
}

#[test]
fn progress_and_failures_are_told_and_a_watcher_ends_it() {
    let (volume, root) = volume();
    for n in 0..60 {
        let dir = root.create_dir(format!("dir-{n}")).unwrap();
        (0..50).for_each(|m| drop(dir.create_new(format!("{m}")).unwrap()));
    }
    let (steps, last) = (AtomicU64::new(0), AtomicU64::new(0));
    let change = TreeChange::new().mode("a+w").unwrap();
    let done = change.make_watched(&root, |so_far, new| {
        assert!(new.is_empty());
        steps.fetch_add(1, Ordering::Relaxed);
        last.fetch_max(so_far.changed(), Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    assert_eq!((done.unwrap().changed(), last.into_inner()), (3061, 3061));
    assert!(steps.into_inner() > 0);

    // A user may change her own files alone: the others are told, each once.
    root.set_owner("dir-7/7", Some(1000), None).unwrap();
    let ada = volume.root(Credentials::user(1000, 1000));
    let failed = Mutex::new(Vec::new());
    let change = TreeChange::new().mode("a-w").unwrap();
    let done = change.make_watched(&ada, |_, new| {
        let paths = new.iter().map(|error| {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            error.path().unwrap_or_default().to_vec()
        });
        failed.lock().unwrap().extend(paths);
        ControlFlow::Continue(())
    });
    let (done, mut failed) = (done.unwrap(), failed.into_inner().unwrap());
    assert_eq!((done.changed(), done.failed(), failed.len()), (1, 3060, 3060));
    failed.sort();
    failed.dedup();
    assert_eq!(failed.len(), 3060);
    assert!(failed.contains(&b"dir-59/49".to_vec()) && !failed.contains(&b"dir-7/7".to_vec()));

    // Ended after its first step: the volume has it no more, and others begin.
    for _ in 0..10 {
        let change = TreeChange::new().owner(Some(1), Some(1));
        change.make_watched(&root, |_, _| ControlFlow::Break(())).unwrap();
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let watch = |_, _: &[shoal::Error]| -> ControlFlow<()> { panic!("a watcher that panics") };
        TreeChange::new().owner(Some(1), Some(1)).make_watched(&root, watch)
    }));
    // On an open volume, it is the caller's panic as well.
    assert!(panicked.is_err());
    assert_eq!(TreeChange::new().owner(Some(2), Some(2)).make(&root).unwrap().changed(), 3061);
}

#[test]
fn changes_of_trees_that_are_refused() {
    let (_volume, root) = volume();
    let dir = root.create_dir("dir").unwrap();
    let long = vec!["u+r"; 25].join(",");
    let refused = TreeChange::new().mode(&long).unwrap().make(&dir).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ArgumentListTooLong, "{refused}");
    let list = AclChange::of_access().set("u:1:r").unwrap();
    let both = TreeChange::new().owner(Some(1), None).list(list);
    assert_eq!(both.make(&dir).unwrap_err().kind(), ErrorKind::InvalidInput);
    root.remove_dir("dir").unwrap();
    let removed = TreeChange::new().owner(Some(1), None).make(&dir).unwrap();
    assert_eq!((removed.changed(), removed.failed()), (0, 0));
}
