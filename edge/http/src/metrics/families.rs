//! Families of samples, and their text.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::{Debug, Error};

/// The values of a program at one moment.
pub trait MetricsSource: Debug + Send + Sync + 'static {
    /// Writes all families.
    ///
    /// # Errors
    ///
    /// Fails as the writer does.
    fn write(&self, to: &mut MetricsWriter<'_>) -> Result<(), Error>;
}

/// A source as a collector of metrics.
#[derive(Debug)]
struct SourceCollector<S>(S);

impl<S: MetricsSource> Collector for SourceCollector<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.0.write(&mut MetricsWriter(encoder))
    }
}

/// Renders the values of a program in the OpenMetrics text format.
pub fn render_metrics(source: impl MetricsSource) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SourceCollector(source)));
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// Returns labels by their names.
pub fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> MetricLabels {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// The labels of a sample.
pub type MetricLabels = Vec<(&'static str, String)>;

/// The samples of a family, each with its labels.
#[derive(Clone, Debug)]
pub enum MetricSamples {
    /// Values that only grow.
    Counter(Vec<(MetricLabels, u64)>),
    /// Times in ns that only grow. They are written in seconds.
    NanosCounter(Vec<(MetricLabels, u64)>),
    /// Present values.
    Gauge(Vec<(MetricLabels, u64)>),
    /// Present values that are no whole numbers.
    FractionGauge(Vec<(MetricLabels, f64)>),
}

/// Returns a number as a fraction.
#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds stay exact to the microsecond for 270 years, and shares to six digits"
)]
pub fn float(value: u64) -> f64 {
    value as f64
}

/// Writes families of samples to an encoder.
#[expect(missing_debug_implementations, reason = "the encoder has none")]
pub struct MetricsWriter<'a>(DescriptorEncoder<'a>);

impl MetricsWriter<'_> {
    /// Writes a family that states facts by its labels.
    ///
    /// # Errors
    ///
    /// Fails as the encoder does.
    pub fn info(&mut self, name: &str, help: &str, labels: &MetricLabels) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    /// Writes a family of samples. `name` is without the unit; `unit` is empty for plain numbers.
    ///
    /// # Errors
    ///
    /// Fails as the encoder does.
    pub fn family(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        samples: MetricSamples,
    ) -> Result<(), Error> {
        let unit = (!unit.is_empty()).then(|| Unit::Other(unit.to_owned()));
        let kind = match samples {
            MetricSamples::Counter(_) | MetricSamples::NanosCounter(_) => MetricType::Counter,
            MetricSamples::Gauge(_) | MetricSamples::FractionGauge(_) => MetricType::Gauge,
        };
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        // A sample without labels is written without braces.
        let mut write_sample =
            |labels: &MetricLabels, write: &dyn Fn(&mut MetricEncoder<'_>) -> Result<(), Error>| {
                if labels.is_empty() {
                    write(&mut encoder)
                } else {
                    write(&mut encoder.encode_family(labels)?)
                }
            };
        match samples {
            MetricSamples::Counter(samples) => samples.iter().try_for_each(|(labels, value)| {
                write_sample(labels, &|to| to.encode_counter::<NoLabelSet, _, u64>(value, None))
            }),
            MetricSamples::NanosCounter(samples) => samples.iter().try_for_each(|(labels, nanos)| {
                let seconds = float(*nanos) / 1e9;
                write_sample(labels, &|to| to.encode_counter::<NoLabelSet, _, u64>(&seconds, None))
            }),
            MetricSamples::Gauge(samples) => samples.iter().try_for_each(|(labels, value)| {
                // The encoder takes signed numbers. No gauge comes near their maximum.
                let value = i64::try_from(*value).unwrap_or(i64::MAX);
                write_sample(labels, &|to| to.encode_gauge(&value))
            }),
            MetricSamples::FractionGauge(samples) => samples
                .iter()
                .try_for_each(|(labels, share)| write_sample(labels, &|to| to.encode_gauge(share))),
        }
    }
}
