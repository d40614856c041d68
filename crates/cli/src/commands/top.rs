//! `shoal top`: the operations, users and processes of a mount, live.
//!
//! On a terminal a screen, drawn by Ratatui; elsewhere one view after another.

mod interval;

mod choice;

mod screen;

mod live;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crate::accounts::Accounts;
use crate::args::TopArgs;
use crate::failure::{Failure, OK, Result};
use crate::mounted;
use crate::mounts;
use crate::output::Out;
use crate::session::{Access, Session};
use crate::tags;
use interval::{Interval, Reading};
use screen::Theme;

pub(crate) use interval::process;

/// Finds the server of a mount, or of a volume.
fn served(args: &TopArgs) -> Result<Session> {
    let place = tags::resolve(&args.directory)?;
    let place = mounts::of_volume(&place).unwrap_or(place);
    if place.is_dir() {
        return mounted::session(&place);
    }
    let session = Session::open(&place, Access::Read)?;
    match session.direct() {
        None => Ok(session),
        Some(_) => {
            let what = "is neither mounted nor served, so nothing happens in it";
            Err(Failure::usage(place.display(), what))
        }
    }
}

/// Shows a mount, or a volume that is served, until interrupted, or once.
pub(crate) fn run(args: &TopArgs) -> Result<u8> {
    let session = served(args)?;
    let accounts = Accounts::of_this_machine();
    let ask = || Reading::of(&session).map_err(|error| mounted::failed(&session, &error));
    let mut before = ask()?;
    let is_terminal = io::stdout().is_terminal() && !args.once && !args.json;
    if let (true, Some(theme)) = (is_terminal, Theme::of_this_terminal()) {
        return live::run(args, session, before, &accounts, theme);
    }
    let mut out = Out::new();
    loop {
        std::thread::sleep(Duration::from_secs(args.every));
        let now = ask()?;
        let interval = Interval::between(&before, &now, &accounts);
        if args.json {
            out.json(interval.json())?;
        } else {
            interval.lines().iter().try_for_each(|line| out.line(line))?;
        }
        out.flush()?;
        if args.once {
            return Ok(OK);
        }
        before = now;
    }
}
