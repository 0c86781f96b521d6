//! `weir graph draw --live`: the picture of a running graph, with its rates.

use super::attach::{AttachedGraph, ElementRates, GraphRates, rate_text};
use super::{GraphCommandError, run::faulty};
use crate::Failure;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_elements::AllElements;
use weir_graph::drawing::{DrawingError, DrawingOptions, draw_with_notes};
use weir_graph::language::{ConfigurationSource, FlatConfiguration, parse};
use weir_http::{HttpRequest, HttpResponse, HttpServer, Limits, StatusCode, header};

/// The limits of a browser.
const LIMITS: Limits =
    Limits { connections: 8, head_bytes: 8 << 10, head_time: Duration::from_secs(5), connection_time: None };

/// A running graph that is drawn.
struct LiveDrawing {
    graph: AttachedGraph,
    flat: FlatConfiguration,
    options: DrawingOptions,
    rates: GraphRates,
}

impl LiveDrawing {
    fn attach(socket: &str, options: DrawingOptions) -> Result<Self, GraphCommandError> {
        let mut graph = AttachedGraph::connect(socket)?;
        let text = graph.read("flatconfig")?;
        let source = ConfigurationSource { name: socket, bytes: text.as_bytes() };
        // The graph is another program: its configuration reads no files here.
        let flat = parse(&source, &[], &AllElements).map_err(|errors| {
            eprintln!("{}", weir_units::escaped_lines(&errors.to_string()));
            GraphCommandError::Faulty { name: socket.to_owned(), count: errors.errors.len() }
        })?;
        let mut drawing = Self { graph, flat, options, rates: GraphRates::default() };
        drawing.rates.update(drawing.graph.measures()?, Instant::now());
        Ok(drawing)
    }

    fn refresh(&mut self) -> Result<(), GraphCommandError> {
        self.rates.update(self.graph.measures()?, Instant::now());
        Ok(())
    }

    fn picture(&self, name: &str) -> Result<String, GraphCommandError> {
        let notes: BTreeMap<String, Vec<String>> =
            self.rates.by_rate().into_iter().map(|it| (it.element.clone(), notes(it))).collect();
        let drawn = draw_with_notes(&self.flat, &AllElements, &self.options, &notes);
        drawn.map(|drawing| drawing.text).map_err(|error| match error {
            DrawingError::Graph(errors) => faulty(name, &errors),
            DrawingError::Limit { .. } => GraphCommandError::Draw { name: name.to_owned(), source: error },
        })
    }
}

/// Returns the lines about an element.
fn notes(rates: &ElementRates) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(rates.packets.map(|(_, rate)| format!("{} packets/s", rate_text(rate))));
    lines.extend(rates.length.map(|length| format!("{length} waiting")));
    let drops = rates.drops.filter(|(all, _)| *all > 0);
    lines.extend(drops.map(|(all, rate)| format!("{all} drops, {}/s", rate_text(rate))));
    lines
}

/// Returns one picture of a running graph, with the rates of an interval.
///
/// # Errors
///
/// [`GraphCommandError`].
pub fn picture(
    socket: &str,
    options: DrawingOptions,
    interval: Duration,
) -> Result<String, GraphCommandError> {
    let mut drawing = LiveDrawing::attach(socket, options)?;
    std::thread::sleep(interval);
    drawing.refresh()?;
    drawing.picture(socket)
}

/// Serves a page with the picture of a running graph, until the program ends.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn serve(
    out: &mut impl Write,
    socket: &str,
    options: DrawingOptions,
    (port, interval): (u16, Duration),
) -> Result<(), Failure> {
    let drawing = Arc::new(Mutex::new((LiveDrawing::attach(socket, options)?, Instant::now())));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let (server, _stopper) = HttpServer::new(listener, LIMITS, "live")?;
    writeln!(out, "http://{}/", server.address()?)?;
    out.flush()?;
    let name = socket.to_owned();
    let handler = move |request: HttpRequest| respond(&request, &drawing, &name, interval);
    Ok(server.run(&Arc::new(handler))?)
}

fn respond(
    request: &HttpRequest,
    drawing: &Mutex<(LiveDrawing, Instant)>,
    name: &str,
    interval: Duration,
) -> HttpResponse {
    let text = |status, text: String| HttpResponse::new(status, "text/plain; charset=utf-8", text);
    // Against DNS rebinding.
    if !request.host().is_none_or(weir_http::is_loopback) {
        return text(StatusCode::FORBIDDEN, "this page is for browsers on this host\n".to_owned());
    }
    if request.path != "/" || !matches!(request.method.as_str(), "GET" | "HEAD") {
        return text(StatusCode::NOT_FOUND, "the picture is at /\n".to_owned());
    }
    let mut state = drawing.lock().unwrap_or_else(PoisonError::into_inner);
    let (drawing, latest) = &mut *state;
    // Several browsers see the same rates.
    let is_due = latest.elapsed() >= interval / 2;
    let refreshed = if is_due { drawing.refresh() } else { Ok(()) };
    if is_due {
        *latest = Instant::now();
    }
    match refreshed.and_then(|()| drawing.picture(name)) {
        Ok(picture) => {
            HttpResponse::new(StatusCode::OK, "text/html; charset=utf-8", page(&picture, interval))
                .with(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(POLICY))
        }
        Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
    }
}

/// The page runs no script, and loads nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

fn page(picture: &str, interval: Duration) -> String {
    let seconds = interval.as_secs().max(1);
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" \
         content=\"{seconds}\"><title>A running graph</title></head><body>{picture}</body></html>\n"
    )
}
