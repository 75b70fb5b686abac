//! A minimal HTTP/1.1 server: one request per connection, bodies with content length, and a
//! deadline for each request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MAX_HEAD: usize = 16 << 10;
const MAX_BODY: usize = 4 << 20;
/// Time limit for receiving a request, and for a blocked write.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// From `Authorization: Bearer`.
    pub(super) token: Option<String>,
    /// The `Host` header.
    pub(super) host: Option<String>,
    /// The `Origin` header, which browsers send.
    pub(super) origin: Option<String>,
    /// Whether the client supports interim responses (HTTP/1.1).
    pub(super) knows_interim: bool,
    /// Length of the body in bytes.
    pub(super) length: usize,
    pub(super) body: Vec<u8>,
}

/// Why a request is refused: status and message; `None` if the connection is closed.
pub(super) type Refusal = Option<(u16, String)>;

/// The head of a request.
struct Head {
    request: Request,
    expects: bool,
}

/// Reads a request within size and time limits. The body is read only after `check` accepts the
/// head. Returns the request with the result of `check`.
pub(super) fn read<T>(
    stream: &mut TcpStream,
    check: impl FnOnce(&Request) -> Result<T, Refusal>,
) -> Result<(Request, T), Refusal> {
    let deadline = Instant::now() + PATIENCE;
    // A client that does not read for this long is treated as gone.
    stream.set_write_timeout(Some(PATIENCE)).map_err(|_| None)?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD {
            return refuse(431, format!("the request head exceeds {MAX_HEAD} bytes"));
        }
        more(stream, &mut bytes, deadline)?;
    };
    let head = parse(&bytes[..end])?;
    let passed = check(&head.request)?;
    let whole = end + 4 + head.request.length;
    if head.expects && bytes.len() < whole {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| None)?;
    }
    while bytes.len() < whole {
        more(stream, &mut bytes, deadline)?;
    }
    bytes.truncate(whole);
    Ok((Request { body: bytes.split_off(end + 4), ..head.request }, passed))
}

fn refuse<T>(status: u16, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Some((status, message.into())))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Appends the next available bytes of the stream.
fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>, deadline: Instant) -> Result<(), Refusal> {
    let left = deadline.saturating_duration_since(Instant::now());
    let late = || Some((408, "timeout while receiving the request".to_owned()));
    if left.is_zero() {
        return Err(late());
    }
    stream.set_read_timeout(Some(left)).map_err(|_| None)?;
    let mut buffer = [0; 8 << 10];
    match stream.read(&mut buffer) {
        Ok(0) => Err(None),
        Ok(count) => {
            bytes.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(late())
        }
        Err(_) => Err(None),
    }
}

fn parse(head: &[u8]) -> Result<Head, Refusal> {
    let Ok(head) = std::str::from_utf8(head) else {
        return refuse(400, "the request head is not UTF-8");
    };
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (first.next(), first.next(), first.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, first.next())
    else {
        return refuse(400, "the request line should be a method, a path and HTTP/1.1");
    };
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let (mut token, mut length, mut expects) = (None, None, false);
    let (mut host, mut origin) = (None, None);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return refuse(400, "a header line has no colon");
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let count =
                    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse::<usize>());
                match count {
                    Some(Ok(count))
                        if count <= MAX_BODY && length.is_none_or(|other| other == count) =>
                    {
                        length = Some(count);
                    }
                    Some(Ok(count)) if count > MAX_BODY => {
                        return refuse(
                            413,
                            format!("the body has {count} bytes, at most {MAX_BODY} are allowed"),
                        );
                    }
                    _ => return refuse(400, format!("invalid content-length '{value}'")),
                }
            }
            "transfer-encoding" => {
                return refuse(411, "chunked bodies are not supported: send a content-length");
            }
            "authorization" => {
                let (scheme, given) = value.split_once(' ').unwrap_or_default();
                let is_bearer = scheme.eq_ignore_ascii_case("bearer");
                token = is_bearer.then(|| given.trim().to_owned());
            }
            "host" if host.is_some() => return refuse(400, "duplicate host header"),
            "host" => host = Some(value.to_owned()),
            "origin" => origin = Some(value.to_owned()),
            "expect" => expects = value.eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
    }
    let (method, length, body) = (method.into(), length.unwrap_or(0), Vec::new());
    let knows_interim = version == Some("HTTP/1.1");
    let request = Request { method, path, token, host, origin, knows_interim, length, body };
    Ok(Head { request, expects })
}

