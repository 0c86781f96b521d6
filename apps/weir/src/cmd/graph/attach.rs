//! A connection to the control socket of a running graph, and the rates of its elements.

use super::GraphCommandError;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weir_graph::control::CONTROL_VALUE_MAX;
use weir_graph::engine::{ElementMeasure, MEASURES, MeasureKind, read_measures};

/// The longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The most bytes of a line of an answer.
const LINE_MAX: u64 = 64 << 10;

/// The most lines of an answer.
const LINES_MAX: usize = 1000;

trait ControlStream: Read + Write + Send {}
impl<T: Read + Write + Send> ControlStream for T {}

/// A connection to a running graph.
pub struct AttachedGraph {
    address: String,
    stream: BufReader<Box<dyn ControlStream>>,
}

impl AttachedGraph {
    /// Connects to a control socket: a port of this host, `HOST:PORT`, or a file.
    ///
    /// # Errors
    ///
    /// [`GraphCommandError::Attach`] if no graph answers there.
    pub fn connect(address: &str) -> Result<Self, GraphCommandError> {
        let open = || -> io::Result<Self> {
            let is_port = address.parse::<u16>().is_ok();
            let stream: Box<dyn ControlStream> = if is_port || is_host_and_port(address) {
                let host = if is_port { format!("127.0.0.1:{address}") } else { address.to_owned() };
                let stream = TcpStream::connect(host)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                stream.set_write_timeout(Some(ANSWER_TIME))?;
                Box::new(stream)
            } else {
                let stream = UnixStream::connect(address)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                stream.set_write_timeout(Some(ANSWER_TIME))?;
                Box::new(stream)
            };
            let mut graph = Self { address: address.to_owned(), stream: BufReader::new(stream) };
            let greeting = graph.line()?;
            if !greeting.starts_with("Click::ControlSocket/1.") {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("no control socket: `{greeting}`"),
                ));
            }
            Ok(graph)
        };
        open().map_err(|source| GraphCommandError::Attach { address: address.to_owned(), source })
    }

    /// Reads a handler.
    ///
    /// # Errors
    ///
    /// [`GraphCommandError::Attach`] if the graph has ended, or has no such handler.
    pub fn read(&mut self, handler: &str) -> Result<String, GraphCommandError> {
        self.try_read(handler)
            .map_err(|source| GraphCommandError::Attach { address: self.address.clone(), source })
    }

    /// Reads the numbers of all elements.
    ///
    /// # Errors
    ///
    /// As for [`AttachedGraph::read`].
    pub fn measures(&mut self) -> Result<Vec<ElementMeasure>, GraphCommandError> {
        Ok(read_measures(&self.read(MEASURES)?))
    }

    fn try_read(&mut self, handler: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("READ {handler}\r\n").as_bytes())?;
        let mut text = Vec::new();
        for _ in 0..LINES_MAX {
            let line = self.line()?;
            let goes_on = line.as_bytes().get(3) == Some(&b'-');
            text.push(line);
            if !goes_on {
                break;
            }
        }
        if !text.first().is_some_and(|line| line.starts_with("200")) {
            return Err(io::Error::other(text.join("; ")));
        }
        let wrong = || io::Error::new(ErrorKind::InvalidData, "an answer without its length");
        let line = self.line()?;
        let length: usize = line.strip_prefix("DATA ").and_then(|it| it.parse().ok()).ok_or_else(wrong)?;
        if length > CONTROL_VALUE_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("an answer of {length} bytes")));
        }
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(String::from_utf8_lossy(&data).into_owned())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the graph has closed the connection"));
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.contains('/') && port.parse::<u16>().is_ok())
}

/// The counters that are packets through an element; the first that an element has counts.
const PACKETS: [&[&str]; 3] = [&["count"], &["packets"], &["received", "sent"]];

/// The counters of lost packets.
const DROPS: [&str; 2] = ["drops", "kernel_drops"];

/// The level of a queue.
const LENGTH: &str = "length";

/// The numbers of an element at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ElementNumbers {
    class: String,
    packets: Option<u64>,
    drops: Option<u64>,
    length: Option<u64>,
}

/// An element with its rates.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementRates {
    /// The name.
    pub element: String,
    /// The class.
    pub class: String,
    /// The packets so far, and in a second.
    pub packets: Option<(u64, f64)>,
    /// The lost packets so far, and in a second.
    pub drops: Option<(u64, f64)>,
    /// The packets that wait.
    pub length: Option<u64>,
}

/// The numbers of a graph at two moments.
#[derive(Clone, Debug, Default)]
pub struct GraphRates {
    before: Option<(Instant, BTreeMap<String, ElementNumbers>)>,
    now: Vec<ElementRates>,
}

