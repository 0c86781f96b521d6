//! The server: connections, limits, and the threads of handlers.

use crate::body::{RequestBody, pass_on};
use crate::{HttpRequest, HttpResponse};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;

/// The pause after an error of accepting a connection: the process has no free descriptor, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes that [`answer_to_bytes`] buffers in each direction.
const IN_MEMORY_BYTES: usize = 1 << 20;

/// The function that answers requests. It runs on a thread of its own, and may block.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    fn answer(&self, request: HttpRequest) -> HttpResponse;
}

impl<F: Fn(HttpRequest) -> HttpResponse + Send + Sync + 'static> Handler for F {
    fn answer(&self, request: HttpRequest) -> HttpResponse {
        self(request)
    }
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at a time. Further connections are closed at once.
    pub connections: usize,
    /// The most bytes of a request's head. At least 8,192.
    pub head_bytes: usize,
    /// The most time for receiving a request's head, and for an idle connection.
    pub head_time: Duration,
    /// The most time for a whole connection; `None` for no limit.
    pub connection_time: Option<Duration>,
}

/// A server that listens.
#[derive(Debug)]
pub struct HttpServer {
    runtime: Runtime,
    listener: TcpListener,
    limits: Limits,
    stop: watch::Receiver<bool>,
}

/// Stops a server. Dropping this value stops the server, too.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Stops the server: it closes all connections, and [`HttpServer::run`] returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl HttpServer {
    /// Prepares a server. `thread_name` is the name of the threads of handlers.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(listener: TcpListener, limits: Limits, thread_name: &str) -> io::Result<(Self, Stopper)> {
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(limits.connections)
            .thread_name(thread_name)
            .build()?;
        let (sender, stop) = watch::channel(false);
        Ok((Self { runtime, listener, limits, stop }, Stopper(sender)))
    }

    /// Returns the address that the server listens at.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until the [`Stopper`] stops the server.
    ///
    /// # Errors
    /// The listener cannot be watched.
    pub fn run(self, handler: &Arc<impl Handler>) -> io::Result<()> {
        let Self { runtime, listener, limits, mut stop } = self;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let free = Arc::new(Semaphore::new(limits.connections));
            let ended = stop.clone();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stop.wait_for(|stopped| *stopped) => break,
                };
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let Ok(permit) = Arc::clone(&free).try_acquire_owned() else { continue };
                let (handler, mut ended) = (Arc::clone(handler), ended.clone());
                tokio::spawn(async move {
                    // An error means that the client has closed the connection, or has sent no valid request.
                    let connection = connection(stream, limits, handler, false);
                    tokio::select! {
                        () = connection => {}
                        _ = ended.wait_for(|stopped| *stopped) => {}
                    }
                    drop(permit);
                });
            }
            Ok(())
        })
    }
}

/// Serves one connection until its end, or until its time is over. With `half_close`, a client that has closed its side still
/// gets answers. Without it, a streamed response ends when the client goes away.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    limits: Limits,
    handler: Arc<impl Handler>,
    half_close: bool,
) {
    let service = service_fn(move |request| answer(request, Arc::clone(&handler)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes)
        .half_close(half_close)
        .serve_connection(TokioIo::new(stream), service);
    match limits.connection_time {
        Some(time) => drop(tokio::time::timeout(time, connection).await),
        None => drop(connection.await),
    }
}

/// Answers one request on a thread of its own, while its body is passed on to that thread.
async fn answer(
    request: hyper::Request<Incoming>,
    handler: Arc<impl Handler>,
) -> Result<hyper::Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let (sender, request_body) = RequestBody::new(body.size_hint().exact());
    // The target of a request to a proxy names a host, which no handler here would check.
    let response = if head.uri.authority().is_some() || !head.uri.path().starts_with('/') {
        refusal(hyper::StatusCode::BAD_REQUEST)
    } else {
        let request = HttpRequest {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            body: request_body,
        };
        let handled = spawn_blocking(move || handler.answer(request));
        let ((), response) = tokio::join!(pass_on(body, sender), handled);
        response.unwrap_or_else(|_| refusal(hyper::StatusCode::INTERNAL_SERVER_ERROR))
    };
    let mut answer = hyper::Response::new(response.body.boxed());
    *answer.status_mut() = response.status;
    answer.headers_mut().extend(response.headers);
    Ok(answer)
}

fn refusal(status: hyper::StatusCode) -> HttpResponse {
    HttpResponse::new(status, "text/plain; charset=utf-8", format!("{status}\n"))
}

/// Returns the bytes with which a server would answer the bytes of one connection. For tests, and for fuzzing.
///
/// # Panics
/// The process has no descriptors left.
#[expect(clippy::expect_used, reason = "for tests")]
pub fn answer_to_bytes(bytes: &[u8], limits: Limits, handler: &Arc<impl Handler>) -> Vec<u8> {
    let runtime = Builder::new_current_thread().enable_time().build().expect("no descriptors are left");
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(IN_MEMORY_BYTES);
        let mut answer = Vec::new();
        let exchange = async {
            // The server may close the connection before all is written.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let _ = client.read_to_end(&mut answer).await;
        };
        tokio::join!(exchange, connection(server, limits, Arc::clone(handler), true));
        answer
    })
}
