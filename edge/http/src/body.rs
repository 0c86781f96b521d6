//! The bodies of requests and responses, between the asynchronous connection and blocking handlers.

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The most parts of a body that wait for the other side.
const WAITING_PARTS_MAX: usize = 8;

/// The body of a request, which is read like a file. The reader waits for the client.
#[derive(Debug)]
pub struct RequestBody {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    part: Bytes,
    /// The length that the client has announced, in bytes; `None` if it has not.
    pub length: Option<u64>,
}

impl RequestBody {
    /// Creates a body and the sender of its parts.
    pub(crate) fn new(length: Option<u64>) -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, parts) = mpsc::channel(WAITING_PARTS_MAX);
        (sender, Self { parts, part: Bytes::new(), length })
    }

    /// Reads the whole body, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The body is longer ([`io::ErrorKind::FileTooLarge`]), or the connection failed.
    pub fn read_whole(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }
}

impl Read for RequestBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let count = self.part.len().min(buffer.len());
        let part = self.part.split_to(count);
        if let Some(room) = buffer.get_mut(..count) {
            room.copy_from_slice(&part);
        }
        Ok(count)
    }
}

/// Passes the parts of a request's body on until its end, or until the handler does not need more.
pub(crate) async fn pass_on(mut body: hyper::body::Incoming, sender: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(frame) = body.frame().await {
        let part = match frame.map(Frame::into_data) {
            Ok(Ok(part)) => Ok(part),
            // Trailers are of no use here.
            Ok(Err(_)) => continue,
            Err(error) => Err(io::Error::other(error)),
        };
        let is_last = part.is_err();
        if sender.send(part).await.is_err() || is_last {
            return;
        }
    }
}

/// The body of a response.
#[derive(Debug)]
pub enum ResponseBody {
    /// The whole body.
    Whole(Bytes),
    /// Parts that come from a [`Sink`].
    Stream(PartStream),
}

impl ResponseBody {
    pub(crate) fn boxed(self) -> UnsyncBoxBody<Bytes, Infallible> {
        match self {
            Self::Whole(bytes) => Full::new(bytes).boxed_unsync(),
            Self::Stream(parts) => parts.boxed_unsync(),
        }
    }
}

/// The parts of a streamed response.
#[derive(Debug)]
pub struct PartStream(mpsc::Receiver<Bytes>);

impl Body for PartStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The client has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The sender of a streamed response. The response ends when this value is dropped.
#[derive(Clone, Debug)]
pub struct Sink(mpsc::Sender<Bytes>);

impl Sink {
    /// Sends a part, and waits while the client is slower. Must not be called from asynchronous code.
    ///
    /// # Errors
    /// The client has gone.
    pub fn send(&self, part: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.blocking_send(part.into()).map_err(|_| Gone)
    }

    /// Sends a part if the client has taken enough of the earlier parts. Returns false if the part was not sent.
    ///
    /// # Errors
    /// The client has gone.
    pub fn offer(&self, part: impl Into<Bytes>) -> Result<bool, Gone> {
        match self.0.try_send(part.into()) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Returns true if the client has closed the connection.
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// Creates a streamed body and its sender.
pub(crate) fn stream() -> (Sink, ResponseBody) {
    let (sender, receiver) = mpsc::channel(WAITING_PARTS_MAX);
    (Sink(sender), ResponseBody::Stream(PartStream(receiver)))
}
