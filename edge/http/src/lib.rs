//! HTTP servers for users and programs of the same machine: a node's metrics, and the web page of `weir ui`.
//!
//! [`hyper`] parses requests (HTTP/1.1, RFC 9112). This crate adds limits on the number of connections, on the length of
//! requests and on waiting times, and runs handlers as blocking functions on threads of their own. A handler gets a
//! [`HttpRequest`], whose body is read like a file, and returns a [`HttpResponse`], whose body can be a [stream](Sink).
//!
//! Against DNS rebinding, a handler has to check [`HttpRequest::host`]: the page of a foreign host in a local browser reaches a
//! server of this machine under that host's name.

mod body;
pub mod metrics;
mod server;

pub use body::{Gone, RequestBody, ResponseBody, Sink};
pub use hyper::StatusCode;
pub use hyper::body::Bytes;
pub use hyper::header;
pub use server::{Handler, HttpServer, Limits, Stopper, answer_to_bytes};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::net::{IpAddr, SocketAddr};

/// A request.
#[derive(Debug)]
pub struct HttpRequest {
    /// The method, in capitals, such as `GET`.
    pub method: String,
    /// The path, percent-encoded as it was sent. It begins with `/`.
    pub path: String,
    /// The part after `?`, percent-encoded as it was sent; empty for none.
    pub query: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
}

impl HttpRequest {
    /// Returns the value of a header field; `None` if it is missing, is given several times, or is not visible ASCII.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    /// Returns the host and port that the client has asked for; `None` if the request does not state exactly one.
    pub fn host(&self) -> Option<&str> {
        self.header(&header::HOST)
    }
}

/// Returns true if a host of a `Host` field, with or without a port, is this machine's loopback interface.
pub fn is_loopback(host: &str) -> bool {
    let address = host.parse::<SocketAddr>().map(|address| address.ip());
    let address = address.or_else(|_| host.trim_matches(['[', ']']).parse::<IpAddr>());
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    address.map_or(name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// A response.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: StatusCode,
    /// The header fields, beside those about the length and the connection.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body. It is not sent for a `HEAD` request.
    pub body: ResponseBody,
}

impl HttpResponse {
    /// Creates a response with a body of the given content type.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
        Self { status, headers, body: ResponseBody::Whole(body.into()) }
    }

    /// Creates a response whose body is sent bit by bit through the returned [`Sink`], until that is dropped.
    pub fn streamed(content_type: &'static str) -> (Self, Sink) {
        let (sink, body) = body::stream();
        let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
        (Self { status: StatusCode::OK, headers, body }, sink)
    }

    /// Adds a header field.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}
