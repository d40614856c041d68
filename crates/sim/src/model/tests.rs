//! The model against itself: rules that are easy to get wrong, and the digest.

use super::*;
use shoal::raw::{Caller, RenameFlags, SetAttr};

const TOP: Ino = Ino(1);
const PLAIN: RenameFlags = RenameFlags { noreplace: false, exchange: false, whiteout: false };

fn model() -> Model {
    Model::new(TOP, 0o777, 0, 0)
}

fn check(model: &mut Model) {
    model.settle();
    assert_eq!(model.digest(), model.state().digest());
    model.begin();
}

#[test]
fn rename_rules() {
    let (mut m, root) = (model(), Caller::root());
    let a = m.mkdir(&root, (TOP, b"a"), 0o755, None).unwrap();
    let b = m.mkdir(&root, (a, b"b"), 0o755, None).unwrap();
    let f = m.create(&root, (a, b"f"), 0o644, None).unwrap();
    m.link(&root, f, (TOP, b"g")).unwrap();
    check(&mut m);
    assert_eq!(m.rename(&root, (TOP, b"a"), (b, b"x"), PLAIN, None), Err(Code::Invalid));
    assert_eq!(m.rename(&root, (a, b"b"), (TOP, b"a"), PLAIN, None), Err(Code::NotEmpty));
    assert_eq!(m.rename(&root, (a, b"f"), (a, b"b"), PLAIN, None), Err(Code::IsDirectory));
    assert_eq!(m.rename(&root, (a, b"b"), (a, b"f"), PLAIN, None), Err(Code::NotDirectory));
    assert_eq!(m.rename(&root, (a, b"f"), (TOP, b"g"), PLAIN, None), Ok(None));
    assert_eq!(m.find(b"a/f"), Some(f), "two names of one file: nothing happens");
    let swap = RenameFlags { exchange: true, ..RenameFlags::default() };
    assert_eq!(m.rename(&root, (a, b"b"), (TOP, b"g"), swap, None), Ok(None));
    assert_eq!((m.find(b"g"), m.find(b"a/b")), (Some(b), Some(f)));
    assert_eq!(m.node(b).unwrap().parent, TOP);
    check(&mut m);
    m.rename(&root, (a, b"b"), (a, b"f"), PLAIN, None).unwrap();
    assert_eq!(m.node(f).unwrap().nlink, 2);
    check(&mut m);
}

#[test]
fn unlinked_files_live_while_held() {
    let (mut m, root) = (model(), Caller::root());
    let f = m.create(&root, (TOP, b"f"), 0o644, None).unwrap();
    let before = model().digest();
    m.hold(f).unwrap();
    m.unlink(&root, TOP, b"f").unwrap();
    check(&mut m);
    m.write(f, 10, b"hi", false).unwrap();
    assert_eq!(m.read(f, 0, 99).unwrap().len(), 12);
    assert_eq!(m.link(&root, f, (TOP, b"again")), Err(Code::NotFound));
    assert_eq!(m.digest(), before, "the held file is not part of the tree");
    m.release(f);
    assert!(m.node(f).is_none() && m.graves().len() == 1);
    let t = m.tmpfile(&root, TOP, 0o600, None).unwrap();
    m.link(&root, t, (TOP, b"t")).unwrap();
    check(&mut m);
    m.release(t);
    assert_eq!(m.find(b"t"), Some(t));
}

#[test]
fn permissions_by_class_and_sticky() {
    let (mut m, root) = (model(), Caller::root());
    let (one, two) = (Caller::user(1000, 1000), Caller::user(1001, 1001));
    let two = Caller { groups: std::sync::Arc::from([1000]), ..two };
    m.setattr(&root, TOP, &SetAttr { mode: Some(0o1777), ..SetAttr::default() }).unwrap();
    let f = m.create(&one, (TOP, b"f"), 0o640, None).unwrap();
    assert_eq!(m.permit(&two, f, 4), Ok(()));
    assert_eq!(m.permit(&two, f, 2), Err(Code::Access));
    assert_eq!(m.permit(&root, f, 1), Err(Code::Access));
    assert_eq!(m.unlink(&two, TOP, b"f"), Err(Code::NotPermitted));
    let chmod = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    assert_eq!(m.setattr(&two, f, &chmod(0o777)), Err(Code::NotPermitted));
    m.setattr(&one, f, &chmod(0o6755)).unwrap();
    m.write(f, 0, b"x", true).unwrap();
    assert_eq!(m.node(f).unwrap().perm, 0o755, "writing drops set-id bits");
    check(&mut m);
}

#[test]
fn resolve_follows_and_stops() {
    let (mut m, root) = (model(), Caller::root());
    let d = m.mkdir(&root, (TOP, b"d"), 0o700, None).unwrap();
    let f = m.create(&root, (d, b"f"), 0o644, None).unwrap();
    let l = m.symlink(&root, (TOP, b"l"), b"d/../d/./f", None).unwrap();
    m.symlink(&root, (TOP, b"loop"), b"/loop", None).unwrap();
    assert_eq!(m.resolve(&root, d, b"/l", true), Ok(f));
    assert_eq!(m.resolve(&root, d, b"../l", false), Ok(l));
    assert_eq!(m.resolve(&root, TOP, b"loop/x", true), Err(Code::Loop));
    assert_eq!(m.resolve(&root, TOP, b"l/", true), Err(Code::NotDirectory));
    assert_eq!(m.resolve(&root, TOP, b"d/", true), Ok(d));
    assert_eq!(m.resolve(&Caller::user(5, 5), TOP, b"l", true), Err(Code::Access));
}

#[test]
fn differences_are_told_by_path() {
    let (mut m, root) = (model(), Caller::root());
    let d = m.mkdir(&root, (TOP, b"d"), 0o700, None).unwrap();
    let before = m.state();
    m.create(&root, (d, b"f"), 0o644, None).unwrap();
    let lines = diff(&before, &m.state(), 10);
    assert!(lines.iter().any(|l| l == "entry too many: /d (inode 2)/f -> inode 3"), "{lines:?}");
    assert!(lines.iter().any(|l| l.contains("/d (inode 2): size 0x1 instead of 0x0")), "{lines:?}");
    assert_eq!(diff(&before, &before, 10).len(), 0);
}

#[test]
fn a_tree_goes_but_for_links_elsewhere_and_what_is_held() {
    let (mut m, root) = (model(), Caller::root());
    let a = m.mkdir(&root, (TOP, b"a"), 0o755, None).unwrap();
    let b = m.mkdir(&root, (a, b"b"), 0o755, None).unwrap();
    let f = m.create(&root, (b, b"f"), 0o644, None).unwrap();
    let g = m.create(&root, (b, b"g"), 0o644, None).unwrap();
    m.link(&root, f, (TOP, b"f")).unwrap();
    m.link(&root, f, (a, b"f")).unwrap();
    m.hold(b).unwrap();
    m.hold(g).unwrap();
    check(&mut m);
    let user = Caller::user(5, 5);
    assert_eq!(m.remove_tree(&user, TOP, b"a"), Err(Code::Access));
    assert_eq!((m.below(a).count(), m.below(TOP).count()), (4, 5));
    m.remove_tree(&root, TOP, b"a").unwrap();
    check(&mut m);
    assert!(m.node(a).is_none() && m.paths_of(f) == [b"/f"]);
    assert_eq!([f, g, b].map(|ino| m.node(ino).unwrap().nlink), [1, 0, 0]);
    assert!(m.entries(b).unwrap().is_empty());
    m.release(b);
    m.release(g);
    check(&mut m);
    assert_eq!(m.len(), 2);
}