fn numbers(measures: Vec<ElementMeasure>) -> BTreeMap<String, ElementNumbers> {
    let mut all: BTreeMap<String, (String, Vec<ElementMeasure>)> = BTreeMap::new();
    for measure in measures {
        let of = all.entry(measure.element.clone()).or_insert_with(|| (measure.class.clone(), Vec::new()));
        of.1.push(measure);
    }
    let of_element = |(element, (class, measures)): (String, (String, Vec<ElementMeasure>))| {
        let value = |kind, handler: &str| {
            measures.iter().find(|it| it.kind == kind && it.handler == handler).map(|it| it.value)
        };
        let sum = |handlers: &[&str]| {
            let values = handlers.iter().filter_map(|handler| value(MeasureKind::Counter, handler));
            values.reduce(u64::saturating_add)
        };
        let numbers = ElementNumbers {
            class,
            packets: PACKETS.iter().find_map(|handlers| sum(handlers)),
            drops: sum(&DROPS),
            length: value(MeasureKind::Gauge, LENGTH),
        };
        (element, numbers)
    };
    all.into_iter().map(of_element).collect()
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
fn per_second(now: u64, before: u64, time: Duration) -> f64 {
    // A counter that was set to 0 begins anew.
    let difference = now.checked_sub(before).unwrap_or(now);
    if time.is_zero() { 0.0 } else { difference as f64 / time.as_secs_f64() }
}

impl GraphRates {
    /// Takes the numbers of this moment. Before the second call, rates are 0.
    pub fn update(&mut self, measures: Vec<ElementMeasure>, now: Instant) {
        let current = numbers(measures);
        let (time, before) = match &self.before {
            Some((at, before)) => (now.saturating_duration_since(*at), Some(before)),
            None => (Duration::ZERO, None),
        };
        let rate = |value: Option<u64>, earlier: Option<u64>| {
            value.map(|value| (value, per_second(value, earlier.unwrap_or(value), time)))
        };
        let all = current.iter().map(|(element, it)| {
            let earlier = before.and_then(|before| before.get(element));
            ElementRates {
                element: element.clone(),
                class: it.class.clone(),
                packets: rate(it.packets, earlier.and_then(|it| it.packets)),
                drops: rate(it.drops, earlier.and_then(|it| it.drops)),
                length: it.length,
            }
        });
        self.now = all.collect();
        self.before = Some((now, current));
    }

    /// Returns the elements: those with the most packets a second first, then those with the most drops.
    pub fn by_rate(&self) -> Vec<&ElementRates> {
        let mut all: Vec<&ElementRates> = self.now.iter().collect();
        let rate = |it: Option<(u64, f64)>| it.map_or(-1.0, |(_, rate)| rate);
        all.sort_by(|one, other| {
            let by_packets = rate(other.packets).total_cmp(&rate(one.packets));
            by_packets.then_with(|| rate(other.drops).total_cmp(&rate(one.drops)))
        });
        all
    }
}

/// Returns a rate with at most four digits and the letter of its thousands.
pub fn rate_text(rate: f64) -> String {
    for (least, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if rate >= least {
            return format!("{:.1}{letter}", rate / least);
        }
    }
    if rate == 0.0 || rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_two_moments_and_a_counter_that_was_set_back_begins_anew() {
        let begin = Instant::now();
        let mut rates = GraphRates::default();
        rates.update(
            read_measures(
                "c Counter counter count 10\nd Counter counter count 900\nq Queue gauge length 4\n",
            ),
            begin,
        );
        assert!(rates.by_rate().iter().all(|it| it.packets.is_none_or(|(_, rate)| rate == 0.0)));
        let text = "c Counter counter count 30\nd Counter counter count 8\nq Queue gauge length 5\nq Queue counter drops 0\n";
        rates.update(read_measures(text), begin + Duration::from_secs(2));
        let all = rates.by_rate();
        assert_eq!(all[0].packets, Some((30, 10.0)));
        assert_eq!(all[1].packets, Some((8, 4.0)));
        assert_eq!((all[2].element.as_str(), all[2].packets, all[2].length), ("q", None, Some(5)));
        assert_eq!(all[2].drops, Some((0, 0.0)));
    }

    #[test]
    fn rates_are_short() {
        let texts: Vec<String> =
            [0.0, 2.5, 14.4, 999.0, 12_345.0, 1.5e6, 2e9].into_iter().map(rate_text).collect();
        assert_eq!(texts, ["0", "2.5", "14", "999", "12.3k", "1.5M", "2.0G"]);
    }
}
