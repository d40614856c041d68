//! Tables and JSON of operations and their durations, for `shoal stats` and `shoal top`.

use std::collections::BTreeMap;

use shoal_fuse::Durations;
use shoal_session::{Group, Operation};

use crate::size;

/// Shares of which durations are shown, with their names.
pub(crate) const SHARES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// Returns the operations of a group by name.
pub(crate) fn json(operations: &[Operation], group: Group) -> BTreeMap<&str, Durations> {
    let some = operations.iter().filter(|operation| operation.group == group);
    some.map(|operation| (&*operation.name, Durations::of(&operation.timing))).collect()
}

/// Returns the durations since `before`, without operations that there have not been.
pub(crate) fn since(before: &[Operation], now: &[Operation]) -> Vec<Operation> {
    let new = now.iter().map(|operation| {
        let earlier =
            before.iter().find(|it| it.name == operation.name && it.group == operation.group);
        let timing = match earlier {
            Some(earlier) => operation.timing.since(&earlier.timing),
            None => operation.timing.clone(),
        };
        Operation { timing, ..operation.clone() }
    });
    new.filter(|operation| !operation.timing.is_empty()).collect()
}

/// Returns the lines of a table. `per`: seconds; counts become rates.
pub(crate) fn table(operations: &[Operation], per: Option<f64>) -> Vec<String> {
    aligned(&rows(operations, per))
}

/// Returns the rows of a table, the names of its columns first. `per`: as in [`table`].
pub(crate) fn rows(operations: &[Operation], per: Option<f64>) -> Vec<[String; 7]> {
    let (count, bytes) = if per.is_some() { ("per s", "bytes/s") } else { ("count", "bytes") };
    let mut rows =
        vec![["operation", count, "errors", "p50", "p99", "p99.9", bytes].map(String::from)];
    for operation in operations {
        let timing = &operation.timing;
        let [p50, p99, p999] = SHARES.map(|(share, _)| duration(timing.quantile_ns(share)));
        let rate = |n: u64| per.map_or(n, |seconds| (n as f64 / seconds).round() as u64);
        let bytes = if timing.bytes > 0 { size::human(rate(timing.bytes)) } else { String::new() };
        rows.push([
            operation.name.clone(),
            rate(timing.count()).to_string(),
            timing.errors.to_string(),
            p50,
            p99,
            p999,
            bytes,
        ]);
    }
    rows
}

/// Pads the columns of rows: the first to the left, the others to the right.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        line.truncate(line.trim_end().len());
        line
    };
    rows.iter().map(line).collect()
}

/// Returns a duration with three digits and its unit: `1.23 ms`.
pub(crate) fn duration(ns: u64) -> String {
    let (unit, size) = match ns {
        0..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = ns as f64 / size;
    match value {
        _ if ns < 1_000 => format!("{ns} ns"),
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::Timings;
    use std::time::Duration;

    fn operation(name: &str, durations: &[u64]) -> Operation {
        let timings = Timings::new(1);
        durations.iter().for_each(|ns| timings.record(0, Duration::from_nanos(*ns), false, 10));
        Operation { name: name.into(), group: Group::Requests, timing: timings.get(0) }
    }

    #[test]
    fn a_table_has_columns() {
        let operations = [operation("lookup", &[1000; 200]), operation("fsync", &[4_000_000])];
        let table = table(&operations, None);
        assert_eq!(table[0], "operation  count  errors      p50      p99    p99.9    bytes");
        assert!(table[1].starts_with("lookup       200       0  1.02 us"), "{}", table[1]);
        assert!(table[2].starts_with("fsync          1       0  4.19 ms"), "{}", table[2]);
        let rates = super::table(&operations, Some(2.0));
        assert!(rates[1].starts_with("lookup       100"), "{}", rates[1]);
    }

    #[test]
    fn differences_leave_out_what_has_not_been() {
        let before = [operation("lookup", &[1000; 3]), operation("read", &[5])];
        let now = [operation("lookup", &[1000; 5]), operation("read", &[5]), operation("a", &[7])];
        let new = since(&before, &now);
        let names: Vec<_> = new.iter().map(|it| (&*it.name, it.timing.count())).collect();
        assert_eq!(names, [("lookup", 2), ("a", 1)]);
        assert_eq!(json(&new, Group::Requests)["lookup"].count, 2);
        assert!(json(&new, Group::Volume).is_empty());
        // The same name in another group is another operation.
        let call = Operation { group: Group::Calls, ..before[0].clone() };
        assert_eq!(since(&before, std::slice::from_ref(&call)), [call]);
    }

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1234, "1.23 us"),
            (45_600_000, "45.6 ms"),
            (789_000, "789 us"),
            (12_000_000_000, "12.0 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
