//! Histograms of operations, the load of users and processes, and the requests themselves
//! ([`crate::protocol::control`]).

use super::Context;
use crate::observe::label;
use crate::observe::top::Load;
use crate::protocol::Opcode;
use crate::protocol::control::{
    Answer, Cursor, Entry, IN_VOLUME, INTERRUPTED, IS_CALL, IS_PROCESS,
};
use crate::protocol::histogram::{LOAD_WORDS, counts_of, words_of};
use shoal::raw::{Call, Timed, Timing};
use std::borrow::Cow;

/// Lists the operations that there have been, then the durations inside the volume, then the calls
/// of the library; the cursor is the number of a row.
pub(crate) fn operations(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let first = usize::try_from(cursor).unwrap_or(usize::MAX);
    for row in first..Opcode::ALL.len() + Timed::ALL.len() + Call::ALL.len() {
        let (flags, name, timing) = row_of(cx, row);
        if !timing.is_empty() && !push(answer, flags, &name, &timing) {
            return Some([row as u64, 0, 0]);
        }
    }
    None
}

fn row_of(cx: &Context<'_>, row: usize) -> (u32, Cow<'static, str>, Timing) {
    if let Some(op) = Opcode::ALL.get(row) {
        return (0, label(*op).into(), cx.session.observer.operation(*op));
    }
    let row = row - Opcode::ALL.len();
    if let Some(kind) = Timed::ALL.get(row) {
        return (IN_VOLUME, kind.name().into(), cx.volume.maintenance().timing(*kind));
    }
    let call = Call::ALL[row - Timed::ALL.len()];
    (IS_CALL, call.name().into(), cx.volume.maintenance().call(call))
}

fn push(answer: &mut Answer<'_>, flags: u32, name: &str, timing: &Timing) -> bool {
    let numbers = [timing.total_ns, timing.errors, timing.bytes];
    answer.push(&Entry { numbers, flags, texts: [name.as_bytes(), &counts_of(timing)] })
}

/// Lists users, then processes, by their load, and watches them for some time; the cursor is the
/// number of a row.
pub(crate) fn top(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let top = &cx.session.observer.top;
    top.watch();
    let users = top.users().into_iter().map(|load| (0, load));
    let all = users.chain(top.processes().into_iter().map(|load| (IS_PROCESS, load)));
    let from = usize::try_from(cursor).unwrap_or(usize::MAX);
    for (row, (flags, load)) in all.enumerate().skip(from) {
        let Load { key, uid, requests, uncertain, took_ns, read, written } = load;
        let words: [u64; LOAD_WORDS] = [uid.into(), uncertain, read, written];
        let numbers = [key.into(), requests, took_ns];
        if !answer.push(&Entry { numbers, flags, texts: [&words_of(&words), b""] }) {
            return Some([row as u64, 0, 0]);
        }
    }
    None
}

/// Lists the requests from a number on that have been answered, as many as fit. The list has no
/// end, so each page is one of its own.
pub(crate) fn trace(cx: &Context<'_>, from: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let read = cx.session.observer.trace.read(from, &mut |kept| {
        answer.push(&Entry {
            numbers: [kept.number, kept.begun_ns, kept.took_ns],
            flags: kept.op as u32,
            texts: [&words_of(&kept.facts.words()), &kept.names],
        })
    });
    answer.head.numbers[0] = read.next;
    answer.head.flags = if read.was_interrupted { INTERRUPTED } else { 0 };
    None
}
