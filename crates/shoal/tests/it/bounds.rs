//! Bounds of a session: what a user who is not the volume's owner can neither name nor do, whatever
//! the bytes of a question.

use shoal::raw::{
    self, BatchOp, Caller, Code, Handle, Ino, Local, MemDevice, Result, Rights, SetAttr, Time,
};
use shoal_session::fuzzing::{Asker, number_of, put};
use shoal_session::{Calls, Host, How, KeptSessions, Node, Remote};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A volume in memory whose sessions all users may have.
pub(crate) struct Open {
    local: Local,
    pub volume: Arc<raw::Volume>,
    /// None may.
    pub refused: AtomicBool,
}

impl Open {
    pub(crate) fn new() -> Open {
        let device = Arc::new(MemDevice::new(64 << 20));
        raw::mkfs_on(device.clone(), &raw::MkfsOptions::default()).unwrap();
        let volume = Arc::new(raw::Volume::open_on(device, &raw::OpenOptions::default()).unwrap());
        Open { local: Local::new(volume.clone()), volume, refused: AtomicBool::new(false) }
    }
}

impl Host for Open {
    fn calls(&self) -> &dyn Calls {
        &self.local
    }
    fn tell_states(&self, first: u64, tell: Box<dyn Fn(u64) + Send + Sync>) {
        self.volume.changes().tell_states(first, tell);
    }
    fn may_enter(&self, _: u32) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }
}

static ROOT: LazyLock<Caller> = LazyLock::new(Caller::root);
const READ: How = How {
    read: true,
    write: false,
    append: false,
    truncate: false,
    create: false,
    create_new: false,
    mode: 0,
};

/// The owner's session, an ordinary user's, and that user.
fn scene() -> (Remote<Asker>, Remote<Asker>, Caller, Arc<Open>) {
    let host = Arc::new(Open::new());
    let user = Caller::user(1000, 1000);
    let owner = Remote(Asker::new(host.clone(), Caller::root(), true));
    let other = Remote(Asker::new(host.clone(), user.clone(), false));
    let new = How { write: true, create_new: true, ..READ };
    owner.make_dir(&ROOT, Node::TOP, b"closed", 0o700).unwrap();
    owner.put(&ROOT, Node::TOP, b"closed/file", How { mode: 0o666, ..new }, b"hidden").unwrap();
    owner.put(&ROOT, Node::TOP, b"read", How { mode: 0o644, ..new }, b"contents").unwrap();
    (owner, other, user, host)
}

/// A client may say of any call that a dead server has made it: it gets nothing by that which it
/// could not have.
#[test]
fn a_client_that_lies_about_what_was_made_gains_nothing() {
    let (owner, _, user, host) = scene();
    owner.make_dir(&ROOT, Node::TOP, b"all", 0o777).unwrap();
    let everybody = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    owner.set_attr(&ROOT, Node::TOP, b"all", true, everybody).unwrap();
    let ring = Arc::new(raw::RingMemory::without_name().unwrap());
    let kept = KeptSessions::make(ring).unwrap();
    let liar = Asker::new(host.clone(), user.clone(), false).kept(&kept);
    let ask = |name: &str, question: Vec<u8>| {
        let again = liar.ask_again(number_of(name).unwrap(), &question, true);
        // No node is given out with an error, and none stays for the next question.
        (again.as_ref().err().map(|error| error.code()), again.unwrap_or_default())
    };
    let code = |name, question| ask(name, question).0;
    let place = |path: &'static [u8]| put(&(Node::TOP, path));
    let with = |path, more: Vec<u8>| [place(path), more].concat();
    let write = How { write: true, ..READ };
    for how in [READ, write, How { create_new: true, ..write }] {
        assert_eq!(code("open_file", with(b"closed/file", put(&how))), Some(Code::Access));
        // Nothing is done for it: the answer tells the liar what it has said itself.
        let whole = with(b"closed/file", put(&(how, &b"x"[..])));
        assert_eq!(code("put", whole), None);
    }
    assert_eq!(code("open_file", with(b"read", put(&write))), Some(Code::Access));
    assert_eq!(code("open_file", with(b"read", put(&READ))), None);
    assert_eq!(code("symlink", with(b"closed/file", put(&&b"x"[..]))), Some(Code::Access));
    assert_eq!(code("make_dir", with(b"closed", put(&0o700u32))), None, "not what is in it");
    let handle = Handle { ino: Ino(2), generation: raw::Generation(1) };
    let of_handle = [put(&(Node::TOP, handle)), put(&Some(READ))].concat();
    assert_eq!(code("open_handle", of_handle), Some(Code::NotPermitted));
    assert_eq!(code("make_subvolume", put(&&b"sub"[..])), Some(Code::NotPermitted));
    // The second step of a write of a whole file, as if the first had been made.
    for how in [READ, write] {
        let question = [place(b"read"), put(&(how, &b"overwritten"[..]))].concat();
        let step = liar.ask_step(&question);
        assert!(matches!(step.unwrap_err().code(), Code::Access | Code::BadHandle));
    }
    // One that is open for reading is not written.
    let opened = Remote(&liar).open_file(&user, Node::TOP, b"read", READ).unwrap();
    let bytes = put(&((opened.node, 0u64), &b"overwritten"[..]));
    assert_eq!(code("write", bytes), Some(Code::BadHandle));
    // What is its own is opened whatever the permissions: the call had made it so.
    let own = How { write: true, create_new: true, mode: 0, ..READ };
    Remote(&liar).open_file(&user, Node::TOP, b"all/own", own).unwrap();
    let (error, answer) = ask("open_file", with(b"all/own", put(&own)));
    assert!(error.is_none() && !answer.is_empty());
    let mut found = Vec::new();
    owner.get(&ROOT, Node::TOP, b"read", &mut found).unwrap();
    assert_eq!(found, b"contents");
}

