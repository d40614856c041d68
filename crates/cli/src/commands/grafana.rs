//! A dashboard of the metrics of a mount, for Grafana: a panel for each row of one table.

use serde_json::{Value, json};

/// A panel: title, unit of Grafana, queries.
struct Panel {
    title: &'static str,
    unit: &'static str,
    queries: &'static [Query],
}

/// A query, with its legend.
enum Query {
    /// A gauge.
    Now(&'static str, &'static str),
    /// The rate of a counter.
    Rate(&'static str, &'static str),
    /// The rates of a counter, by a label.
    RateBy(&'static str, &'static str),
    /// A share of the durations in a histogram, 0 to 1.
    Share(&'static str, f64, &'static str),
    /// As [`Query::Share`], by a label.
    ShareBy(&'static str, f64, &'static str),
}

impl Query {
    /// Returns the text of the query, and its legend.
    fn text(&self) -> (String, String) {
        const OF: &str = "{instance=~\"$instance\"}";
        const IN: &str = "[$__rate_interval]";
        let label = |label: &str| format!("{{{{{label}}}}}");
        match self {
            Query::Now(metric, legend) => (format!("{metric}{OF}"), (*legend).into()),
            Query::Rate(metric, legend) => (format!("rate({metric}{OF}{IN})"), (*legend).into()),
            Query::RateBy(metric, by) => {
                (format!("sum by ({by}) (rate({metric}{OF}{IN}))"), label(by))
            }
            Query::Share(metric, share, legend) => {
                let rates = format!("sum by (le) (rate({metric}_bucket{OF}{IN}))");
                (format!("histogram_quantile({share}, {rates})"), (*legend).into())
            }
            Query::ShareBy(metric, share, by) => {
                let rates = format!("sum by (le, {by}) (rate({metric}_bucket{OF}{IN}))");
                (format!("histogram_quantile({share}, {rates})"), label(by))
            }
        }
    }
}

const OPERATION: &str = "shoal_operation_duration_seconds";
const DEVICE: &str = "shoal_device_io_duration_seconds";

const PANELS: [Panel; 10] = [
    Panel {
        title: "Operations",
        unit: "ops",
        queries: &[Query::RateBy("shoal_operation_duration_seconds_count", "operation")],
    },
    Panel {
        title: "Latency of operations",
        unit: "s",
        queries: &[
            Query::Share(OPERATION, 0.5, "p50"),
            Query::Share(OPERATION, 0.99, "p99"),
            Query::Share(OPERATION, 0.999, "p99.9"),
        ],
    },
    Panel {
        title: "99% of each operation within",
        unit: "s",
        queries: &[Query::ShareBy(OPERATION, 0.99, "operation")],
    },
    Panel {
        title: "Errors of operations, and of the device",
        unit: "ops",
        queries: &[
            Query::RateBy("shoal_operation_errors_total", "operation"),
            Query::RateBy("shoal_device_io_errors_total", "kind"),
        ],
    },
    Panel {
        title: "Device: bytes",
        unit: "Bps",
        queries: &[Query::RateBy("shoal_device_io_bytes_total", "kind")],
    },
    Panel {
        title: "Device: 99% of operations within",
        unit: "s",
        queries: &[Query::ShareBy(DEVICE, 0.99, "kind")],
    },
    Panel {
        title: "Journal and checkpoints",
        unit: "s",
        queries: &[
            Query::Share("shoal_journal_wait_duration_seconds", 0.99, "fsync waits (p99)"),
            Query::Rate("shoal_checkpoint_duration_seconds_sum", "share of time in checkpoints"),
        ],
    },
    Panel {
        title: "Space",
        unit: "bytes",
        queries: &[
            Query::Now("shoal_volume_available_bytes", "available"),
            Query::Now("shoal_volume_size_bytes", "size"),
            Query::Now("shoal_live_bytes", "live"),
        ],
    },
    Panel {
        title: "Memory",
        unit: "bytes",
        queries: &[
            Query::Now("shoal_resident_bytes", "server"),
            Query::Now("shoal_cache_bytes", "metadata"),
        ],
    },
    Panel {
        title: "Slow operations, and reads that missed the memory",
        unit: "ops",
        queries: &[
            Query::Rate("shoal_slow_operations_total", "slow operations"),
            Query::Rate("shoal_node_reads_total", "tree nodes read"),
            Query::Rate("shoal_inode_block_reads_total", "inode blocks read"),
        ],
    },
];

/// Returns the dashboard as text.
pub(crate) fn dashboard() -> String {
    let panels: Vec<Value> = PANELS.iter().enumerate().map(|(at, it)| panel(at, it)).collect();
    let source = json!({
        "name": "source", "type": "datasource", "query": "prometheus", "label": "Source",
    });
    let instance = json!({
        "name": "instance", "type": "query", "label": "Mount", "refresh": 2,
        "includeAll": true, "multi": true, "current": { "text": "All", "value": "$__all" },
        "datasource": { "type": "prometheus", "uid": "${source}" },
        "query": "label_values(shoal_build_info, instance)",
    });
    let dashboard = json!({
        "title": "Shoal", "uid": "shoal", "tags": ["shoal"], "schemaVersion": 39,
        "refresh": "10s", "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [source, instance] }, "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn panel(at: usize, panel: &Panel) -> Value {
    let (wide, high) = (12, 8);
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..)
        .map(|(query, letter)| {
            let (query, legend) = query.text();
            json!({ "refId": letter.to_string(), "expr": query, "legendFormat": legend })
        })
        .collect();
    json!({
        "id": at + 1, "type": "timeseries", "title": panel.title, "targets": targets,
        "datasource": { "type": "prometheus", "uid": "${source}" },
        "gridPos": { "x": at % 2 * wide, "y": at / 2 * high, "w": wide, "h": high },
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0 }, "overrides": [] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_an_object_with_all_panels() {
        let value: Value = serde_json::from_str(&dashboard()).expect("JSON");
        let panels = value["panels"].as_array().expect("panels");
        assert_eq!(panels.len(), PANELS.len());
        let queries: Vec<&str> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().expect("targets"))
            .map(|target| target["expr"].as_str().expect("a query"))
            .collect();
        assert!(queries.iter().all(|query| query.contains("{instance=~\"$instance\"}")));
        assert!(
            queries.iter().all(|query| query.matches('(').count() == query.matches(')').count())
        );
    }
}
