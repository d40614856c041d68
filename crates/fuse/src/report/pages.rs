//! The pages of a mount by HTTP.
//!
//! Over TCP any user of the machine can read them, so they say nothing of anybody's files: slow
//! requests come without paths and callers, damage without paths. A socket in the file system is
//! for its owner alone.

use crate::report::http::{Address, Body, Pages};
use crate::report::json;
use crate::report::metrics::{self, Format};
use crate::session::Session;
use std::sync::Weak;

const HTML: &str = include_str!("page.html");

/// The pages of a mount.
pub(crate) struct MountPages {
    session: Weak<Session>,
    /// With paths and callers.
    whose: bool,
}

impl MountPages {
    /// Makes the pages of a mount, for a server at an address.
    pub(crate) fn new(session: Weak<Session>, address: &Address) -> MountPages {
        MountPages { session, whose: matches!(address, Address::Unix(_)) }
    }
}

impl Pages for MountPages {
    fn find(&self, path: &str, accept: &str) -> Option<&'static str> {
        match path {
            "/" => Some("html"),
            "/metrics" if accept.contains("application/openmetrics-text") => Some("openmetrics"),
            "/metrics" => Some("metrics"),
            "/stats.json" => Some("stats"),
            "/slow.json" => Some("slow"),
            "/health.json" => Some("health"),
            _ => None,
        }
    }

    fn make(&self, key: &'static str) -> Body {
        let body =
            |content_type, text: String| Body { content_type, bytes: text.into_bytes().into() };
        if key == "html" {
            return body("text/html; charset=utf-8", HTML.to_owned());
        }
        let Some(session) = self.session.upgrade() else {
            return body("text/plain; charset=utf-8", "unmounted\n".to_owned());
        };
        let prometheus =
            |format: Format| body(format.content_type(), metrics::text(&session, format));
        match key {
            "metrics" => prometheus(Format::Prometheus),
            "openmetrics" => prometheus(Format::OpenMetrics),
            "slow" => body("application/json", json::slow(&session, self.whose)),
            "health" => body("application/json", json::health(&session, self.whose)),
            _ => body("application/json", json::stats(&session, self.whose)),
        }
    }
}
