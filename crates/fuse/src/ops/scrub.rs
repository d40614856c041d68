//! Scrub of a piece of the volume ([`crate::protocol::control`]).
//!
//! A scrub covers the whole volume, also where one subvolume alone is mounted: damage in another is
//! damage to the same device.

use super::{Context, Next};
use crate::protocol::control::{Answer, Entry, SCRUB_MAX};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Problem, ScrubAt, ScrubReport, Volume};

/// Longest text of a problem, in bytes; a longer one (four long paths, say) is truncated.
const TEXT_MAX: usize = 4000;

/// Makes a checkpoint. A scrub reads what the newest checkpoint points to; later writes, though
/// perhaps synced, would be left out.
fn begin(volume: &Volume) {
    let is_new = || volume.staged_lsn().0 > volume.info().checkpoint_lsn;
    if volume.read_only_reason().is_none()
        && is_new()
        && let Err(error) = volume.maintenance().checkpoint()
    {
        // The volume is read-only now. The last checkpoint can still be read.
        tracing::error!(%error, "no checkpoint for a scrub");
    }
}

/// Answers [`Kind::Scrub`](crate::protocol::control::Kind::Scrub).
pub(crate) fn scrub(cx: &Context<'_>, head: &ControlHead, answer: &mut Answer<'_>) -> Next {
    let [stage, hi, lo] = head.cursor;
    let at = ScrubAt { stage, key: (hi, lo) };
    let (damage, thread) = (&cx.session.observer.damage, cx.tid);
    if at == ScrubAt::default() {
        begin(cx.volume);
        damage.scrub_begins(thread);
    }
    let mut report = ScrubReport::default();
    let next =
        cx.volume.maintenance().scrub_step(at, head.numbers[0].min(SCRUB_MAX), &mut report)?;
    let fit = report.problems.iter().take_while(|problem| push(answer, problem)).count();
    let left_out = (report.problems.len() - fit) as u64;
    answer.head.numbers = [report.bytes, report.blocks, report.objects, left_out];
    // A client that is told of more asks for a smaller piece from the same place, as long as there
    // is one.
    let is_last = left_out == 0 || head.numbers[0] <= 1;
    if is_last {
        let problems = report.problems.iter();
        damage.scrub_found(thread, problems.map(|it| (it.rule, &*it.message)));
    }
    if next.is_none() && is_last {
        cx.session.about.scrubbed();
        damage.scrub_ends(thread);
    }
    Ok(next.map(|ScrubAt { stage, key: (hi, lo) }| [stage, hi, lo]))
}

fn push(answer: &mut Answer<'_>, problem: &Problem) -> bool {
    let cut = |text: &str| text.floor_char_boundary(TEXT_MAX);
    let (rule, text) = (problem.rule, &problem.message);
    let texts = [&rule.as_bytes()[..cut(rule)], &text.as_bytes()[..cut(text)]];
    answer.push(&Entry { texts, ..Entry::default() })
}