/// A whole file was written for whoever could read it, if the question said that it was opened for
/// reading alone.
#[test]
fn a_file_that_is_opened_for_reading_is_not_written() {
    let (owner, other, user, _host) = scene();
    let refused = other.put(&user, Node::TOP, b"read", READ, b"overwritten").unwrap_err();
    assert_eq!(refused.code(), Code::BadHandle);
    let mut found = Vec::new();
    owner.get(&ROOT, Node::TOP, b"read", &mut found).unwrap();
    assert_eq!(found, b"contents");
}

#[track_caller]
fn refused<T>(result: Result<T>, code: Code) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.errno(), code.errno(), "{error}, not {code:?}");
}

/// The word of the kernel that a file is open for writing was taken from any client: it could cut
/// every file that it could find.
#[test]
fn a_client_cannot_claim_that_a_file_is_open_for_writing() {
    let (owner, other, user, _) = scene();
    let set = SetAttr { size: Some(0), by_handle: true, ..SetAttr::default() };
    refused(other.set_attr(&user, Node::TOP, b"read", true, set), Code::Access);
    let open = other.open_file(&user, Node::TOP, b"read", READ).unwrap().node;
    refused(other.set_attr(&user, open, b"", true, set), Code::Access);
    refused(other.set_size(&user, open, 0), Code::BadHandle);
    refused(other.write(&user, open, 0, b"x"), Code::BadHandle);
    let change = [BatchOp::SetAttr { path: b"read", set }];
    assert!(other.batch(&user, Node::TOP, &change).is_err());
    assert_eq!(owner.find(&ROOT, Node::TOP, b"read", true).unwrap().size, 8);
}

/// Only the kernel of a mount sets the time of a change, and who could do anything anyway.
#[test]
fn a_client_cannot_set_the_time_of_a_change() {
    let (owner, other, user, _) = scene();
    let set = SetAttr { uid: Some(1000), gid: Some(1000), ..SetAttr::default() };
    owner.set_attr(&ROOT, Node::TOP, b"read", true, set).unwrap();
    let past = Time { sec: 7, nsec: 0 };
    let set = SetAttr { mode: Some(0o600), ctime: Some(past), ..SetAttr::default() };
    let changed = other.set_attr(&user, Node::TOP, b"read", true, set).unwrap();
    assert!(changed.ctime > past);
}

