//! The counters and levels of a running graph as metrics for Prometheus.

use super::GraphCommandError;
use std::collections::BTreeMap;
use std::fmt::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use weir_graph::control::{ControlHandlers as _, HandlerAction, HandlerCall};
use weir_graph::engine::{ElementMeasure, MEASURES, MeasureKind, read_measures};
use weir_graph_io::ControlCaller;
use weir_http::Stopper;
use weir_http::metrics::{
    MetricLabels, MetricSamples, MetricsSource, MetricsWriter, labels, prepare, render_metrics, serve,
};

/// Reads an address of `--metrics`: a port of 127.0.0.1, or an address of this host with a port.
pub fn read_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("metrics are for programs of this host: use 127.0.0.1:PORT, and forward it".to_owned()),
        Err(_) => Err("expected PORT or 127.0.0.1:PORT".to_owned()),
    }
}

/// The server of metrics. Dropping it ends the server.
pub struct GraphMetrics {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl GraphMetrics {
    /// Serves the metrics of a graph. Returns the server and its address.
    ///
    /// # Errors
    ///
    /// [`GraphCommandError::Metrics`] if the address is in use.
    pub fn start(address: SocketAddr, graph: ControlCaller) -> Result<(Self, SocketAddr), GraphCommandError> {
        let failed = |source| GraphCommandError::Metrics { address, source };
        let (server, stopper) = TcpListener::bind(address).and_then(prepare).map_err(failed)?;
        let found = server.address().map_err(failed)?;
        let body = move || {
            // The listener works, and there is no other error.
            _ = serve(server, move || render_metrics(GraphNumbers(read(&mut graph.clone()))));
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(body).map_err(failed)?;
        Ok((Self { stopper, thread: Some(thread) }, found))
    }
}

impl Drop for GraphMetrics {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has written why.
            _ = thread.join();
        }
    }
}

fn read(graph: &mut ControlCaller) -> Vec<ElementMeasure> {
    let call = HandlerCall { action: HandlerAction::Read, name: MEASURES.to_owned(), value: String::new() };
    // A graph that has ended has no numbers.
    graph.call(call).map(|text| read_measures(&text)).unwrap_or_default()
}

/// The numbers of a graph at one moment.
#[derive(Debug)]
struct GraphNumbers(Vec<ElementMeasure>);

impl MetricsSource for GraphNumbers {
    fn write(&self, to: &mut MetricsWriter<'_>) -> Result<(), Error> {
        // Each handler is a family, with a sample for each element.
        let mut families: BTreeMap<(bool, &str), Vec<(MetricLabels, u64)>> = BTreeMap::new();
        for measure in &self.0 {
            let labels = labels([("element", &measure.element), ("class", &measure.class)]);
            let key = (measure.kind == MeasureKind::Counter, measure.handler.as_str());
            families.entry(key).or_default().push((labels, measure.value));
        }
        for ((is_counter, handler), samples) in families {
            if is_counter {
                let help = format!("The counter {handler} of elements");
                to.family(&format!("weir_graph_{handler}"), "", &help, MetricSamples::Counter(samples))?;
            } else {
                let help = format!("The present {handler} of elements");
                to.family(
                    &format!("weir_graph_present_{handler}"),
                    "",
                    &help,
                    MetricSamples::Gauge(samples),
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handler_is_a_family_and_counters_and_levels_of_one_name_are_two() {
        let text = "c Counter counter count 3\na/q Queue gauge length 2\nt ARPTable gauge count 1\nd Counter counter count 4\n";
        assert_eq!(
            render_metrics(GraphNumbers(read_measures(text))),
            "# HELP weir_graph_present_count The present count of elements\n\
             # TYPE weir_graph_present_count gauge\n\
             weir_graph_present_count{element=\"t\",class=\"ARPTable\"} 1\n\
             # HELP weir_graph_present_length The present length of elements\n\
             # TYPE weir_graph_present_length gauge\n\
             weir_graph_present_length{element=\"a/q\",class=\"Queue\"} 2\n\
             # HELP weir_graph_count The counter count of elements\n\
             # TYPE weir_graph_count counter\n\
             weir_graph_count_total{element=\"c\",class=\"Counter\"} 3\n\
             weir_graph_count_total{element=\"d\",class=\"Counter\"} 4\n\
             # EOF\n"
        );
    }

    #[test]
    fn metrics_have_an_address_of_this_host() {
        assert_eq!(read_address("9137").unwrap().to_string(), "127.0.0.1:9137");
        assert_eq!(read_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(read_address("192.0.2.1:9137").unwrap_err().contains("this host"));
        assert!(read_address("x").is_err());
    }
}
