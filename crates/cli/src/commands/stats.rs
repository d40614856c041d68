//! `shoal stats`: what a volume counts.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::Serialize;
use shoal_fuse::{Stat, stats_of};

use crate::args::StatsArgs;
use crate::failure::{Failure, OK, Result};
use crate::mounted;
use crate::output::Out;
use crate::session::{Access, Session};

/// Shows the counters of a volume.
pub fn run(args: &StatsArgs) -> Result<u8> {
    let mut out = Out::new();
    if !args.volume.is_dir() {
        if args.every.is_some() {
            let what = "is not mounted, so nothing changes (leave --every out)";
            return Err(Failure::usage(args.volume.display(), what));
        }
        let session = Session::open(&args.volume, Access::Read)?;
        let stats = Stat::all(&session.volume.info());
        session.close()?;
        show(&mut out, &stats, args.json)?;
        return Ok(OK);
    }
    let mount = mounted::open(&args.volume)?;
    let mut stats = ask(&mount, args)?;
    show(&mut out, &stats, args.json)?;
    while let Some(seconds) = args.every {
        std::thread::sleep(Duration::from_secs(seconds));
        let newer = ask(&mount, args)?;
        if !args.json {
            out.line("")?;
        }
        show(&mut out, &added(&stats, &newer), args.json)?;
        stats = newer;
    }
    Ok(OK)
}

fn ask(mount: &OwnedFd, args: &StatsArgs) -> Result<Vec<Stat>> {
    stats_of(mount).map_err(|error| mounted::refused(&args.volume, error))
}

/// What has been added to each counter; gauges as they are now.
fn added(before: &[Stat], now: &[Stat]) -> Vec<Stat> {
    let since = |stat: &Stat| match before.iter().find(|it| it.name == stat.name) {
        Some(it) if !stat.gauge => stat.value.saturating_sub(it.value),
        _ => stat.value,
    };
    now.iter().map(|stat| Stat { value: since(stat), ..stat.clone() }).collect()
}

fn show(out: &mut Out, stats: &[Stat], json: bool) -> Result<()> {
    if json {
        out.json(&JsonStats::new(stats))?;
        return out.flush();
    }
    let name_width = stats.iter().map(|stat| stat.name.len()).max().unwrap_or(0);
    let width = stats.iter().map(|stat| stat.value.to_string().len()).max().unwrap_or(0);
    for stat in stats {
        let Stat { name, value, what, .. } = stat;
        out.line(&format!("{name:name_width$}  {value:>width$}  {what}"))?;
    }
    out.flush()
}

/// The counters in JSON.
#[derive(Serialize)]
struct JsonStats<'a> {
    counters: BTreeMap<&'a str, u64>,
    now: BTreeMap<&'a str, u64>,
}

impl<'a> JsonStats<'a> {
    fn new(stats: &'a [Stat]) -> JsonStats<'a> {
        let of = |gauge| {
            let some = stats.iter().filter(move |stat| stat.gauge == gauge);
            some.map(|stat| (&*stat.name, stat.value)).collect()
        };
        JsonStats { counters: of(false), now: of(true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_and_gauges_are_not() {
        let stat = |name, value, gauge| Stat { name, value, what: "what".into(), gauge };
        let before = [stat("a".into(), 5, false), stat("b".into(), 7, true)];
        let now = [stat("a".into(), 8, false), stat("b".into(), 6, true)];
        let values: Vec<u64> = added(&before, &now).iter().map(|stat| stat.value).collect();
        assert_eq!(values, [3, 6]);
    }
}
