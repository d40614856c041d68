//! Requests of the kernel, and calls of programs through the ioctl: refused with an errno, or taken
//! apart within their bytes.

use shoal::raw::{Caller, Ino, Rights, ScrubAt};
use shoal_fuse::protocol::traced::{Facts, NAMES_MAX, names};
use shoal_fuse::protocol::{Opcode, Reply, Request};
use shoal_session::hello::VERSION;
use shoal_session::page::{ByPage, PAGE, Question, ROWS, put_answer};
use shoal_session::{Calls, Node, Remote};
use std::time::Duration;

/// One request as it is read from the device.
pub fn request(data: &[u8]) {
    for reply_room in [0, 64] {
        let mut buffer = data.to_vec();
        buffer.resize(data.len() + reply_room, 0xAA);
        take_apart(&mut buffer, data.len());
        // As long as it says it is.
        if let Some(len) = buffer.first_chunk_mut::<4>() {
            *len = (data.len() as u32).to_le_bytes();
            take_apart(&mut buffer, data.len());
        }
        // More than the buffer holds.
        let beyond = buffer.len() + 1;
        assert!(Request::split(&mut buffer, beyond).is_err());
    }
}

fn take_apart(buffer: &mut [u8], filled: usize) {
    let whole = buffer.len();
    let Ok((mut request, start)) = Request::split(buffer, filled) else { return };
    assert!((40..=whole).contains(&start));
    let _ = (request.may_block(), request.node(), request.ext_group());
    let _ = (request.arg::<[u8; 8]>(), request.arg::<[u8; 88]>());
    assert!(request.payload().len() <= filled - start);
    for name in [request.name(), request.names().map(|n| n.0), request.names().map(|n| n.1)] {
        let Ok(name) = name else { continue };
        assert!((1..=255).contains(&name.len()) && !name.contains(&0));
    }
    if let Ok((name, target)) = request.name_and_target() {
        assert!(!name.is_empty() && !target.contains(&0));
    }
    if let Some(op) = request.opcode
        && let Some(mut facts) = Facts::of(op, &request)
    {
        assert!(names(op, request.payload()).len() <= request.payload().len());
        let reply = request.payload().to_vec();
        facts.answered(op, &Reply::Body(reply.len()), &reply, |id| id);
    }
    assert_eq!(request.body().len(), whole - start);
    request.body().fill(0);
}

/// One page of a call by the ioctl, as a question and as an answer; then the same of our version.
pub fn control(data: &[u8]) {
    control_page(data);
    let mut page = data.to_vec();
    if let Some(version) = page.first_chunk_mut::<4>() {
        *version = VERSION.to_le_bytes();
        control_page(&page);
    }
}

fn control_page(page: &[u8]) {
    if let Ok(Some(question)) = Question::parse(page) {
        assert!(ROWS.contains(&question.number));
        let name = question.removed();
        assert!(name.is_none_or(|name| name.len() <= page.len()));
        let _ = (question.may_change(), question.is_of_file());
    }
    // As a client reads it: a value or an error.
    let answer = page.to_vec();
    let carry = move |page: &mut [u8; PAGE]| {
        page.fill(0);
        page.iter_mut().zip(&answer).for_each(|(to, from)| *to = *from);
        Ok(())
    };
    let (calls, who) = (Remote(ByPage(carry)), Caller::root());
    let _ = calls.links(&who, Node::TOP, None, 0);
    let _ = (calls.subvolumes(&who, 0), calls.quotas(&who, Ino(0)), calls.quota(&who, Node::TOP));
    let _ = (calls.metrics(&who, 0), calls.operations(&who, 0), calls.facts(&who, 0));
    let _ = (calls.loads(&who, 0), calls.orphans(&who, Ino(0)), calls.trim(&who, true));
    let _ = (calls.scrub(&who, 1, ScrubAt::default(), 1), calls.read_only_reason(&who));
    let _ = calls.share(&who, Node::TOP, b"", Rights::READ, Duration::ZERO);
    for request in calls.trace(&who, 0).map(|trace| trace.requests).unwrap_or_default() {
        let facts = Facts::from_words(request.facts.into_iter());
        assert_eq!(Facts::from_words(facts.words().into_iter()), facts);
        assert!(Opcode::ALL.iter().all(|op| names(*op, &request.names).len() <= NAMES_MAX));
    }
    // What comes back fits, whatever it is.
    let mut room = vec![0xAA; page.len().min(2 * PAGE)];
    let len = put_answer(&mut room, Ok(page.to_vec()));
    assert!(len.is_ok_and(|len| len <= PAGE) || room.len() < 64);
}
