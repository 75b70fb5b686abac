//! Detects disconnected clients.
//!
//! A client that has shut down its sending side looks like one that is gone: the stream ends. Only
//! sending tells them apart, because the host of a client that is gone resets the connection. So a
//! probe without meaning is sent at intervals. HTTP/1.0 has no such probe before a complete
//! response; there, the response is computed to its end.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Interval of probes after the client's end of the stream is reached.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Probe before a response: HTTP/1.1 allows any number of interim responses.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Probe between server-sent events: a comment.
const COMMENT: &[u8] = b":\n\n";

/// State of a client that waits for a response.
pub(super) struct Client {
    /// The probe; `None` for HTTP/1.0.
    probe: Option<&'static [u8]>,
    probed: Option<Instant>,
}

impl Client {
    pub(super) fn new(knows_interim: bool) -> Self {
        Client { probe: knows_interim.then_some(INTERIM), probed: None }
    }

    /// Switches to probes for server-sent events.
    pub(super) fn begin_events(&mut self) {
        self.probe = Some(COMMENT);
    }

    /// Whether the client is gone. The client has nothing more to send.
    pub(super) fn is_gone(&mut self, stream: &TcpStream) -> bool {
        let mut byte = [0];
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
        let is_ended = match peeked {
            Ok(count) => count == 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => return true,
        };
        // Non-blocking, so that a client that does not read does not block the thread.
        let is_reset = is_ended && (self.is_reset(stream));
        stream.set_nonblocking(false).is_err() || is_reset
    }

    fn is_reset(&mut self, stream: &TcpStream) -> bool {
        if !matches!(stream.take_error(), Ok(None)) {
            return true;
        }
        let Some(probe) = self.probe else { return false };
        if self.probed.is_some_and(|probed| probed.elapsed() < PROBE_EVERY) {
            return false;
        }
        self.probed = Some(Instant::now());
        let mut stream = stream;
        match stream.write(probe) {
            // A partial write would corrupt the response; a buffer without room for it means a
            // stalled client.
            Ok(count) => count != probe.len(),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}
