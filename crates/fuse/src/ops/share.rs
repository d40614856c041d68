//! Tokens made and revoked through a mount ([`crate::protocol::control`]).

use super::{Context, Next};
use crate::protocol::Errno;
use crate::protocol::control::{Answer, BY_NAME, Entry};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Handle, Ino, Rights};
use std::time::Duration;

/// Answers [`Kind::Share`](crate::protocol::control::Kind::Share). The volume checks that the
/// caller has the rights.
pub(crate) fn share(
    cx: &Context<'_>,
    ino: Ino,
    head: &ControlHead,
    answer: &mut Answer<'_>,
) -> Next {
    let rights = u8::try_from(head.flags).ok().filter(|bits| *bits != 0).ok_or(Errno::EINVAL)?;
    let rights = Rights::from_bits(rights)?;
    let generation = cx.volume.attributes().getattr(ino)?.generation;
    let lifetime = Duration::from_secs(head.numbers[0]);
    let token = cx.volume.tokens().issue(cx.who, Handle { ino, generation }, rights, lifetime)?;
    let text = token.to_string();
    answer.head.flags = if cx.session.rules.tokens { BY_NAME } else { 0 };
    // An empty page has room for it.
    answer.push(&Entry { texts: [text.as_bytes(), b""], ..Entry::default() });
    Ok(None)
}

/// Answers [`Kind::Revoke`](crate::protocol::control::Kind::Revoke): all tokens of the volume.
pub(crate) fn revoke(cx: &Context<'_>) -> Next {
    if cx.session.top != Ino::ROOT {
        return Err(Errno::EPERM);
    }
    cx.volume.tokens().revoke(&shoal::raw::Caller::root())?;
    Ok(None)
}
