//! Reports about a mount: what programs and people read of it, in `.shoal/` and by HTTP.
//!
//! | file | module |
//! | --- | --- |
//! | counters, operations, health, slow requests as JSON | [`json`] |
//! | the same for Prometheus and OpenMetrics | [`metrics`] |
//! | the server that offers them, and a page that shows them | [`http`], [`pages`] |
//!
//! A report is a view of counters that go on meanwhile: its parts are read one after the other.

pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod json;
pub(crate) mod metrics;
pub(crate) mod pages;

use crate::session::Session;
use metrics::Format;

/// A page of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Page {
    /// Counters, gauges, operations.
    Stats,
    /// The same as text for Prometheus.
    Metrics,
    /// Slow requests.
    Slow,
    /// Options of the mount, facts of the volume.
    Config,
    /// Problems, if there are any.
    Health,
}

impl Page {
    /// All pages.
    pub(crate) const ALL: [Page; 5] =
        [Page::Stats, Page::Metrics, Page::Slow, Page::Config, Page::Health];

    /// Returns the name of its file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Page::Stats => "stats",
            Page::Metrics => "metrics",
            Page::Slow => "slow",
            Page::Config => "config",
            Page::Health => "health",
        }
    }

    /// Returns the text of this moment, for somebody who may know everything about the mount.
    pub(crate) fn text(self, session: &Session) -> Vec<u8> {
        match self {
            Page::Stats => json::stats(session, true).into_bytes(),
            Page::Metrics => metrics::text(session, Format::Prometheus).into_bytes(),
            Page::Slow => json::slow(session, true).into_bytes(),
            Page::Config => json::config(session).into_bytes(),
            Page::Health => json::health(session, true).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::damage::Kind;
    use crate::session::Rules;
    use shoal::raw::{Ino, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
    use std::sync::Arc;

    /// The session of a fresh volume that is mounted nowhere.
    pub(super) fn session() -> Session {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let volume = Arc::new(Volume::open_on(device, &OpenOptions::default()).unwrap());
        Session::new(volume, Rules::default(), Ino::ROOT, Arc::default())
    }

    #[test]
    fn pages_of_json_are_objects() {
        let session = session();
        for page in Page::ALL.into_iter().filter(|page| *page != Page::Metrics) {
            let text = page.text(&session);
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert!(value.is_object() && text.ends_with(b"}\n"), "{}", page.name());
        }
        let stats: serde_json::Value = serde_json::from_str(&json::stats(&session, false)).unwrap();
        assert!(stats["volume"]["device_write"]["count"].as_u64().unwrap() > 0, "{stats}");
        assert!(stats["now"]["segments"].as_u64().unwrap() > 0);
        assert_eq!(stats["health"]["status"], "ok");
    }

    /// Reads that failed by checksum, and problems of a scrub, left everything "ok".
    #[test]
    fn damage_is_in_every_report_and_its_paths_are_not_for_everybody() {
        let session = session();
        let damage = &session.observer.damage;
        damage.note(Kind::Data, Ino(7), || Some(b"/secret".to_vec()));
        damage.scrub_begins(1);
        let problem = ("data-checksum".to_owned(), "inode 7 (/secret)".to_owned());
        damage.scrub_found(1, &[problem]);
        damage.scrub_ends(1);
        let health = |whose| json::health(&session, whose);
        let value: serde_json::Value = serde_json::from_str(&health(true)).unwrap();
        assert_eq!(value["status"], "damaged");
        assert_eq!(value["problems"].as_array().map(Vec::len), Some(2), "{value}");
        assert_eq!(value["damage"]["reads"]["data"], 1);
        assert_eq!(value["damage"]["files"][0]["path"], "/secret");
        assert_eq!(value["damage"]["scrub"]["problems"], 1);
        assert!(health(true).contains("data-checksum: inode 7 (/secret)"));
        assert!(!health(false).contains("secret") && health(false).contains("damaged"));
        assert!(!json::stats(&session, false).contains("secret"));
        let metrics = metrics::text(&session, Format::Prometheus);
        for line in [
            "shoal_health{state=\"damaged\"} 1\n",
            "shoal_damaged_reads_total{kind=\"data\"} 1\n",
            "shoal_scrub_problems 1\n",
        ] {
            assert!(metrics.contains(line), "{line} in {metrics}");
        }
        assert!(!metrics.contains("secret"));
    }
}
