//! `shoal bucket`: a look at a bucket in which a volume is, or will be.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shoal::raw::Time;
use shoal::raw::bucket_check::{
    Checked, Contents, Keys, Latency, Operation, Outcome, Place, Versioning, VolumeThere, check,
};
use shoal::raw::text::counted;

use crate::args::{BucketArgs, BucketCheckArgs, BucketCommand};
use crate::clock;
use crate::failure::{Failure, OK, Result};
use crate::interrupt;
use crate::json::Object;
use crate::output::Out;
use crate::progress::Progress;
use crate::size::human;
use crate::text::printable;

/// Width of the column of names.
const NAME_WIDTH: usize = 16;
/// Seconds of difference between clocks from which on a line warns.
const CLOCK_WARNED: u64 = 180;
/// Seconds of difference that the resolution of the store's answer explains.
const CLOCK_EXACT: u64 = 2;

/// Runs a command about buckets.
pub(crate) fn run(args: &BucketArgs) -> Result<u8> {
    match &args.command {
        BucketCommand::Check(args) => run_check(args),
    }
}

fn run_check(args: &BucketCheckArgs) -> Result<u8> {
    let refused = |error| Failure::volume(args.url.display(), &error);
    let place = Place::parse(&args.url.to_string_lossy()).map_err(refused)?;
    interrupt::defer();
    let mut progress = Progress::share();
    let mut step = |done, all| progress.set("checking the store", done, all);
    let checked = check(&place, &|| interrupt::pending().is_some(), &mut step);
    progress.finish();
    let checked = checked.map_err(refused)?;
    if let Some(status) = interrupt::pending() {
        let line = match &*checked.left {
            [] => "interrupted: what was written is removed".to_owned(),
            left => format!("interrupted: {}", leftover(left)),
        };
        return Err(Failure::Line { line: format!("{}: {line}", checked.place), status });
    }
    let mut out = Out::new();
    match args.json {
        true => out.json(json(&checked))?,
        false => {
            for (name, value) in rows(&checked) {
                out.line(&format!("{name:NAME_WIDTH$}{}", printable(value.as_bytes())))?;
            }
        }
    }
    out.flush()?;
    if let Some(error) = &checked.error {
        return Err(refused(error.clone()));
    }
    match missing(&checked) {
        Some(why) => Err(Failure::failed(&checked.place, why)),
        None => Ok(OK),
    }
}

/// Returns the first thing that is missing to make a volume, or to write the one that is there.
fn missing(checked: &Checked) -> Option<String> {
    let failed = checked.tried.iter().find_map(|(operation, outcome)| match outcome {
        Outcome::Fails(why) => Some(format!("{} does not work: {why}", label(*operation))),
        Outcome::Works | Outcome::NotTried(_) => None,
    });
    failed.or_else(|| match &checked.contents {
        Contents::Others(..) | Contents::Inside(_) => {
            Some(format!("{}: choose an empty prefix", contents(checked)))
        }
        _ if checked.is_writable() => None,
        Contents::Unknown(why) => Some(why.clone()),
        Contents::Empty | Contents::Volume(_) => {
            checked.tried.iter().find_map(|(operation, outcome)| match outcome {
                Outcome::NotTried(why) => Some(format!("{}: not tried: {why}", label(*operation))),
                Outcome::Works | Outcome::Fails(_) => None,
            })
        }
    })
}

fn label(operation: Operation) -> &'static str {
    match operation {
        Operation::GetRange => "range get",
        Operation::Create => "If-None-Match",
        other => other.name(),
    }
}

