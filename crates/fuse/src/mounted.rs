//! The server of a mount, as calls ask and control it ([`Control`]).
//!
//! A remount has two halves. The kernel refuses changes by a flag of its own, which the program
//! sets that asks ([`crate::remount`]): to read-only before it asks here, to writable after it. So
//! no request of the kernel meets a server that refuses what the kernel has let through.

use crate::observe::label;
use crate::session::Session;
use shoal::raw::{Caller, Code, Result};
use shoal_session::{
    Control, Fact, Group, Load, Metric, Operation, ScrubEvent, Trace, TracedRequest,
};
use std::sync::Arc;

/// The server of a mount.
pub(crate) struct Mounted(pub Arc<Session>);

impl Control for Mounted {
    fn facts(&self) -> Vec<Fact> {
        let (session, about) = (&self.0, &self.0.about);
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let mut rows = vec![
            ("server", std::process::id().to_string()),
            ("keeper", session.keeper().map(|pid| pid.to_string()).unwrap_or_default()),
            ("read_only", yes(about.is_read_only())),
            ("noatime", yes(about.is_noatime())),
        ];
        let scrubbed = about.last_scrub().map(|end| end.elapsed().as_secs());
        rows.extend(scrubbed.map(|age| ("scrub_age", age.to_string())));
        if let Some(facts) = about.facts() {
            rows.push(("source", facts.source.clone()));
            rows.push(("options", facts.options.clone()));
            rows.push(("opened_read_only", yes(facts.read_only)));
            rows.push(("uptime", facts.since.elapsed().as_secs().to_string()));
        }
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        let (time, found) = self.0.looking.get().map(|it| it.counts()).unwrap_or_default();
        let us = time.as_micros().try_into().unwrap_or(u64::MAX);
        let metric = |name: &'static str, value, what: &'static str| {
            let (name, what) = (name.into(), what.into());
            Metric { name, value, what, gauge: false }
        };
        vec![
            metric("busy_poll_us", us, "time for which threads have looked for requests"),
            metric("busy_poll_found", found, "requests that they have found so, without a wake-up"),
        ]
    }

    fn requests(&self) -> Vec<Operation> {
        let all = self.0.observer.operations().into_iter();
        let operation =
            |(op, timing)| Operation { name: label(op), group: Group::Requests, timing };
        all.map(operation).collect()
    }

    fn loads(&self) -> Vec<Load> {
        let top = &self.0.observer.top;
        top.watch();
        top.users().into_iter().chain(top.processes()).collect()
    }

    fn trace(&self, from: u64, at_most: usize) -> Trace {
        let (mut requests, mut len) = (Vec::new(), 0);
        let read = self.0.observer.trace.read(from, &mut |kept| {
            let request = TracedRequest {
                number: kept.number,
                begun_ns: kept.begun_ns,
                took_ns: kept.took_ns,
                op: kept.op as u32,
                facts: kept.facts.words().to_vec(),
                names: kept.names.to_vec(),
            };
            len += size_of::<TracedRequest>() + size_of_val(&request.facts[..]) + kept.names.len();
            let fits = len <= at_most || requests.is_empty();
            if fits {
                requests.push(request);
            }
            fits
        });
        Trace { next: read.next, was_interrupted: read.was_interrupted, requests }
    }

    /// Changes the state of the mount, as far as it is not the kernel's. A mount that becomes
    /// read-only has everything on disk when this returns, with a checkpoint, so that nothing has
    /// to be replayed.
    fn remount(&self, who: &Caller, read_only: bool, noatime: bool) -> Result<()> {
        if who.uid != 0 {
            return Err(Code::NotPermitted.into());
        }
        let (about, volume) = (&self.0.about, self.0.views.keep());
        let before = about.is_read_only();
        if !read_only {
            let opened = about.facts().is_some_and(|facts| facts.read_only);
            if opened || volume.read_only_reason().is_some() {
                return Err(Code::ReadOnly.into());
            }
            about.set(false, noatime);
        } else if !about.set(true, noatime) {
            return Err(Code::Busy.into());
        }
        volume.files().set_noatime(read_only || noatime);
        // A volume that was opened read-only has nothing to write.
        if read_only && !before {
            volume.sync()?;
            volume.maintenance().checkpoint()?;
        }
        tracing::info!(read_only, noatime, "remounted");
        Ok(())
    }

    fn scrub(&self, run: u32, event: ScrubEvent<'_>) {
        let damage = &self.0.observer.damage;
        match event {
            ScrubEvent::Begins => damage.scrub_begins(run),
            ScrubEvent::Found(problems) => damage.scrub_found(run, problems),
            ScrubEvent::Ends => {
                self.0.about.scrubbed();
                damage.scrub_ends(run);
            }
        }
    }
}