/// Decodes percent-encoding in a path.
pub(super) fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let code =
            behind.get(..2).filter(|code| first == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let code =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        rest = if code.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
        bytes.push(code.unwrap_or(first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

fn head(status: u16, kind: &str) -> String {
    // Generations last seconds; clients back off by themselves.
    let again = if [429, 503].contains(&status) { "retry-after: 1\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\nconnection: close\r\n\
         cache-control: no-store\r\nx-content-type-options: nosniff\r\n{again}",
        reason(status)
    )
}

/// Writes a complete response.
pub(super) fn respond(
    stream: &mut TcpStream,
    status: u16,
    kind: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let head = format!("{}content-length: {}\r\n\r\n", head(status, kind), body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Reads and discards the rest of a refused request: a client whose sending fails might not read
/// the response.
pub(super) fn drain(stream: &mut TcpStream) {
    let deadline = Instant::now() + Duration::from_secs(2);
    let (mut bytes, mut left) = (Vec::new(), 8 * MAX_BODY);
    while left > 0 && more(stream, &mut bytes, deadline).is_ok() {
        left = left.saturating_sub(bytes.len());
        bytes.clear();
    }
}

/// Begins a response of server-sent events, which lasts until the connection is closed.
pub(super) fn begin_events(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(format!("{}\r\n", head(200, "text/event-stream")).as_bytes())?;
    stream.flush()
}

/// Writes a server-sent event.
pub(super) fn event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    stream.write_all(format!("data: {data}\n\n").as_bytes())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        parse(head.as_bytes()).map_or_else(|refusal| refusal.unwrap().0, |_| 200)
    }

    #[test]
    fn heads_are_read() {
        let head = parse(b"POST /v1/x?a=b HTTP/1.1\r\nContent-Length: 12\r\nAUTHORIZATION: Bearer abc \r\nExpect: 100-continue").unwrap();
        assert_eq!((head.request.length, head.expects), (12, true));
        assert_eq!((head.request.method.as_str(), head.request.path.as_str()), ("POST", "/v1/x"));
        assert_eq!(head.request.token.as_deref(), Some("abc"));
        for (value, token) in [("bearer a", Some("a")), ("Basic a", None), ("Bearer", None)] {
            let head = parse(format!("GET / HTTP/1.1\r\nauthorization: {value}").as_bytes());
            assert_eq!(head.unwrap().request.token.as_deref(), token);
        }
    }

    #[test]
    fn a_full_queue_is_tried_again() {
        for status in [429, 503] {
            assert!(super::head(status, "text/plain").contains("\r\nretry-after: 1\r\n"));
        }
        assert!(!super::head(200, "text/plain").contains("retry-after"));
    }

    #[test]
    fn names_in_paths_are_read() {
        for (text, expected) in [
            ("a-b.c", "a-b.c"),
            ("a%20b%2Fc%3a1", "a b/c:1"),
            ("%", "%"),
            ("%2", "%2"),
            ("%+1%zz", "%+1%zz"),
        ] {
            assert_eq!(decoded(text), expected);
        }
    }

    #[test]
    fn hosts_are_read() {
        let head = parse(b"GET / HTTP/1.1\r\nhost: [::1]:80\r\nOrigin: http://a.b:1").unwrap();
        assert_eq!(head.request.host.as_deref(), Some("[::1]:80"));
        assert_eq!(head.request.origin.as_deref(), Some("http://a.b:1"));
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\nhost: b"), 400);
    }

    #[test]
    fn odd_heads_are_refused() {
        assert_eq!(status("GET / HTTP/1.1"), 200);
        assert_eq!(status("GET /"), 400);
        assert_eq!(status("GET / HTTP/2"), 400);
        assert_eq!(status("GET / HTTP/1.1 x"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nx"), 400);
        for length in ["-1", "+1", "a", "", "1, 1", "99999999999999999999999"] {
            assert_eq!(
                status(&format!("POST / HTTP/1.1\r\ncontent-length: {length}")),
                400,
                "{length}"
            );
        }
        assert_eq!(status("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2"), 400);
        assert_eq!(status("POST / HTTP/1.1\r\ncontent-length: 99999999"), 413);
        assert_eq!(status("POST / HTTP/1.1\r\ntransfer-encoding: chunked"), 411);
    }
}
