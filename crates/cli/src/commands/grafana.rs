//! A dashboard of the metrics of a mount, for Grafana: a panel for each row of one table.

use serde_json::{Value, json};

/// A panel: title, unit of Grafana, queries with their legends.
struct Panel {
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const PANELS: [Panel; 10] = [
    Panel {
        title: "Operations",
        unit: "ops",
        queries: &[(
            "sum by (operation) (rate(shoal_operation_duration_seconds_count{$M}[$__rate_interval]))",
            "{{operation}}",
        )],
    },
    Panel {
        title: "Latency of operations",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(shoal_operation_duration_seconds_bucket{$M}[$__rate_interval])))",
                "p50",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(shoal_operation_duration_seconds_bucket{$M}[$__rate_interval])))",
                "p99",
            ),
            (
                "histogram_quantile(0.999, sum by (le) (rate(shoal_operation_duration_seconds_bucket{$M}[$__rate_interval])))",
                "p99.9",
            ),
        ],
    },
    Panel {
        title: "99% of each operation within",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, operation) (rate(shoal_operation_duration_seconds_bucket{$M}[$__rate_interval])))",
            "{{operation}}",
        )],
    },
    Panel {
        title: "Errors",
        unit: "ops",
        queries: &[
            (
                "sum by (operation) (rate(shoal_operation_errors_total{$M}[$__rate_interval])) > 0",
                "{{operation}}",
            ),
            (
                "sum by (kind) (rate(shoal_device_io_errors_total{$M}[$__rate_interval])) > 0",
                "device {{kind}}",
            ),
        ],
    },
    Panel {
        title: "Device: bytes",
        unit: "Bps",
        queries: &[(
            "sum by (kind) (rate(shoal_device_io_bytes_total{$M}[$__rate_interval]))",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Device: 99% of operations within",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (le, kind) (rate(shoal_device_io_duration_seconds_bucket{$M}[$__rate_interval])))",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Journal and checkpoints",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.99, sum by (le) (rate(shoal_journal_wait_duration_seconds_bucket{$M}[$__rate_interval])))",
                "fsync waits (p99)",
            ),
            (
                "rate(shoal_checkpoint_duration_seconds_sum{$M}[$__rate_interval])",
                "share of time in checkpoints",
            ),
        ],
    },
    Panel {
        title: "Space",
        unit: "bytes",
        queries: &[
            ("shoal_volume_available_bytes{$M}", "available"),
            ("shoal_volume_size_bytes{$M}", "size"),
            ("shoal_live_bytes{$M}", "live"),
        ],
    },
    Panel {
        title: "Memory",
        unit: "bytes",
        queries: &[("shoal_resident_bytes{$M}", "server"), ("shoal_cache_bytes{$M}", "metadata")],
    },
    Panel {
        title: "Slow operations, and reads that missed the memory",
        unit: "ops",
        queries: &[
            ("rate(shoal_slow_operations_total{$M}[$__rate_interval])", "slow operations"),
            ("rate(shoal_node_reads_total{$M}[$__rate_interval])", "tree nodes read"),
            ("rate(shoal_inode_block_reads_total{$M}[$__rate_interval])", "inode blocks read"),
        ],
    },
];

/// Returns the dashboard as text.
pub fn dashboard() -> String {
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
        .map(|((query, legend), letter)| {
            let query = query.replace("$M", "instance=~\"$instance\"");
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
