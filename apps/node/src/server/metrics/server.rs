//! The HTTP server for metrics, with limits for clients that misbehave.

use super::render;
use crate::control::protocol::Snapshot;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The maximum number of connections. A scraper needs one. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 4;
/// The name of the threads that serve connections.
pub const CONNECTION: &str = "metrics";
/// The maximum length of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The timeout for receiving a request, and again for sending its response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Serves requests for `/metrics` until `stop` is set and one more connection arrives ([`wake`]). Misbehaving clients can
/// occupy all connections, each for at most four seconds.
pub fn serve(listener: &TcpListener, snapshot: impl Fn() -> Snapshot + Sync, stop: &AtomicBool) {
    let busy = AtomicUsize::new(0);
    let (busy, snapshot) = (&busy, &snapshot);
    std::thread::scope(|scope| {
        while !stop.load(SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                // The process has no free descriptor, for example. Try again a little later.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if stop.load(SeqCst) || busy.load(SeqCst) >= CONNECTIONS_MAX {
                continue;
            }
            busy.fetch_add(1, SeqCst);
            let handled =
                std::thread::Builder::new().name(CONNECTION.to_owned()).spawn_scoped(scope, move || {
                    // An error means that the client has closed the connection.
                    let _ = handle(stream, snapshot);
                    busy.fetch_sub(1, SeqCst);
                });
            if handled.is_err() {
                busy.fetch_sub(1, SeqCst);
            }
        }
    });
}

/// Connects to the address of a [`serve`], so that it checks its `stop`.
pub fn wake(address: SocketAddr) {
    let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
}

