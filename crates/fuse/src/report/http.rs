//! A small HTTP/1.1 server for reports: one thread, no keep-alive, everything bounded.
//!
//! | of | at most | beyond |
//! | --- | --- | --- |
//! | connections | [`CONNECTIONS_MAX`] | the oldest is closed |
//! | bytes of a request | [`REQUEST_MAX`] | 431 |
//! | time of a connection | [`PATIENCE`] | it is closed |
//! | work | each page is made at most every [`KEEP`] | the page of before |
//!
//! All sockets are non-blocking: a client that neither sends nor reads costs a table row until its
//! time is over, and never makes another wait. The oldest is closed and not the newest refused,
//! because an honest request is over within milliseconds, and whoever holds connections open would
//! otherwise keep the monitoring out.
//!
//! A server that is bound to a loopback address answers only requests for such a host: otherwise a
//! page of the web could read the metrics through a browser on this machine, by a name that it
//! resolves to 127.0.0.1.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most connections.
const CONNECTIONS_MAX: usize = 32;
/// Longest request.
const REQUEST_MAX: usize = 8 << 10;
/// Longest life of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a page is not made again.
const KEEP: Duration = Duration::from_millis(200);
/// Longest wait while there are connections, whose time may be over.
const TICK: Duration = Duration::from_millis(500);

/// The address a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket in the file system, for its owner alone.
    Unix(PathBuf),
}

impl Address {
    /// Parses `:9500` (on 127.0.0.1), `HOST:PORT`, or `unix:/PATH`.
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Address::Unix(path.into())),
                false => Err("unix: needs the absolute path of a socket".into()),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or("write :PORT, HOST:PORT or unix:/PATH")?;
        let port: u16 = port.parse().map_err(|_| format!("\"{port}\" is no port"))?;
        if host.is_empty() {
            return Ok(Address::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        let found = text.to_socket_addrs().map_err(|error| format!("host {host}: {error}"))?;
        let mut found = found.collect::<Vec<_>>().into_iter();
        found.next().map(Address::Tcp).ok_or_else(|| format!("host {host} has no address"))
    }

    fn is_loopback(&self) -> bool {
        matches!(self, Address::Tcp(address) if address.ip().is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}/"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($either:expr, $kind:ident, $it:ident => $do:expr) => {
        match $either {
            $kind::Tcp($it) => $do,
            $kind::Unix($it) => $do,
        }
    };
}

/// A server that listens already, and has not answered yet.
pub(crate) struct Server {
    listener: Listener,
    address: Address,
    /// Remove it at the end.
    socket: Option<PathBuf>,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// A line that names the address: it is in use, or not of this machine.
    pub(crate) fn bind(address: &Address) -> Result<Server, String> {
        let failed = |error: io::Error| {
            let reason = match error.kind() {
                ErrorKind::AddrInUse => "another program listens there: choose another".to_owned(),
                ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
                _ => error.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
            };
            format!("metrics address {address}: {reason}")
        };
        let (listener, socket) = match address {
            Address::Tcp(at) => {
                let listener = TcpListener::bind(at).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                (Listener::Tcp(listener), None)
            }
            Address::Unix(path) => {
                let listener = bind_unix(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                (Listener::Unix(listener), Some(path.clone()))
            }
        };
        // Port 0 has become another one.
        let address = match &listener {
            Listener::Tcp(it) => it.local_addr().map_or(address.clone(), Address::Tcp),
            Listener::Unix(_) => address.clone(),
        };
        Ok(Server { listener, address, socket })
    }

    /// Returns the address, with the port that was chosen.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Answers requests until the other end of `end` is closed.
    pub(crate) fn serve(&self, pages: &dyn Pages, end: &UnixStream) {
        let mut connections: Vec<Connection> = Vec::new();
        let mut kept = Kept::default();
        while !self.wait(&connections, end) {
            self.accept(&mut connections);
            let is_loopback = self.address.is_loopback();
            connections.retain_mut(|connection| {
                let mut answer = |request: &[u8]| answer(request, is_loopback, pages, &mut kept);
                connection.advance(&mut answer)
            });
        }
    }

    /// Waits until a connection can go on, or there is a new one. Returns whether the server is to
    /// end.
    fn wait(&self, connections: &[Connection], end: &UnixStream) -> bool {
        let listener: BorrowedFd<'_> = either!(&self.listener, Listener, it => it.as_fd());
        let mut polled = vec![
            PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener, PollFlags::IN),
        ];
        for connection in connections {
            let wanted = if connection.is_answered { PollFlags::OUT } else { PollFlags::IN };
            let fd = either!(&connection.stream, Stream, it => it.as_fd());
            polled.push(PollFd::from_borrowed_fd(fd, wanted));
        }
        let tick = Timespec::try_from(TICK).ok().filter(|_| !connections.is_empty());
        // Interrupted, or not: everything is tried.
        let _ = poll(&mut polled, tick.as_ref());
        !polled[0].revents().is_empty()
    }

