//! Whether a client still waits for its answer.
//!
//! A client that has closed the side that it sends on looks the same as one that is gone: the
//! stream ends. What tells them apart is the answer to something that is sent: a host whose client
//! is gone resets the connection. So something without meaning is sent to such a client now and
//! then. HTTP/1.0 has nothing without meaning in front of a whole answer: such an answer is made to
//! its end.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How often something is sent to a client whose sending has ended.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// In front of an answer: HTTP/1.1 lets a server say this any number of times.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Between events: a comment.
const COMMENT: &[u8] = b":\n\n";

/// A client that waits for an answer.
pub(super) struct Client {
    /// What is sent to see whether it is there. HTTP/1.0 has nothing for that.
    probe: Option<&'static [u8]>,
    probed: Option<Instant>,
}

impl Client {
    pub(super) fn new(knows_interim: bool) -> Self {
        Client { probe: knows_interim.then_some(INTERIM), probed: None }
    }

    /// Events have begun.
    pub(super) fn begin_events(&mut self) {
        self.probe = Some(COMMENT);
    }

    /// Whether the client is gone. There is nothing that it should send.
    pub(super) fn is_gone(&mut self, stream: &TcpStream) -> bool {
        let mut byte = [0];
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
        let is_ended = match peeked {
            Ok(count) => count == 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => return true,
        };
        // While it does not block, so that a client that does not read takes no time.
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
            // A part of it would spoil the answer; there is room for so little, or for nothing.
            Ok(count) => count != probe.len(),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}