/// Reads one request from a connection, sends the response, and waits until the client closes the connection.
fn handle(mut stream: TcpStream, snapshot: impl Fn() -> Snapshot) -> std::io::Result<()> {
    let time_until =
        |end: Instant| Some(end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let end = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !is_complete(&head) && head.len() < HEAD_BYTES_MAX && Instant::now() < end {
        stream.set_read_timeout(time_until(end))?;
        match stream.read(&mut part)? {
            0 => return Ok(()),
            count => head.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
    }
    let response = respond(&head, snapshot);
    // The response has a deadline of its own, as making the snapshot takes time.
    let end = Instant::now() + TIMEOUT;
    // The deadline is for the whole response, so a client that reads a byte a second does not extend it.
    let mut rest = response.as_slice();
    while !rest.is_empty() && Instant::now() < end {
        stream.set_write_timeout(time_until(end))?;
        match stream.write(rest)? {
            0 => break,
            count => rest = rest.get(count..).unwrap_or_default(),
        }
    }
    stream.shutdown(Shutdown::Write)?;
    // Closing a connection with unread bytes would discard the response.
    while Instant::now() < end {
        stream.set_read_timeout(time_until(end))?;
        if stream.read(&mut part)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns true if a request's head is complete: it ends with an empty line.
fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|bytes| bytes == b"\r\n\r\n") || head.windows(2).any(|bytes| bytes == b"\n\n")
}

/// Returns the response to a request's head.
fn respond(head: &[u8], snapshot: impl Fn() -> Snapshot) -> Vec<u8> {
    let (status, content_type, body, is_head) = match parse_head(head) {
        Ok(MetricsRequest { is_head }) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", content_type, render(snapshot()), is_head)
        }
        Err(status) => (status, "text/plain; charset=utf-8", "metrics are at /metrics\n".to_owned(), false),
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        response.push_str(&body);
    }
    response.into_bytes()
}

/// A request for metrics.
struct MetricsRequest {
    /// True for a HEAD request.
    is_head: bool,
}

/// Parses the head of a request. The error is an HTTP status.
fn parse_head(head: &[u8]) -> Result<MetricsRequest, &'static str> {
    if !is_complete(head) {
        let is_long = head.len() >= HEAD_BYTES_MAX;
        return Err(if is_long { "431 Request Header Fields Too Large" } else { "408 Request Timeout" });
    }
    let head = std::str::from_utf8(head).map_err(|_| "400 Bad Request")?;
    let mut lines = head.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, path, version] = words.as_slice() else { return Err("400 Bad Request") };
    if !version.starts_with("HTTP/1.") {
        return Err("505 HTTP Version Not Supported");
    }
    // Against DNS rebinding: the page of a foreign host in a local browser reaches this server under that host's name.
    let host =
        lines.filter_map(|line| line.split_once(':')).find(|(key, _)| key.eq_ignore_ascii_case("host"));
    if host.is_some_and(|(_, host)| !is_loopback(host.trim())) {
        return Err("403 Forbidden");
    }
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err("405 Method Not Allowed"),
    };
    match path.split_once('?').map_or(path, |(path, _)| path) {
        "/metrics" => Ok(MetricsRequest { is_head }),
        _ => Err("404 Not Found"),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<SocketAddr>().map(|address| address.ip());
    let address = address.or_else(|_| host.trim_matches(['[', ']']).parse::<IpAddr>());
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    address.map_or(name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> String {
        let response = String::from_utf8(respond(head, Snapshot::default)).unwrap();
        response.lines().next().unwrap().to_owned()
    }

    #[test]
    fn only_metrics_are_served_and_only_to_this_machine() {
        for (head, says) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9137\r\n\r\n"[..], "200 OK"),
            (b"GET /metrics?x=1 HTTP/1.0\n\n", "200 OK"),
            (b"HEAD /metrics HTTP/1.1\r\nhost: localhost:9137\r\n\r\n", "200 OK"),
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9137\r\n\r\n", "200 OK"),
            (b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "403 Forbidden"),
            (b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "403 Forbidden"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"GET /metrics/../x HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"GET /metrics HTTP/2\r\n\r\n", "505 HTTP Version Not Supported"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"\xff\xfe\r\n\r\n", "400 Bad Request"),
            (b"\r\n\r\n", "400 Bad Request"),
            (b"GET /metrics HTTP/1.1\r\n", "408 Request Timeout"),
            (&[b'x'; HEAD_BYTES_MAX], "431 Request Header Fields Too Large"),
        ] {
            assert_eq!(status(head), format!("HTTP/1.1 {says}"), "{}", head.escape_ascii());
        }
        let head = respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", Snapshot::default);
        assert!(head.ends_with(b"\r\n\r\n"));
    }

    fn exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server may close the connection before all is written.
        let _ = stream.write_all(request);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        response
    }

    /// Stops the server when a test ends, even by a failed assertion.
    struct Stop<'a>(&'a AtomicBool, SocketAddr);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
            wake(self.1);
        }
    }

    /// Repeats a request until the response begins with `begins`, as the server notices closed connections with a delay.
    fn exchange_until(address: SocketAddr, request: &[u8], begins: &str) -> Vec<u8> {
        let begin = Instant::now();
        loop {
            let response = exchange(address, request);
            if response.starts_with(begins.as_bytes()) && response.is_empty() == begins.is_empty() {
                return response;
            }
            assert!(begin.elapsed() < TIMEOUT * 30, "{}", response.escape_ascii());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_scraper_is_served_while_other_clients_misbehave() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let snapshot = || Snapshot { node: "ix-1".to_owned(), ..Snapshot::default() };
        let good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, snapshot, &stop));
            let _stop = Stop(&stop, address);
            // A silent client occupies one of the few connections until its timeout.
            let silent: Vec<TcpStream> =
                (1..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
            let response = String::from_utf8(exchange_until(address, good, "HTTP/1.1 200 OK\r\n")).unwrap();
            assert!(response.ends_with("# EOF\n"), "{response}");
            assert!(response.contains("weir_node_info{node=\"ix-1\""));
            // Further connections are closed; after the timeout of the silent ones there are free connections again.
            let crowd: Vec<TcpStream> =
                (0..2 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
            exchange_until(address, good, "HTTP/1.1 200");
            exchange_until(address, &[b'x'; HEAD_BYTES_MAX * 4], "HTTP/1.1 431");
            exchange_until(address, good, "HTTP/1.1 200");
            drop((silent, crowd));
        });
    }
}