    fn accept(&self, connections: &mut Vec<Connection>) {
        // Not for ever: others wait.
        for _ in 0..CONNECTIONS_MAX {
            let accepted = match &self.listener {
                Listener::Tcp(it) => it.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(true).map(|()| Stream::Tcp(stream))
                }),
                Listener::Unix(it) => it.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(true).map(|()| Stream::Unix(stream))
                }),
            };
            let Ok(stream) = accepted else { return };
            if connections.len() == CONNECTIONS_MAX {
                connections.remove(0);
            }
            connections.push(Connection::new(stream));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens on a path. A socket there that nobody listens on is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // The moment in between is harmless where others may not write to the directory.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A page.
#[derive(Clone)]
pub(crate) struct Body {
    /// Media type.
    pub content_type: &'static str,
    /// Content.
    pub bytes: Arc<[u8]>,
}

/// The pages of a server.
pub(crate) trait Pages {
    /// Returns the key of the page with a path, which may depend on the media types that the client
    /// accepts. `None`: there is none.
    fn find(&self, path: &str, accept: &str) -> Option<&'static str>;
    /// Makes a page.
    fn make(&self, key: &'static str) -> Body;
}

/// Pages that were made a moment ago.
#[derive(Default)]
struct Kept(HashMap<&'static str, (Instant, Body)>);

impl Kept {
    fn get(&mut self, pages: &dyn Pages, key: &'static str) -> Body {
        if let Some((made, body)) = self.0.get(key)
            && made.elapsed() < KEEP
        {
            return body.clone();
        }
        let body = pages.make(key);
        self.0.insert(key, (Instant::now(), body.clone()));
        body
    }
}

/// A response: head, then body.
struct Response {
    head: Vec<u8>,
    body: Arc<[u8]>,
}

struct Connection {
    stream: Stream,
    begun: Instant,
    request: Vec<u8>,
    is_answered: bool,
    head: Vec<u8>,
    body: Arc<[u8]>,
    /// Bytes of the response that are sent.
    sent: usize,
}

impl Connection {
    fn new(stream: Stream) -> Connection {
        let (head, body) = (Vec::new(), Arc::from([]));
        let (begun, request) = (Instant::now(), Vec::new());
        Connection { stream, begun, request, is_answered: false, head, body, sent: 0 }
    }

    /// Reads, answers and writes as much as is possible now. Returns whether the connection goes
    /// on.
    fn advance(&mut self, answer: &mut dyn FnMut(&[u8]) -> Response) -> bool {
        if self.begun.elapsed() > PATIENCE {
            return false;
        }
        let goes_on = if self.is_answered { Ok(true) } else { self.read(answer) };
        match goes_on {
            Ok(true) if self.is_answered => self.write().unwrap_or(false),
            goes_on => goes_on.unwrap_or(false),
        }
    }

    fn read(&mut self, answer: &mut dyn FnMut(&[u8]) -> Response) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        // As many as a request can have, so that no client keeps the thread.
        for _ in 0..=REQUEST_MAX / buffer.len() {
            match either!(&mut self.stream, Stream, it => it.read(&mut buffer)) {
                Ok(0) => return Ok(false),
                Ok(n) => self.request.extend_from_slice(&buffer[..n]),
                Err(error) if is_later(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            let end = self.request.windows(4).position(|window| window == b"\r\n\r\n");
            let response = match end {
                Some(end) if end <= REQUEST_MAX => answer(&self.request[..end]),
                _ if self.request.len() > REQUEST_MAX => {
                    error("431 Request Header Fields Too Large")
                }
                _ => continue,
            };
            (self.head, self.body, self.is_answered) = (response.head, response.body, true);
            return Ok(true);
        }
        Ok(true)
    }

    /// Returns whether there is more to send.
    fn write(&mut self) -> io::Result<bool> {
        loop {
            let rest = match self.sent.checked_sub(self.head.len()) {
                None => &self.head[self.sent..],
                Some(sent) => &self.body[sent..],
            };
            if rest.is_empty() {
                return Ok(false);
            }
            match either!(&mut self.stream, Stream, it => it.write(rest)) {
                Ok(0) => return Ok(false),
                Ok(n) => self.sent += n,
                Err(error) if is_later(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Answers a request, without the empty line at its end.
fn answer(request: &[u8], is_loopback: bool, pages: &dyn Pages, kept: &mut Kept) -> Response {
    let Ok(text) = std::str::from_utf8(request) else { return error("400 Bad Request") };
    let mut lines = text.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return error("400 Bad Request") };
    if !version.starts_with("HTTP/1.") {
        return error("505 HTTP Version Not Supported");
    }
    let header = |wanted: &str| {
        let mut fields = lines.clone().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    if is_loopback && !header("host").is_none_or(is_loopback_host) {
        return error("403 Forbidden");
    }
    if !matches!(method, "GET" | "HEAD") {
        return error("405 Method Not Allowed");
    }
    let path = target.split('?').next().unwrap_or_default();
    let Some(key) = pages.find(path, header("accept").unwrap_or_default()) else {
        return error("404 Not Found");
    };
    let Body { content_type, bytes } = kept.get(pages, key);
    let head = head("200 OK", content_type, bytes.len());
    match method {
        "HEAD" => Response { head, body: Arc::from([]) },
        _ => Response { head, body: bytes },
    }
}

/// Returns whether a Host field names this machine by a loopback address.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn head(status: &str, content_type: &str, len: usize) -> Vec<u8> {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; img-src data:; frame-ancestors 'none'";
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: {policy}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

fn error(status: &str) -> Response {
    let body: Arc<[u8]> = format!("{status}\n").into_bytes().into();
    Response { head: head(status, "text/plain; charset=utf-8", body.len()), body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[derive(Default)]
    struct Two(AtomicUsize);

    impl Pages for Two {
        fn find(&self, path: &str, accept: &str) -> Option<&'static str> {
            match path {
                "/" => Some("top"),
                "/large" => Some("large"),
                "/kind" if accept == "this" => Some("this"),
                _ => None,
            }
        }
        fn make(&self, key: &'static str) -> Body {
            self.0.fetch_add(1, Ordering::Relaxed);
            let text = if key == "large" { "x".repeat(8 << 20) } else { key.to_owned() };
            Body { content_type: "text/plain", bytes: text.into_bytes().into() }
        }
    }

    /// A server that ends with this.
    struct Running {
        address: SocketAddr,
        end: Option<UnixStream>,
        thread: Option<thread::JoinHandle<usize>>,
    }

    impl Running {
        fn start() -> Running {
            let server = Server::bind(&Address::parse(":0").unwrap()).unwrap();
            let Address::Tcp(address) = *server.address() else { panic!() };
            let (end, other) = UnixStream::pair().unwrap();
            let thread = thread::spawn(move || {
                let pages = Two::default();
                server.serve(&pages, &other);
                pages.0.into_inner()
            });
            Running { address, end: Some(end), thread: Some(thread) }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        }

        fn ask(&self, request: &str) -> String {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = Vec::new();
            // A refusal may come before everything is read, and closes the connection.
            let _ = stream.read_to_end(&mut text);
            String::from_utf8(text).unwrap()
        }

        /// Returns how many pages were made.
        fn end(mut self) -> usize {
            drop(self.end.take());
            self.thread.take().unwrap().join().unwrap()
        }
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let server = Running::start();
        let good = server.ask("GET / HTTP/1.1\r\nHost: localhost:9\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\ntop"), "{good}");
        assert!(good.contains("Content-Length: 3\r\n") && good.contains("Connection: close\r\n"));
        let head = server.ask("HEAD /?a=b HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let kind = server.ask("GET /kind HTTP/1.1\r\naccept:this\r\nHost: [::1]:5\r\n\r\n");
        assert!(kind.ends_with("this"), "{kind}");
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(REQUEST_MAX));
        for (request, status) in [
            ("GET /none HTTP/1.1\r\n\r\n", "404"),
            ("POST / HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/2\r\n\r\n", "505"),
            ("GET /\r\n\r\n", "400"),
            ("\u{1}\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: evil.example:9500\r\n\r\n", "403"),
            ("GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "403"),
            (&long, "431"),
        ] {
            let answer = server.ask(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        assert!(server.end() <= 4, "pages are kept for a moment");
    }

    /// Connections that send nothing, send slowly, or read nothing: more than there may be, and
    /// others are answered at once all the same.
    #[test]
    fn nobody_keeps_the_server_busy() {
        let server = Running::start();
        let mut idle: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(|_| server.connect()).collect();
        for stream in idle.iter_mut().skip(2 * CONNECTIONS_MAX) {
            let _ = stream.write_all(b"GET /large HTTP/1.1\r\n");
        }
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(server.ask("GET / HTTP/1.1\r\n\r\n").ends_with("top"));
        }
        let deaf: Vec<TcpStream> = (0..CONNECTIONS_MAX / 2)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(b"GET /large HTTP/1.1\r\n\r\n").unwrap();
                stream
            })
            .collect();
        for _ in 0..20 {
            assert!(server.ask("GET / HTTP/1.1\r\n\r\n").ends_with("top"));
        }
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        // A patient reader gets all of it.
        assert!(server.ask("GET /large HTTP/1.1\r\n\r\n").len() > 8 << 20);
        // Those that were given up are closed already, long before their time is over.
        let (asked, mut closed) = (Instant::now(), 0);
        for stream in &mut idle[..CONNECTIONS_MAX] {
            closed += usize::from(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
        }
        assert_eq!(closed, CONNECTIONS_MAX);
        assert!(asked.elapsed() < PATIENCE / 5, "{:?}", asked.elapsed());
        drop(deaf);
        server.end();
    }

    #[test]
    fn an_address_is_used_once_and_sockets_are_replaced() {
        let first = Server::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
        let error = Server::bind(first.address()).err().unwrap();
        assert!(error.contains("another program listens there"), "{error}");
        let error = Server::bind(&Address::parse("192.0.2.1:9500").unwrap()).err().unwrap();
        assert!(error.contains("no such address"), "{error}");
        let path = std::env::temp_dir().join(format!("shoal-http-{}", std::process::id()));
        let address = Address::parse(&format!("unix:{}", path.display())).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let server = Server::bind(&address).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let error = Server::bind(&address).err().unwrap();
        assert!(error.contains("another program listens there"), "{error}");
        drop(server);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Server::bind(&address).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn addresses() {
        let shown = |text: &str| Address::parse(text).map(|address| address.to_string());
        assert_eq!(shown(":9500").unwrap(), "http://127.0.0.1:9500/");
        assert_eq!(shown("[::1]:80").unwrap(), "http://[::1]:80/");
        assert_eq!(shown("0.0.0.0:1").unwrap(), "http://0.0.0.0:1/");
        assert_eq!(shown("unix:/run/s").unwrap(), "unix:/run/s");
        for bad in ["", "9500", ":x", ":70000", "unix:s", "unix:"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
        assert!(Address::parse("[::1]:80").unwrap().is_loopback());
        assert!(!Address::parse("0.0.0.0:80").unwrap().is_loopback());
    }
}
