//! Metrics for Prometheus in the OpenMetrics text format, served at `/metrics`.

mod families;
mod server;

pub use families::{
    MetricLabels, MetricSamples, MetricsSource, MetricsWriter, float, labels, render_metrics,
};
pub use server::{THREAD, prepare, serve};
