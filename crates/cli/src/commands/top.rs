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
use crate::failure::{OK, Result};
use crate::mounted;
use crate::output::Out;
use interval::{Interval, Reading};
use screen::Theme;

pub(crate) use interval::process;

/// Shows a mount until interrupted, or once.
pub(crate) fn run(args: &TopArgs) -> Result<u8> {
    let mount = mounted::open(&args.directory)?;
    let accounts = Accounts::of_this_machine();
    let ask = || Reading::of(&mount).map_err(|error| mounted::refused(&args.directory, error));
    let mut before = ask()?;
    let is_terminal = io::stdout().is_terminal() && !args.once && !args.json;
    if let (true, Some(theme)) = (is_terminal, Theme::of_this_terminal()) {
        return live::run(args, mount, before, &accounts, theme);
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
