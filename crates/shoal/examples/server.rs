//! A server on a volume: GET, PUT and DELETE by path over HTTP, with a pool of threads and the
//! credentials of each connection's user.
//!
//! ```sh
//! cargo run -p shoal --example server [[--connect] VOLUME [ADDRESS]]
//! ```
//!
//! With an address (`127.0.0.1:8080`) it serves until it is killed; without, it sends itself some
//! requests, checks the answers and ends. It listens without encryption and its tokens are written
//! here: it shows how to embed a volume, not how to guard one.
//!
//! A [`Volume`] is shared by all threads. For each connection a [`Dir`] is made with the
//! credentials of its user; all that is below it is checked against them, by the same rules as on a
//! mount.

mod common;

use shoal::{Credentials, Dir, Volume};
use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const THREADS: usize = 4;
/// Largest body that is taken, in bytes; it is held in memory.
const BODY_MAX: usize = 16 << 20;
/// Longest request line and header, in bytes.
const HEAD_MAX: u64 = 16 << 10;
/// Users by their token, with their numbers. A real server has them in a database.
const USERS: [(&str, u32); 2] = [("token-of-ada", 1001), ("token-of-bob", 1002)];

struct Request {
    method: String,
    path: String,
    who: Credentials,
    body: Vec<u8>,
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Reads a request of HTTP/1.1. Without a valid token its user is nobody, 65534.
fn read_request(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    let mut limited = reader.by_ref().take(HEAD_MAX);
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 {
            return Err(invalid("the head of the request is cut off, or too long"));
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut words = head.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let header = |wanted: &str| {
        let fields = head.iter().skip(1).filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        values.next().map(|(_, value)| value.trim())
    };
    let token = header("Authorization").and_then(|value| value.strip_prefix("Bearer "));
    let user = USERS.iter().find(|(known, _)| Some(*known) == token).map_or(65534, |(_, uid)| *uid);
    let length = header("Content-Length").unwrap_or("0");
    let length = length.parse().map_err(|_| invalid("Content-Length is no number"))?;
    if length > BODY_MAX {
        return Err(invalid("the body is too long"));
    }
    let mut body = vec![0; length];
    let (method, path) = (method.to_owned(), path.trim_start_matches('/').to_owned());
    let who = Credentials::user(user, user).umask(0o027);
    reader.read_exact(&mut body)?;
    Ok(Request { method, path, who, body })
}

/// Does what a request asks for. Returns the body of the answer.
fn serve(volume: &Volume, request: Request) -> shoal::Result<Option<Vec<u8>>> {
    let Request { method, path, who, body } = request;
    // Paths never lead out of this directory, whatever is in them: "..", symlinks.
    let root: Dir = volume.root(who).open_dir("www")?;
    match method.as_str() {
        "GET" => return root.read(&path).map(Some),
        // One transaction: a reader gets all of the old file, or all of the new one.
        "PUT" => root.batch(|batch| batch.write(&path, body))?,
        "DELETE" => root.remove_file(&path)?,
        _ => return Ok(None),
    }
    Ok(Some(Vec::new()))
}

/// The status for an error: its kind says what a client can do about it.
fn status(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "404 Not Found",
        ErrorKind::PermissionDenied | ErrorKind::CrossesDevices => "403 Forbidden",
        ErrorKind::IsADirectory | ErrorKind::AlreadyExists => "409 Conflict",
        ErrorKind::InvalidFilename | ErrorKind::InvalidInput => "400 Bad Request",
        ErrorKind::StorageFull => "507 Insufficient Storage",
        ErrorKind::ReadOnlyFilesystem => "503 Service Unavailable",
        _ => "500 Internal Server Error",
    }
}

/// Answers one connection. A broken connection is its client's problem alone.
fn answer(volume: &Volume, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (status, body) = match read_request(&stream) {
        Err(e) if e.kind() == ErrorKind::InvalidData => ("400 Bad Request", e.to_string().into()),
        Err(e) => return Err(e),
        Ok(request) => match serve(volume, request) {
            Ok(Some(body)) => ("200 OK", body),
            Ok(None) => ("405 Method Not Allowed", Vec::new()),
            Err(e) => (status(e.kind()), format!("{e}\n").into_bytes()),
        },
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)
}

/// The threads that answer connections. Dropping it waits until all that were accepted have their
/// answer.
struct Pool {
    queue: Option<mpsc::SyncSender<TcpStream>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    fn start(volume: &Volume) -> Pool {
        // Bounded: when all are busy, clients wait in the queue of the socket.
        let (queue, taken) = mpsc::sync_channel::<TcpStream>(64);
        let taken = Arc::new(Mutex::new(taken));
        let run = |volume: Volume, taken: Arc<Mutex<mpsc::Receiver<TcpStream>>>| {
            move || loop {
                let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(stream) = next else { return };
                if let Err(error) = answer(&volume, stream) {
                    eprintln!("connection: {error}");
                }
            }
        };
        let threads = (0..THREADS).map(|_| thread::spawn(run(volume.clone(), taken.clone())));
        Pool { threads: threads.collect(), queue: Some(queue) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Hands connections to the pool until `stop` is set, which the next connection finds.
fn listen(listener: &TcpListener, pool: &Pool, stop: &AtomicBool) -> io::Result<()> {
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        if let Some(queue) = &pool.queue {
            queue.send(stream?).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Asks a server. Returns the number of its status, and the body.
fn ask(to: SocketAddr, token: &str, what: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(to)?;
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(invalid("no head"))?;
    let status = std::str::from_utf8(&answer[9..12]).ok().and_then(|text| text.parse().ok());
    Ok((status.ok_or(invalid("no status"))?, answer.split_off(end + 4)))
}

/// Asks for two users, at times at once, and checks the answers. Returns the number of requests.
fn questions(to: SocketAddr) -> io::Result<usize> {
    let [(ada, _), (bob, _)] = USERS;
    assert_eq!(ask(to, ada, "PUT /ada/page", b"hello")?.0, 200);
    assert_eq!(ask(to, ada, "GET /ada/page", b"")?, (200, b"hello".to_vec()));
    // The umask takes the permission to read from all others: bob is told no, and nobody too.
    assert_eq!(ask(to, bob, "GET /ada/page", b"")?.0, 403);
    assert_eq!(ask(to, "guessed", "GET /ada/page", b"")?.0, 403);
    let (status, why) = ask(to, bob, "PUT /ada/page", b"mine")?;
    assert_eq!(status, 403);
    println!("{}", String::from_utf8_lossy(&why).trim_end());
    assert_eq!(ask(to, ada, "GET /../secret", b"")?.0, 403, "no way out of the directory");
    assert_eq!(ask(to, ada, "GET /ada/none", b"")?.0, 404);
    assert_eq!(ask(to, ada, "PATCH /ada/page", b"")?.0, 405);

    // One writes new versions while another reads: no version is half of one.
    let reader = thread::spawn(move || -> io::Result<()> {
        for _ in 0..40 {
            let (status, body) = ask(to, bob, "GET /bob/shared", b"")?;
            assert!(status == 404 || (body.len() == 100_000 && body.iter().all(|b| *b == body[0])));
        }
        Ok(())
    });
    for version in 0..40 {
        assert_eq!(ask(to, bob, "PUT /bob/shared", &vec![version; 100_000])?.0, 200);
    }
    reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    assert_eq!(ask(to, bob, "DELETE /bob/shared", b"")?.0, 200);
    assert_eq!(ask(to, bob, "GET /bob/shared", b"")?.0, 404);
    Ok(8 + 80 + 2)
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = common::Place::from_arguments("server");
    let volume = place.open()?;
    // The superuser of the volume makes a directory for each user.
    let top = volume.root(Credentials::root());
    top.create_dir_all("www")?;
    top.write("secret", b"not for the web")?;
    for (user, (_, uid)) in ["ada", "bob"].into_iter().zip(USERS) {
        let home = format!("www/{user}");
        top.create_dir_all(&home)?;
        top.set_owner(&home, Some(uid), Some(uid))?;
    }

    let address = place.arguments.first().map_or("127.0.0.1:0", String::as_str);
    let listener = TcpListener::bind(address)?;
    let to = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let (pool, stop) = (Pool::start(&volume), stop.clone());
        move || listen(&listener, &pool, &stop)
    });
    if place.arguments.is_empty() {
        let asked = thread::spawn(move || questions(to)).join();
        stop.store(true, Ordering::Release);
        drop(TcpStream::connect(to)?);
        println!("{} requests", asked.map_err(|_| "an answer was wrong")??);
    } else {
        println!("listening on {to}");
    }
    server.join().map_err(|_| "the server panicked")??;

    assert_eq!(top.read("www/ada/page")?, b"hello");
    drop(top);
    volume.close()?; // no thread has it open any more
    Ok(())
}
