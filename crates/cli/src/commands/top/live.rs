//! The screen of a terminal: readings by a thread, keys, and the terminal as it was at the end.
//!
//! The thread may wait for a server that does not answer; keys and signals are answered all the
//! same. The terminal is restored whichever way the command ends: a panic by Ratatui's hook, the
//! rest by [`Screen`].

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::choice::Choice;
use super::interval::{Interval, Reading};
use super::screen::{Shown, Theme};
use crate::accounts::Accounts;
use crate::args::TopArgs;
use crate::failure::{Failure, OK, Result};
use crate::interrupt;
use crate::mounted;
use crate::session::Session;
use crate::text::printable;

/// Time within which a signal and a reading are noticed; keys are at once.
const TICK: Duration = Duration::from_millis(100);

/// Shows the mount until a key or a signal ends it. Returns the exit status.
pub(super) fn run(
    args: &TopArgs,
    session: Session,
    mut before: Reading,
    accounts: &Accounts,
    theme: Theme,
) -> Result<u8> {
    let every = Duration::from_secs(args.every);
    let place = printable(args.directory.as_os_str().as_bytes());
    let (mut choice, mut interval) = (Choice::default(), None);
    let mut due = Instant::now() + every;
    interrupt::defer();
    let readings = readings(session, every);
    let mut screen = Screen::take()?;
    loop {
        let silent = Instant::now().saturating_duration_since(due);
        let shown =
            Shown { interval: interval.as_ref(), choice, theme, place: &place, every, silent };
        choice.first = screen.draw(&shown)?;
        for event in pressed()? {
            match event {
                Event::Key(key) if key.kind != KeyEventKind::Release && choice.press(key) => {
                    return Ok(OK);
                }
                // A new size is asked for with each drawing.
                _ => {}
            }
        }
        if let Some(status) = interrupt::pending() {
            return Ok(status);
        }
        if let Some(now) = next(&readings, args)? {
            due = Instant::now() + every;
            if !choice.is_paused {
                interval = Some(Interval::between(&before, &now, accounts));
            }
            before = now;
        }
    }
}

/// Returns the reading that has come, if one has.
fn next(
    readings: &Receiver<shoal::raw::Result<Reading>>,
    args: &TopArgs,
) -> Result<Option<Reading>> {
    match readings.try_recv() {
        Ok(Ok(reading)) => Ok(Some(reading)),
        Ok(Err(error)) => Err(mounted::refused(&args.directory, &error)),
        Err(TryRecvError::Empty) => Ok(None),
        Err(TryRecvError::Disconnected) => {
            Err(Failure::failed(args.directory.display(), "asking the server has ended"))
        }
    }
}

/// Asks the server at intervals, in a thread that ends after an error, or with the process.
fn readings(session: Session, every: Duration) -> Receiver<shoal::raw::Result<Reading>> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        loop {
            thread::sleep(every);
            let reading = Reading::of(&session);
            let is_last = reading.is_err();
            if sender.send(reading).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Returns the events of the terminal, after at most a [`TICK`] without one.
fn pressed() -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut wait = TICK;
    while event::poll(wait).map_err(of_terminal)? {
        events.push(event::read().map_err(of_terminal)?);
        wait = Duration::ZERO;
    }
    Ok(events)
}

/// The terminal while it shows the screen; restored when dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> Result<Screen> {
        // What of it succeeded before an error is undone.
        ratatui::try_init().map(Screen).map_err(|error| {
            let _ = ratatui::try_restore();
            of_terminal(error)
        })
    }

    fn draw(&mut self, shown: &Shown<'_>) -> Result<usize> {
        let mut first = 0;
        self.0.draw(|frame| first = shown.draw(frame)).map_err(Failure::output)?;
        Ok(first)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If that fails there is no terminal any more.
        let _ = ratatui::try_restore();
    }
}

fn of_terminal(error: io::Error) -> Failure {
    Failure::failed("the terminal", format!("{error} (without one: --once)"))
}