/// Returns the facts that are known, in the order of the output.
fn rows(checked: &Checked) -> Vec<(&'static str, String)> {
    let mut rows = vec![("place", checked.place.clone())];
    rows.extend(checked.endpoint.as_ref().map(|address| ("endpoint", endpoint(checked, address))));
    rows.extend(region(checked).map(|text| ("region", text)));
    rows.extend(checked.keys.as_ref().map(|keys| ("identity", identity(keys))));
    rows.extend(checked.ahead.map(|ahead| ("clock", clock_text(ahead))));
    if checked.error.is_some() {
        return rows;
    }
    rows.extend(checked.tried.iter().map(|(operation, outcome)| {
        let text = match outcome {
            Outcome::Works => "yes".to_owned(),
            Outcome::Fails(why) => format!("no: {why}"),
            Outcome::NotTried(why) => format!("not tried: {why}"),
        };
        (label(*operation), text)
    }));
    rows.extend(checked.versioning.as_ref().map(|it| ("versioning", versioning(it))));
    let measured = |latency: Latency, meaning: &str| {
        let ms = |time: Duration| match time.as_secs_f64() * 1e3 {
            ms @ ..1.0 => format!("{ms:.2} ms"),
            ms => format!("{ms:.1} ms"),
        };
        let Latency { count, median, max } = latency;
        format!("{} (the slowest of {count}: {}): {meaning}", ms(median), ms(max))
    };
    let of_put = "an fsync takes about as long";
    let of_get = "reading what is not in memory takes about as long";
    rows.extend(checked.put.map(|latency| ("PUT", measured(latency, of_put))));
    rows.extend(checked.get.map(|latency| ("GET", measured(latency, of_get))));
    rows.push(("prefix", contents(checked)));
    if !checked.left.is_empty() {
        rows.push(("left", leftover(&checked.left)));
    }
    rows.push(("result", result(checked)));
    rows
}

fn endpoint(checked: &Checked, address: &str) -> String {
    match checked.is_virtual_hosted {
        Some(true) => format!("{address} (the bucket is in the name of the host)"),
        Some(false) => format!("{address} (the bucket is in the path)"),
        None => address.to_owned(),
    }
}

fn region(checked: &Checked) -> Option<String> {
    let region = checked.region.as_ref()?;
    Some(match &checked.region_of_bucket {
        Some(other) if other != region => {
            format!("{region}, but the bucket is in {other}: set AWS_REGION={other}")
        }
        _ => region.clone(),
    })
}

fn identity(keys: &Keys) -> String {
    let Keys { id, source, expires } = keys;
    let id = id.as_deref().map(|id| format!("{id}, ")).unwrap_or_default();
    let expires = expires.map(|at| format!(", valid until {}", clock::minutes(time(at))));
    format!("{id}from {source}{}", expires.unwrap_or_default())
}

fn time(at: SystemTime) -> Time {
    let sec = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    Time { sec, nsec: 0 }
}

fn clock_text(ahead: i64) -> String {
    let (by, side) = (ahead.unsigned_abs(), if ahead < 0 { "behind" } else { "ahead of" });
    match by {
        0..=CLOCK_EXACT => "agrees with the store's to a second or two".to_owned(),
        _ if by < CLOCK_WARNED => format!("{by} s {side} the store's"),
        _ => format!(
            "{} {side} the store's: set it (S3 refuses requests from 15 minutes on)",
            clock::span(by)
        ),
    }
}

fn versioning(versioning: &Versioning) -> String {
    match versioning {
        Versioning::Off => "off: what is deleted is gone, and costs nothing".into(),
        Versioning::Suspended => {
            "suspended: what is deleted is gone; versions from before stay, and are paid".into()
        }
        Versioning::On => "on: objects that Shoal deletes stay as versions, and are paid, until a \
                           lifecycle rule removes noncurrent versions"
            .into(),
        Versioning::Unknown(why) => format!("not known: {why}"),
    }
}

fn contents(checked: &Checked) -> String {
    let text = match &checked.contents {
        Contents::Empty => "empty".to_owned(),
        Contents::Volume(Ok(volume)) => volume_text(volume),
        Contents::Volume(Err(why)) => format!("holds a volume, of which no more is known: {why}"),
        Contents::Others(name, None) => format!("holds other objects, such as {name}"),
        Contents::Others(name, Some(inner)) => {
            format!("holds other objects, such as {name}, and a volume at {inner}")
        }
        Contents::Inside(at) => format!("is inside the volume at prefix '{at}'"),
        Contents::Unknown(why) => format!("not known: {why}"),
    };
    match &checked.above {
        Some(why) => format!("{text}; not known whether it is inside a volume: {why}"),
        None => text,
    }
}

