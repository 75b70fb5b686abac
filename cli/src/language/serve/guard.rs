//! Access control: API keys, host names, connection limits, and a limit for request bodies in
//! memory.

use super::http::{Refusal, Request};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum total size of all request bodies in memory, including [`BYTES_PER_FIELD`].
const MAX_BODIES: usize = 64 << 20;
/// Maximum number of fields and lists in the JSON of a request.
const MAX_FIELDS: usize = 1 << 16;
/// Bytes of memory that a field or list counts as, in addition to its text. A template gets it as
/// a value, which takes up to about twice as much.
const BYTES_PER_FIELD: usize = 512;
/// As above for each comma: for a number in a list.
const BYTES_PER_ITEM: usize = 128;

/// Access rules for requests.
pub(super) struct Guard {
    key: Option<String>,
    /// Whether only this machine can connect. Then requests of browsers are checked against
    /// cross-site and DNS rebinding attacks.
    is_local: bool,
    hosts: Vec<String>,
}

impl Guard {
    /// `hosts` are additional names of the server.
    pub(super) fn new(key: Option<String>, is_local: bool, hosts: Vec<String>) -> Self {
        Guard { key, is_local, hosts }
    }

    /// Whether anyone on the network has access.
    pub(super) fn is_open(&self) -> bool {
        !self.is_local && self.key.is_none()
    }

    /// Checks the head of a request, before its body is read.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let refuse = |status, message: String| Err(Some((status, message)));
        if self.is_local {
            // DNS rebinding: a page whose name now resolves to this machine still sends its own
            // name as host.
            if let Some(host) = request.host.as_deref().filter(|host| !self.knows(host)) {
                let message =
                    format!("the host '{host}' is not allowed: allow it with --allow-host");
                return refuse(403, message);
            }
            let authority =
                |origin: &str| origin.split_once("://").map(|(_, host)| host.to_owned());
            if let Some(origin) = &request.origin
                && authority(origin).is_none_or(|host| !self.knows(&host))
            {
                return refuse(403, format!("the origin '{origin}' is not allowed"));
            }
        }
        // Bodies share limited memory, so clients without a key may not send any.
        let is_open = matches!(request.path.as_str(), "/" | "/health") && request.length == 0;
        if !is_open && !self.has_key(request) {
            return refuse(401, "the API key is missing or wrong".into());
        }
        Ok(())
    }

    /// Whether a host name, with or without port, belongs to this server.
    fn knows(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        let is_this = name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        is_this || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether the request has the key; compares in constant time.
    fn has_key(&self, request: &Request) -> bool {
        let Some(key) = &self.key else { return true };
        let given = request.token.as_deref().unwrap_or_default();
        let differs = key.bytes().zip(given.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        key.len() == given.len() && differs == 0
    }
}

/// The unit of the limit: an IPv6 /64 network counts as one client. Loopback addresses are
/// exempt, because local programs can block the server anyway, and may be proxies.
pub(super) fn owner(address: Option<IpAddr>) -> Option<IpAddr> {
    match address?.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Some(Ipv6Addr::from_bits(network).into())
        }
        address => Some(address),
    }
}

/// Connections per address, so that one client cannot use them all.
pub(super) struct Shares {
    /// Maximum connections in total.
    pub(super) max_connections: usize,
    max_per_address: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Shares {
    /// By default, an address may use a quarter of all connections.
    pub(super) fn new(max_connections: usize, max_per_address: Option<usize>) -> Self {
        let max_per_address = max_per_address.unwrap_or(max_connections.div_ceil(4));
        Shares { max_connections, max_per_address, counts: Mutex::default() }
    }

    /// Counts a connection, which must be [released](Self::leave) later. Returns whether it is
    /// within its limit.
    pub(super) fn enter(&self, address: Option<IpAddr>) -> bool {
        let Some(owner) = owner(address) else { return true };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(owner).or_default();
        *count += 1;
        *count <= self.max_per_address
    }

    pub(super) fn leave(&self, address: Option<IpAddr>) {
        let Some(owner) = owner(address) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&owner);
            }
        }
    }
}

/// Memory in use by request bodies.
#[derive(Default)]
pub(super) struct Bodies(Arc<AtomicUsize>);

/// A reservation of memory, released on drop.
pub(super) struct Room(Arc<AtomicUsize>, usize);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Bodies {
    /// Reserves memory for the parsed form of a body.
    pub(super) fn admit_fields(&self, body: &[u8]) -> Result<Room, (u16, String)> {
        let (fields, items) = count_fields(body);
        let bytes = fields.saturating_mul(BYTES_PER_FIELD);
        let bytes = bytes.saturating_add(items.saturating_mul(BYTES_PER_ITEM));
        if fields > MAX_FIELDS || bytes > MAX_BODIES {
            let most = MAX_BODIES / BYTES_PER_ITEM;
            let message = format!(
                "the request has {fields} JSON fields and lists and {items} items, more than \
                 {MAX_FIELDS} or {most}"
            );
            return Err((400, message));
        }
        self.reserve(bytes)
    }

    /// Reserves memory for a body.
    pub(super) fn admit(&self, length: usize) -> Result<Room, Refusal> {
        self.reserve(length).map_err(Some)
    }

    fn reserve(&self, length: usize) -> Result<Room, (u16, String)> {
        let before = self.0.fetch_add(length, Ordering::Relaxed);
        let room = Room(self.0.clone(), length);
        match before.saturating_add(length) <= MAX_BODIES {
            true => Ok(room),
            false => Err((503, "too many request bytes are being received: try again".into())),
        }
    }
}

