//! The HTTP server for metrics, with limits for clients that misbehave.

use crate::{HttpRequest, HttpResponse, HttpServer, Limits, StatusCode, Stopper};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// The name of the threads that answer requests.
pub const THREAD: &str = "metrics";
/// The limits of a client. A scraper needs one connection. Misbehaving clients can occupy all connections, each for at
/// most four seconds.
const LIMITS: Limits = Limits {
    connections: 4,
    head_bytes: 8 << 10,
    head_time: Duration::from_secs(2),
    connection_time: Some(Duration::from_secs(4)),
};

/// Prepares the server for metrics.
///
/// # Errors
/// The process has no descriptors left.
pub fn prepare(listener: TcpListener) -> io::Result<(HttpServer, Stopper)> {
    HttpServer::new(listener, LIMITS, THREAD)
}

/// Serves requests for `/metrics` until the server is stopped.
///
/// # Errors
/// The listener cannot be watched.
pub fn serve(server: HttpServer, render: impl Fn() -> String + Send + Sync + 'static) -> io::Result<()> {
    server.run(&Arc::new(move |request: HttpRequest| respond(&request, &render)))
}

/// Returns the response to a request.
fn respond(request: &HttpRequest, render: &impl Fn() -> String) -> HttpResponse {
    let refusal =
        |status| HttpResponse::new(status, "text/plain; charset=utf-8", "metrics are at /metrics\n");
    // Against DNS rebinding: the page of a foreign host in a local browser reaches this server under that host's name.
    let is_local = request.host().is_none_or(crate::is_loopback);
    match (request.method.as_str(), request.path.as_str()) {
        _ if !is_local => refusal(StatusCode::FORBIDDEN),
        ("GET" | "HEAD", "/metrics") => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            HttpResponse::new(StatusCode::OK, content_type, render())
        }
        ("GET" | "HEAD", _) => refusal(StatusCode::NOT_FOUND),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer_to_bytes;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    fn answer(head: &[u8]) -> String {
        let handler = Arc::new(|request: HttpRequest| respond(&request, &String::new));
        String::from_utf8(answer_to_bytes(head, LIMITS, &handler)).unwrap()
    }

    #[test]
    fn only_metrics_are_served_and_only_to_this_machine() {
        for (head, says) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9137\r\n\r\n"[..], "HTTP/1.1 200 OK"),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK"),
            (b"HEAD /metrics HTTP/1.1\r\nhost: localhost:9137\r\n\r\n", "HTTP/1.1 200 OK"),
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9137\r\n\r\n", "HTTP/1.1 200 OK"),
            (b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "HTTP/1.1 403 Forbidden"),
            (b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "HTTP/1.1 403 Forbidden"),
            (
                b"GET http://rebound.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "HTTP/1.1 400 Bad Request",
            ),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
            (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (b"GET /metrics/../x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"),
            (b"\xff\xfe\r\n\r\n", "HTTP/1.1 400 Bad Request"),
            (&[b'x'; LIMITS.head_bytes + 1], "HTTP/1.1 431 Request Header Fields Too Large"),
            // A client that sends no whole request gets no response.
            (b"GET /metrics HTTP/1.1\r\n", ""),
            (b"\r\n\r\n", ""),
        ] {
            assert_eq!(answer(head).lines().next().unwrap_or_default(), says, "{}", head.escape_ascii());
        }
        assert!(answer(b"HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
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

    /// Repeats a request until the response begins with `begins`, as the server notices closed connections with a delay.
    fn exchange_until(address: SocketAddr, request: &[u8], begins: &str) -> Vec<u8> {
        let begin = Instant::now();
        loop {
            let response = exchange(address, request);
            if response.starts_with(begins.as_bytes()) && response.is_empty() == begins.is_empty() {
                return response;
            }
            assert!(begin.elapsed() < LIMITS.head_time * 30, "{}", response.escape_ascii());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_scraper_is_served_while_other_clients_misbehave() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let render = || "weir_node_info{node=\"ix-1\"} 1\n# EOF\n".to_owned();
        let (server, stopper) = prepare(listener).unwrap();
        let thread = std::thread::spawn(move || serve(server, render));
        let good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        // A silent client occupies one of the few connections until its timeout.
        let silent: Vec<TcpStream> =
            (1..LIMITS.connections).map(|_| TcpStream::connect(address).unwrap()).collect();
        let response = String::from_utf8(exchange_until(address, good, "HTTP/1.1 200 OK\r\n")).unwrap();
        assert!(response.ends_with("# EOF\n"), "{response}");
        assert!(response.contains("weir_node_info{node=\"ix-1\""));
        // Further connections are closed; after the timeout of the silent ones there are free connections again.
        let crowd: Vec<TcpStream> =
            (0..2 * LIMITS.connections).map(|_| TcpStream::connect(address).unwrap()).collect();
        exchange_until(address, good, "HTTP/1.1 200");
        exchange_until(address, &[b'x'; LIMITS.head_bytes * 4], "HTTP/1.1 431");
        exchange_until(address, good, "HTTP/1.1 200");
        // Connections that are still open do not keep the server from stopping.
        let open = TcpStream::connect(address).unwrap();
        stopper.stop();
        thread.join().unwrap().unwrap();
        assert!(TcpStream::connect(address).is_err());
        drop((silent, crowd, open));
    }
}