fn volume_text(volume: &VolumeThere) -> String {
    let VolumeThere { number, capacity, is_closed, owner, is_alive } = volume;
    let owner = owner.as_deref().unwrap_or("an unknown process");
    let state = match (is_closed, is_alive) {
        (true, _) => "not in use".to_owned(),
        (false, Some(true)) => format!("in use by {owner}"),
        (false, Some(false)) => format!("not closed by its owner, which has ended: {owner}"),
        (false, None) => format!(
            "not closed by its owner on another machine (a mount finds out whether it is alive): \
             {owner}"
        ),
    };
    format!("holds a volume of up to {} ({number:016x}), {state}", human(*capacity))
}

fn leftover(left: &[String]) -> String {
    let objects = counted(left.len() as u64, "object");
    format!("{objects} that could not be deleted, such as {}: delete them by hand", left[0])
}

/// Returns what can be done here.
fn result(checked: &Checked) -> String {
    let place = &checked.place;
    let has_volume = matches!(checked.contents, Contents::Volume(_));
    match (checked.is_writable(), checked.is_readable(), has_volume) {
        (true, _, true) => "the volume can be read, and be mounted for writing".to_owned(),
        (true, _, false) => format!("a volume can be made here: shoal mkfs {place}"),
        (false, true, true) => "the volume can be read, and mounted as a replica (-o ro,follow); \
                                mounting it for writing does not work"
            .to_owned(),
        (false, true, false) => "a volume cannot be made here; reading works".to_owned(),
        (false, false, _) => "a volume here can be neither read nor written".to_owned(),
    }
}

fn json(checked: &Checked) -> Object {
    let latency = |latency: Latency| {
        let ns = |time: Duration| time.as_nanos() as u64;
        let Latency { count, median, max } = latency;
        Object::new().put("count", count).put("median", ns(median)).put("max", ns(max))
    };
    let mut object = Object::new()
        .put("place", &checked.place)
        .put_some("endpoint", checked.endpoint.as_ref())
        .put_some("region", checked.region.as_ref())
        .put_some("region_of_bucket", checked.region_of_bucket.as_ref())
        .put_some("virtual_hosted", checked.is_virtual_hosted);
    if let Some(keys) = &checked.keys {
        let identity = Object::new()
            .put_some("id", keys.id.as_ref())
            .put("source", &keys.source)
            .put_some("expires", keys.expires.map(|at| time(at).sec));
        object = object.put_object("identity", identity);
    }
    let tried = checked.tried.iter().map(|(operation, outcome)| {
        let object = Object::new().put("operation", operation.name());
        match outcome {
            Outcome::Works => object.put("works", true),
            Outcome::Fails(why) => object.put("works", false).put("reason", why),
            Outcome::NotTried(why) => object.put("reason", why),
        }
    });
    object = object.put_some("clock_ahead", checked.ahead).put_list("operations", tried);
    let versioning = checked.versioning.as_ref().map(|versioning| match versioning {
        Versioning::Off => ("off", None),
        Versioning::Suspended => ("suspended", None),
        Versioning::On => ("on", None),
        Versioning::Unknown(why) => ("unknown", Some(why)),
    });
    object = object
        .put_some("versioning", versioning.map(|(state, _)| state))
        .put_some("versioning_reason", versioning.and_then(|(_, why)| why));
    for (name, measured) in [("put_ns", checked.put), ("get_ns", checked.get)] {
        if let Some(measured) = measured {
            object = object.put_object(name, latency(measured));
        }
    }
    object
        .put_object("prefix", json_contents(checked))
        .put("left", &checked.left)
        .put("readable", checked.is_readable())
        .put("writable", checked.is_writable())
        .put_some("error", checked.error.as_ref().map(ToString::to_string))
}

fn json_contents(checked: &Checked) -> Object {
    let state = |state: &str| Object::new().put("state", state);
    let object = match &checked.contents {
        Contents::Empty => state("empty"),
        Contents::Volume(Ok(volume)) => state("volume")
            .put("volume", format!("{:016x}", volume.number))
            .put("size", volume.capacity)
            .put("closed", volume.is_closed)
            .put_some("owner", volume.owner.as_ref())
            .put_some("alive", volume.is_alive),
        Contents::Volume(Err(why)) => state("volume").put("reason", why),
        Contents::Others(name, inner) => {
            state("others").put("object", name).put_some("volume_at", inner.as_ref())
        }
        Contents::Inside(at) => state("inside").put("volume_at", at),
        Contents::Unknown(why) => state("unknown").put("reason", why),
    };
    object.put_some("above_unknown", checked.above.as_ref())
}