#[test]
fn what_a_user_may_not_reach_has_no_other_name() {
    let (owner, other, user, _) = scene();
    let hidden = owner.find(&ROOT, Node::TOP, b"closed/file", true).unwrap();
    let handle = Handle { ino: hidden.ino, generation: hidden.generation };
    refused(other.find(&user, Node::TOP, b"closed/file", true), Code::Access);
    refused(other.open_handle(&user, Node::TOP, handle, Some(READ)), Code::NotPermitted);
    refused(other.share(&user, Node::TOP, b"closed/file", Rights::READ, DAY), Code::Access);
    // A node is a number of the session, never an inode's.
    for node in [hidden.ino.0, 0, 2, u64::MAX] {
        refused(other.attr(&user, Node(node)), Code::BadHandle);
        refused(other.read(&user, Node(node), 0, &mut [0; 8]), Code::BadHandle);
        refused(other.find(&user, Node(node), b"file", true), Code::BadHandle);
    }
    for out in [&b"../read"[..], b"/read", b"closed/../../read"] {
        let found = other.find(&user, Node::TOP, out, true);
        assert!(found.is_err(), "{}", out.escape_ascii());
    }
    // Nor is another session's.
    let open = owner.open_file(&ROOT, Node::TOP, b"closed/file", READ).unwrap().node;
    refused(other.read(&user, open, 0, &mut [0; 8]), Code::BadHandle);
    // A token is a grant of who could open the file, and no more than that.
    let token = owner.share(&ROOT, Node::TOP, b"closed/file", Rights::READ, DAY).unwrap();
    let granted = other.open_token(&user, token).unwrap().node;
    let mut text = [0; 6];
    assert_eq!(other.read(&user, granted, 0, &mut text).unwrap(), 6);
    refused(other.write(&user, granted, 0, b"x"), Code::BadHandle);
    refused(other.set_size(&user, granted, 0), Code::BadHandle);
}

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn rows_of_the_owner_are_refused_to_others() {
    let (_, other, user, _) = scene();
    let limits = raw::QuotaLimits::default();
    refused(other.links(&user, Node::TOP, Some(Ino::ROOT), 0), Code::NotPermitted);
    refused(other.inodes(&user, Ino(0), 10), Code::NotPermitted);
    refused(other.revoke_tokens(&user), Code::NotPermitted);
    refused(other.make_subvolume(&user, b"sub", 0o755), Code::NotPermitted);
    refused(other.open_subvolume(&user, b"sub"), Code::NotPermitted);
    refused(other.delete_subvolume(&user, b"sub"), Code::NotPermitted);
    refused(other.set_quota(&user, Node::TOP, limits), Code::NotPermitted);
    refused(other.remove_quota(&user, Node::TOP), Code::NotPermitted);
    refused(other.quotas(&user, Ino(0)), Code::NotPermitted);
    refused(other.keep_removed(&user, true), Code::NotPermitted);
}

/// An answer has an error for each name: 64 million names in a question of 256 MiB took the memory
/// of the machine.
#[test]
fn a_question_has_no_more_values_than_fit_into_memory() {
    let (owner, ..) = scene();
    let ask = |name: &str, head: Vec<u8>, one: &[u8], count: usize| {
        owner.0.ask(number_of(name).unwrap(), &[head, one.repeat(count)].concat())
    };
    let dir = put(&Node::TOP);
    let stats = [dir.clone(), put(&raw::Fields::INO), vec![1]].concat();
    refused(ask("stat_many", stats.clone(), &[0; 4], 2049), Code::TooBig);
    assert!(ask("stat_many", stats, &[0; 4], 2048).is_ok());
    refused(ask("batch", dir, &[5, 0, 0, 0, 0], (1 << 18) + 1), Code::TooBig);
}

/// A node was closed while a call of another lane used it: its inode was freed, and the number was
/// that of another user's new file.
#[test]
fn a_call_keeps_the_node_that_it_uses() {
    let (owner, other, user, host) = scene();
    let new = How { write: true, create_new: true, mode: 0o600, ..READ };
    owner
        .set_attr(&ROOT, Node::TOP, b"", true, SetAttr { mode: Some(0o777), ..SetAttr::default() })
        .unwrap();
    let other = Arc::new(other);
    std::thread::scope(|scope| {
        for round in 0..200u32 {
            let name = format!("mine-{round}").into_bytes();
            let node = other.open_file(&user, Node::TOP, &name, new).unwrap().node;
            other.unlink(&user, Node::TOP, &name).unwrap();
            let writer = scope.spawn({
                let (other, user) = (other.clone(), user.clone());
                move || {
                    let wrote = other.write(&user, node, 0, &[7; 4096]);
                    assert!(wrote.is_ok() || wrote.is_err_and(|e| e.is(Code::BadHandle)));
                }
            });
            other.close(&user, node).unwrap();
            let theirs = format!("theirs-{round}").into_bytes();
            owner.put(&ROOT, Node::TOP, &theirs, new, b"").unwrap();
            writer.join().unwrap();
            assert_eq!(owner.find(&ROOT, Node::TOP, &theirs, true).unwrap().size, 0);
        }
    });
    assert_eq!(other.0.open_nodes(), 0);
    assert!(host.volume.references().orphan_list().is_empty());
    assert_eq!(host.volume.check(&mut |_, _| ()).unwrap().problems.len(), 0);
}
