//! A connection as the server needs it: it does not wait for ever for a client that reads nothing,
//! and it does not throw away an answer that the client has yet to read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Longest time spent on reading what a refused client is still sending.
const LINGER: Duration = Duration::from_secs(2);

/// Set when a request's body was not read to its end. Shared between the body and its connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct Socket {
    stream: TcpStream,
    /// Longest time without a byte taken by the other end while there is something to send.
    stall_limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    unread: Unread,
    /// Our end is closed; until then what still comes is thrown away.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, stall_limit: Duration, unread: Unread) -> Socket {
        Socket { stream, stall_limit, stalled: None, unread, lingering: None }
    }

    fn watched<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.stall_limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watched(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watched(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes our end. Where something was left unread or is still to come, reads on for a moment:
    /// closing a socket with unread data makes the kernel send a reset, and that can take the answer
    /// (a 413, say) away from a client that is still sending.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Socket { stream, unread, lingering, .. } = &mut *self;
        if lingering.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let until = lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut discarded = [0; 8 * 1024];
        while until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut discarded);
            match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => (),
                Poll::Pending if unread.is_set() => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