/// Number of fields, objects and lists in a JSON text, and of commas.
fn count_fields(text: &[u8]) -> (usize, usize) {
    let (mut count, mut items, mut is_quoted, mut is_escaped) = (0, 0, false, false);
    for byte in text {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b':' | b'[' | b'{' if !is_quoted => count += 1,
            b',' if !is_quoted => items += 1,
            _ => {}
        }
    }
    (count, items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_take_memory() {
        let text = r#"{"a": [1, 2, {"b:[{": "\"{[:"}], "c\\": {}}"#;
        assert_eq!(count_fields(text.as_bytes()), (7, 3));
        let bodies = Bodies::default();
        let half = "[]".repeat(MAX_BODIES / BYTES_PER_FIELD / 2);
        let rooms = [(); 2].map(|()| bodies.admit_fields(half.as_bytes()).unwrap());
        let status = |refused: Result<Room, (u16, String)>| refused.err().unwrap().0;
        assert_eq!(status(bodies.admit_fields(b"[]")), 503);
        drop(rooms);
        assert!(bodies.admit_fields(b"[]").is_ok());
        for many in ["[".repeat(MAX_FIELDS + 1), "1,".repeat(MAX_BODIES / BYTES_PER_ITEM + 1)] {
            assert_eq!(status(bodies.admit_fields(many.as_bytes())), 400);
        }
    }

    fn request(host: Option<&str>, origin: Option<&str>, token: Option<&str>) -> Request {
        Request {
            method: "POST".into(),
            path: "/v1/completions".into(),
            token: token.map(Into::into),
            host: host.map(Into::into),
            origin: origin.map(Into::into),
            knows_interim: true,
            length: 0,
            body: Vec::new(),
        }
    }

    #[test]
    fn open_servers_are_detected() {
        let is_open = |key: Option<&str>, is_local| {
            Guard::new(key.map(Into::into), is_local, Vec::new()).is_open()
        };
        assert!(is_open(None, false));
        assert!(!is_open(Some("key"), false) && !is_open(None, true));
    }

    fn status(guard: &Guard, request: &Request) -> u16 {
        guard.check(request).map_or_else(|refusal| refusal.unwrap().0, |()| 200)
    }

    #[test]
    fn foreign_origins_are_rejected_on_loopback() {
        let guard = Guard::new(None, true, vec!["chat.example".into()]);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "127.1.2.3",
            "[::1]:8080",
            "chat.example:443",
        ] {
            assert_eq!(status(&guard, &request(Some(host), None, None)), 200, "{host}");
            let origin = format!("http://{host}");
            assert_eq!(status(&guard, &request(Some(host), Some(&origin), None)), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "[",
        ] {
            assert_eq!(status(&guard, &request(Some(host), None, None)), 403, "{host}");
        }
        for origin in ["https://evil.example", "null", "localhost", "file://"] {
            let asked = request(Some("localhost"), Some(origin), None);
            assert_eq!(status(&guard, &asked), 403, "{origin}");
        }
        assert_eq!(status(&guard, &request(None, None, None)), 200);
        let open = Guard::new(None, false, Vec::new());
        assert_eq!(status(&open, &request(Some("evil.example"), None, None)), 200);
    }

    #[test]
    fn wrong_keys_are_rejected() {
        let guard = Guard::new(Some("secret".into()), false, Vec::new());
        for (token, expected) in [
            (None, 401),
            (Some("secrets"), 401),
            (Some("secre"), 401),
            (Some("Secret"), 401),
            (Some("secret"), 200),
        ] {
            assert_eq!(status(&guard, &request(None, None, token)), expected, "{token:?}");
        }
    }

    #[test]
    fn open_paths_accept_no_bodies() {
        let guard = Guard::new(Some("secret".into()), false, Vec::new());
        let open =
            |token, length| Request { path: "/".into(), length, ..request(None, None, token) };
        assert_eq!(status(&guard, &open(None, 0)), 200);
        assert_eq!(status(&guard, &open(None, 1)), 401);
        assert_eq!(status(&guard, &open(Some("secret"), 1)), 200);
    }

    #[test]
    fn connections_per_address_are_limited() {
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let shares = Shares::new(8, None);
        let one = address("192.0.2.1");
        assert!(shares.enter(one) && shares.enter(address("::ffff:192.0.2.1")));
        assert!(!shares.enter(one));
        assert!(shares.enter(address("192.0.2.2")));
        shares.leave(one);
        assert!(!shares.enter(one), "a rejected connection counts until it closes");
        (0..3).for_each(|_| shares.leave(one));
        assert!(shares.enter(one));
        // An IPv6 network is one client; this machine has no limit.
        assert!(shares.enter(address("2001:db8::1")) && shares.enter(address("2001:db8::2")));
        assert!(!shares.enter(address("2001:db8::3")) && shares.enter(address("2001:db8:0:1::")));
        assert!(
            (0..100).all(|_| shares.enter(address("127.0.0.1")) && shares.enter(address("::1")))
        );
        for address in [address("2001:db8::1"), address("192.0.2.1"), address("192.0.2.9")] {
            (0..5).for_each(|_| shares.leave(address));
        }
        let left = shares.counts.lock().unwrap().len();
        assert_eq!(left, 2, "one each of 192.0.2.2 and the other network");
        assert!(
            Shares::new(8, Some(3)).max_per_address == 3
                && Shares::new(1, None).max_per_address == 1
        );
    }

    #[test]
    fn total_size_of_bodies_is_limited() {
        let bodies = Bodies::default();
        let first = bodies.admit(MAX_BODIES - 1).unwrap();
        let second = bodies.admit(1).unwrap();
        assert_eq!(bodies.admit(1).err().unwrap().unwrap().0, 503);
        drop((first, second));
        assert!(bodies.admit(MAX_BODIES).is_ok());
        assert!(bodies.admit(usize::MAX).is_err());
    }
}
