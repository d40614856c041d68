//! Lines for people about a volume in a bucket: its objects, its requests, and what both cost.

use std::collections::BTreeMap;

use shoal::raw::{BucketRequest, Fact, RequestClass, S3_PRICES};
use shoal_session::Metric;

use crate::size::human;

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// Numbers of the store below a volume, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoreCounts(BTreeMap<String, u64>);

impl StoreCounts {
    /// That of a volume; `None`: it is not in a bucket.
    pub(crate) fn of_volume(facts: &[Fact]) -> Option<StoreCounts> {
        StoreCounts::of(facts.iter().map(|fact| (fact.name, fact.value)))
    }

    /// That of a mount, by its counters.
    pub(crate) fn of_mount(stats: &[Metric]) -> Option<StoreCounts> {
        let named =
            |stat: &Metric| Some((stat.name.strip_prefix("store_")?.to_owned(), stat.value));
        StoreCounts::of(stats.iter().filter_map(named))
    }

    fn of<S: Into<String>>(facts: impl Iterator<Item = (S, u64)>) -> Option<StoreCounts> {
        let facts: BTreeMap<String, u64> = facts.map(|(name, n)| (name.into(), n)).collect();
        (!facts.is_empty()).then_some(StoreCounts(facts))
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Requests of the two classes that are charged: those that write or list, and those that read.
    fn requests(&self) -> [u64; 2] {
        [RequestClass::Write, RequestClass::Read].map(|class| {
            let kinds = BucketRequest::ALL.iter().filter(|kind| kind.class() == class);
            kinds.map(|kind| self.get(kind.name())).sum()
        })
    }

    fn month(&self) -> String {
        dollars(self.get("stored_bytes") as f64 / 1e9 * S3_PRICES.month)
    }

    /// Lines about the objects, and what it costs to keep them.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let (objects, pieces) = (self.get("objects"), self.get("pieces"));
        let objects =
            format!("{objects} of {}, in {pieces} pieces", human(self.get("stored_bytes")));
        let price = format!("{} $ a month, stored in S3 Standard", self.month());
        vec![("objects", objects), ("price", price)]
    }

    /// A line about the requests since the volume was opened, and their price.
    pub(crate) fn row_of_requests(&self) -> (&'static str, String) {
        let [writes, reads] = self.requests();
        let [sent, received] = ["sent_bytes", "received_bytes"].map(|name| human(self.get(name)));
        let price = dollars(self.get("cost_microdollars") as f64 / 1e6);
        let line =
            format!("{writes} that write ({sent}), {reads} that read ({received}): {price} $");
        ("requests", line)
    }

    /// Rates of requests and bytes since an earlier reading, and their price, as clauses.
    pub(crate) fn since(&self, before: &StoreCounts, seconds: f64) -> Vec<String> {
        // An owner counts anew after it took over.
        let grown = |name: &str| self.get(name).saturating_sub(before.get(name));
        let rate = |n: u64| format!("{:.1}", n as f64 / seconds);
        let bytes = |name| human((grown(name) as f64 / seconds) as u64);
        let ([writes, reads], [writes_then, reads_then]) = (self.requests(), before.requests());
        let (writes, reads) =
            (writes.saturating_sub(writes_then), reads.saturating_sub(reads_then));
        let hour = grown("cost_microdollars") as f64 / 1e6 / seconds * HOUR;
        let mut clauses = vec![
            format!("bucket: {} requests/s write {}/s", rate(writes), bytes("sent_bytes")),
            format!("{} read {}/s", rate(reads), bytes("received_bytes")),
            format!("{} $ an hour", dollars(hour)),
            format!("{} $ a month for {}", self.month(), human(self.get("stored_bytes"))),
        ];
        if grown("repeated") > 0 {
            clauses.push(format!("FAILED and repeated: {}/s", rate(grown("repeated"))));
        }
        clauses
    }
}

/// Formats a sum of money in dollars: to the cent, below one dollar to a hundredth of a cent.
fn dollars(sum: f64) -> String {
    if sum < 1.0 { format!("{sum:.4}") } else { format!("{sum:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(requests: u64) -> StoreCounts {
        let names = ["put_log", "put_data", "put_manifest", "list", "get", "delete", "repeated"];
        let counts = names.iter().map(|name| (*name, requests));
        let bytes = [("sent_bytes", requests << 20), ("received_bytes", requests << 10)];
        let others = [
            ("cost_microdollars", requests * 20),
            ("stored_bytes", 200_000_000_000),
            ("objects", 7),
            ("pieces", 9),
        ];
        StoreCounts::of(counts.chain(bytes).chain(others)).expect("some facts")
    }

    #[test]
    fn a_volume_in_a_file_has_no_store() {
        assert_eq!(StoreCounts::of_volume(&[]), None);
        let stat = Metric { name: "inodes".into(), value: 1, what: "".into(), gauge: true };
        assert_eq!(StoreCounts::of_mount(&[stat]), None);
    }

    #[test]
    fn requests_and_what_is_kept_have_a_price() {
        assert_eq!(
            store(5).rows(),
            [
                ("objects", "7 of 186 GiB, in 9 pieces".to_owned()),
                ("price", "4.60 $ a month, stored in S3 Standard".to_owned()),
            ]
        );
        let (_, line) = store(50_000).row_of_requests();
        assert_eq!(line, "200000 that write (48.8 GiB), 50000 that read (48.8 MiB): 1.00 $");
    }

    #[test]
    fn an_interval_has_rates_and_the_price_of_an_hour() {
        let clauses = store(30).since(&store(10), 2.0);
        assert_eq!(
            clauses,
            [
                "bucket: 40.0 requests/s write 10.0 MiB/s",
                "10.0 read 10.0 KiB/s",
                "0.7200 $ an hour",
                "4.60 $ a month for 186 GiB",
                "FAILED and repeated: 10.0/s",
            ]
        );
        // After a take-over.
        assert!(store(1).since(&store(10), 2.0)[0].starts_with("bucket: 0.0 requests/s"));
    }
}
