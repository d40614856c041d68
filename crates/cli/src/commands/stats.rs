//! `shoal stats`: the counters and operations of a volume.

use std::collections::BTreeMap;
use std::time::Duration;

use shoal_session::{Group, Metric, Operation};

use crate::args::StatsArgs;
use crate::failure::{Failure, OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::mounts;
use crate::operations;
use crate::output::Out;
use crate::session::{Access, Session};
use crate::tags;

/// Shows the counters of a volume.
pub(crate) fn run(args: &StatsArgs) -> Result<u8> {
    let mut out = Out::new();
    let volume = tags::resolve(&args.volume)?;
    let volume = &mounts::of_volume(&volume).unwrap_or(volume);
    mounted::at(volume, Access::Read, |session| {
        if args.every.is_some() && session.direct().is_some() {
            let what = "is not mounted, so nothing changes (leave --every out)";
            return Err(Failure::usage(volume.display(), what));
        }
        let ask = || Reading::of(session).map_err(|error| mounted::failed(session, &error));
        let mut reading = ask()?;
        show(&mut out, &reading, args.json)?;
        while let Some(seconds) = args.every {
            std::thread::sleep(Duration::from_secs(seconds));
            let newer = ask()?;
            if !args.json {
                out.line("")?;
            }
            show(&mut out, &newer.since(&reading), args.json)?;
            reading = newer;
        }
        Ok(OK)
    })
}

/// Counters and operations at a moment.
struct Reading {
    stats: Vec<Metric>,
    operations: Vec<Operation>,
}

impl Reading {
    fn of(session: &Session) -> shoal::raw::Result<Reading> {
        let (calls, who) = (session.calls(), &session.who);
        let operations = match session.direct() {
            // There have been those of this command alone.
            Some(_) => Vec::new(),
            None => calls.all_operations(who)?,
        };
        Ok(Reading { stats: calls.all_metrics(who)?, operations })
    }

    fn since(&self, before: &Reading) -> Reading {
        Reading {
            stats: added(&before.stats, &self.stats),
            operations: operations::since(&before.operations, &self.operations),
        }
    }
}

/// Returns the increase of each counter; gauges as they are now.
fn added(before: &[Metric], now: &[Metric]) -> Vec<Metric> {
    let since = |stat: &Metric| match before.iter().find(|it| it.name == stat.name) {
        Some(it) if !stat.gauge => stat.value.saturating_sub(it.value),
        _ => stat.value,
    };
    now.iter().map(|stat| Metric { value: since(stat), ..stat.clone() }).collect()
}

fn show(out: &mut Out, reading: &Reading, is_json: bool) -> Result<()> {
    let Reading { stats, operations } = reading;
    if is_json {
        out.json(json(stats, operations))?;
        return out.flush();
    }
    let name_width = stats.iter().map(|stat| stat.name.len()).max().unwrap_or(0);
    let width = stats.iter().map(|stat| stat.value.to_string().len()).max().unwrap_or(0);
    for stat in stats {
        let Metric { name, value, what, .. } = stat;
        out.line(&format!("{name:name_width$}  {value:>width$}  {what}"))?;
    }
    for (group, title) in [
        (Group::Requests, "requests"),
        (Group::Calls, "calls of the library (most of them estimated: one in 64 is timed)"),
        (Group::Volume, "inside the volume"),
    ] {
        let some: Vec<Operation> =
            operations.iter().filter(|it| it.group == group).cloned().collect();
        if !some.is_empty() {
            out.line("")?;
            out.line(&format!("{title}:"))?;
            operations::table(&some, None).iter().try_for_each(|line| out.line(line))?;
        }
    }
    out.flush()
}

fn json(stats: &[Metric], operations: &[Operation]) -> Object {
    let of = |gauge| -> BTreeMap<&str, u64> {
        let some = stats.iter().filter(move |stat| stat.gauge == gauge);
        some.map(|stat| (&*stat.name, stat.value)).collect()
    };
    Object::new()
        .put("counters", of(false))
        .put("now", of(true))
        .put("operations", operations::json(operations, Group::Requests))
        .put("calls", operations::json(operations, Group::Calls))
        .put("volume", operations::json(operations, Group::Volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_and_gauges_are_not() {
        let stat = |name, value, gauge| Metric { name, value, what: "what".into(), gauge };
        let before = [stat("a".into(), 5, false), stat("b".into(), 7, true)];
        let now = [stat("a".into(), 8, false), stat("b".into(), 6, true)];
        let values: Vec<u64> = added(&before, &now).iter().map(|stat| stat.value).collect();
        assert_eq!(values, [3, 6]);
    }
}
