//! A store that speaks as much of S3 as Shoal uses, in memory, with weather.
//!
//! It keeps the condition `If-None-Match: *`, ranges, lists, and the access key, and says the time
//! and whether it has versions. What a test wants to go wrong it decides for each request
//! ([`Server::set_weather`]).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::SystemTime;

/// The access key that is accepted at first.
pub const KEY: &str = "test-key";

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weather {
    /// It is carried out.
    Fair,
    /// It is refused with this status, code and further header lines (each with its end).
    Answer(u16, &'static str, &'static str),
    /// Nobody answers, until the weather changes; then it is carried out.
    Hang,
    /// It is carried out, and the connection is closed before the answer.
    Lost,
    /// It is carried out; an object that is read has only so many bytes.
    Short(usize),
    /// It is carried out without its condition.
    Unconditional,
}

/// A request, as far as weather depends on it.
#[derive(Debug)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Name of the object, without the bucket; of a list the prefix.
    pub key: String,
    /// It is a list.
    pub is_list: bool,
    /// It asks for the state of versioning.
    pub is_versioning: bool,
}

type Decide = Box<dyn FnMut(&Request) -> Weather + Send>;

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    decide: Decide,
    /// Changes of the weather.
    changes: u64,
    key: String,
    /// Most bytes of all objects.
    quota: u64,
    /// The state of versioning; empty: it was never on.
    versioning: &'static str,
    /// Seconds by which its clock is ahead.
    ahead: i64,
}

/// The store.
#[derive(Clone)]
pub struct Server {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    requests: AtomicU64,
}

impl Server {
    /// Starts a store with fair weather. It runs until the program ends.
    pub fn start() -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of this machine");
        let port = listener.local_addr().expect("its address").port();
        let (objects, key) = (BTreeMap::new(), KEY.to_owned());
        let decide: Decide = Box::new(|_| Weather::Fair);
        let (quota, versioning) = (u64::MAX, "");
        let state = State { objects, decide, changes: 0, key, quota, versioning, ahead: 0 };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { state, changed, requests: AtomicU64::new(0) });
        let server = Server { port, shared };
        let accepting = server.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = accepting.clone();
                std::thread::spawn(move || server.serve(connection));
            }
        });
        server
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The variables by which programs find it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "nowhere".to_owned()),
        ]
    }

    /// Decides on all further requests, and on those that hang.
    pub fn set_weather(&self, decide: impl FnMut(&Request) -> Weather + Send + 'static) {
        let mut state = self.state();
        (state.decide, state.changes) = (Box::new(decide), state.changes + 1);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Accepts another access key, and no longer the one before.
    pub fn set_key(&self, key: &str) {
        key.clone_into(&mut self.state().key);
    }

    /// Refuses objects that would make all of them larger than so many bytes.
    pub fn set_quota(&self, bytes: u64) {
        self.state().quota = bytes;
    }

    /// Says that versioning is in this state: `Enabled`, `Suspended`.
    pub fn set_versioning(&self, state: &'static str) {
        self.state().versioning = state;
    }

    /// Sets its clock so many seconds ahead of this machine's.
    pub fn set_clock(&self, ahead: i64) {
        self.state().ahead = ahead;
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Names of the objects.
    pub fn names(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.state().objects.values().map(|object| object.len() as u64).sum()
    }

    /// Changes an object behind everybody's back; `None` removes it.
    pub fn change(&self, name: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
        let mut state = self.state();
        let object = state.objects.remove(name).expect(name);
        if let Some(object) = change(object) {
            state.objects.insert(name.to_owned(), object);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no test has panicked while it changed the store")
    }

    /// Serves a connection until it ends.
    fn serve(&self, connection: TcpStream) {
        let Ok(mut answers) = connection.try_clone() else { return };
        let mut requests = BufReader::new(connection);
        while let Ok(Some(incoming)) = Incoming::read(&mut requests) {
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
            let Some(answer) = self.answer(incoming) else { return };
            let date = date(self.state().ahead);
            let answer = with_header(&answer, &format!("date: {date}"));
            if answers.write_all(&answer).is_err() {
                return;
            }
        }
    }

    /// Carries a request out. `None`: it is not answered.
    fn answer(&self, incoming: Incoming) -> Option<Vec<u8>> {
        let request = incoming.request();
        let mut state = self.state();
        let weather = loop {
            let weather = (state.decide)(&request);
            if weather != Weather::Hang {
                break weather;
            }
            let changes = state.changes;
            state = self
                .shared
                .changed
                .wait_while(state, |state| state.changes == changes)
                .expect("no test has panicked while it changed the store");
        };
        if let Weather::Answer(status, code, headers) = weather {
            return Some(refusal(status, code, headers));
        }
        if !incoming.is_signed_with(&state.key) {
            return Some(refusal(403, "InvalidAccessKeyId", ""));
        }
        let short = if let Weather::Short(most) = weather { most } else { usize::MAX };
        let is_new = incoming.is_new && weather != Weather::Unconditional;
        let answer = state.carry_out(&request, Incoming { is_new, ..incoming }, short);
        (weather != Weather::Lost).then_some(answer)
    }
}

impl State {
    fn carry_out(&mut self, request: &Request, incoming: Incoming, short: usize) -> Vec<u8> {
        let key = &request.key;
        match (&*request.method, request.is_list) {
            ("GET", _) if request.is_versioning => {
                let state = match self.versioning {
                    "" => String::new(),
                    state => format!("<Status>{state}</Status>"),
                };
                let body = format!("<VersioningConfiguration>{state}</VersioningConfiguration>");
                reply(200, "", body.as_bytes())
            }
            ("GET", true) => reply(200, "", self.list(key).as_bytes()),
            ("GET", false) => {
                let Some(object) = self.objects.get(key) else {
                    return refusal(404, "NoSuchKey", "");
                };
                let object = &object[..object.len().min(short)];
                let Some((from, to)) = incoming.range else { return reply(200, DATE, object) };
                if from >= object.len() {
                    return refusal(416, "InvalidRange", "");
                }
                let to = to.min(object.len() - 1);
                let range = format!("content-range: bytes {from}-{to}/{}\r\n{DATE}", object.len());
                reply(206, &range, &object[from..=to])
            }
            ("PUT", _) if incoming.is_new && self.objects.contains_key(key) => {
                refusal(412, "PreconditionFailed", "")
            }
            ("PUT", _) => {
                let used: u64 = self.objects.values().map(|object| object.len() as u64).sum();
                let before = self.objects.get(key).map_or(0, |object| object.len() as u64);
                if used - before + incoming.body.len() as u64 > self.quota {
                    return refusal(403, "QuotaExceeded", "");
                }
                self.objects.insert(key.clone(), incoming.body);
                let version = match self.versioning {
                    "Enabled" => "x-amz-version-id: 1\r\n",
                    _ => "",
                };
                reply(200, &format!("etag: \"e\"\r\n{version}"), b"")
            }
            // Several at once.
            ("POST", _) => {
                let (body, mut done) = (String::from_utf8_lossy(&incoming.body), String::new());
                for part in body.split("<Key>").skip(1) {
                    let name = part.split("</Key>").next().unwrap_or_default();
                    self.objects.remove(name);
                    done += &format!("<Deleted><Key>{name}</Key></Deleted>");
                }
                reply(200, "", format!("<DeleteResult>{done}</DeleteResult>").as_bytes())
            }
            ("DELETE", _) => {
                self.objects.remove(key);
                reply(204, "", b"")
            }
            _ => refusal(405, "MethodNotAllowed", ""),
        }
    }

    fn list(&self, prefix: &str) -> String {
        let of = |(name, object): (&String, &Vec<u8>)| {
            format!(
                "<Contents><Key>{name}</Key><Size>{}</Size><ETag>e</ETag>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
                object.len()
            )
        };
        let found = self.objects.iter().filter(|(name, _)| name.starts_with(prefix)).map(of);
        let found: String = found.collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>")
    }
}

const DATE: &str = "last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\netag: \"e\"\r\n";

fn reply(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns an answer with one more header.
fn with_header(answer: &[u8], header: &str) -> Vec<u8> {
    let end = answer.windows(2).position(|two| two == b"\r\n").expect("a first line");
    let (first, rest) = answer.split_at(end);
    [first, b"\r\n", header.as_bytes(), rest].concat()
}

/// Returns the time, so many seconds from now, as HTTP writes it.
fn date(ahead: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() as i64 + ahead;
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March, so that the day in February comes last.
    let era_day = days + 719_468;
    let (era, day) = (era_day.div_euclid(146_097), era_day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, year) = (day - (153 * month + 2) / 5 + 1, year + 400 * era + month / 10);
    let names =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let (weekday, name) = (weekdays[days.rem_euclid(7) as usize], names[month as usize]);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{weekday}, {day:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

fn refusal(status: u16, code: &str, headers: &str) -> Vec<u8> {
    reply(status, headers, format!("<Error><Code>{code}</Code></Error>").as_bytes())
}

/// A request as it comes.
struct Incoming {
    method: String,
    target: String,
    authorization: String,
    range: Option<(usize, usize)>,
    is_new: bool,
    body: Vec<u8>,
}

impl Incoming {
    fn read(from: &mut BufReader<TcpStream>) -> Result<Option<Incoming>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, target) = (word(), word());
        let (authorization, body) = (String::new(), Vec::new());
        let (range, is_new) = (None, false);
        let mut incoming = Incoming { method, target, authorization, range, is_new, body };
        let mut length = 0;
        loop {
            let mut header = String::new();
            from.read_line(&mut header)?;
            let Some((name, value)) = header.trim().split_once(':') else { break };
            let value = value.trim();
            match &*name.to_ascii_lowercase() {
                "content-length" => length = value.parse().unwrap_or(0),
                "authorization" => value.clone_into(&mut incoming.authorization),
                "if-none-match" => incoming.is_new = true,
                "range" => {
                    let range = value.strip_prefix("bytes=").and_then(|it| it.split_once('-'));
                    incoming.range =
                        range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
                }
                _ => {}
            }
        }
        incoming.body.resize(length, 0);
        from.read_exact(&mut incoming.body)?;
        Ok(Some(incoming))
    }

    /// Returns whether its header, or its URL, names this access key.
    fn is_signed_with(&self, key: &str) -> bool {
        self.authorization.contains(&format!("Credential={key}/"))
            || self.target.contains(&format!("X-Amz-Credential={key}%2F"))
    }

    fn request(&self) -> Request {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        // The first part is the bucket.
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
        let prefix = query.split('&').find_map(|it| it.strip_prefix("prefix="));
        let (method, is_list) = (self.method.clone(), query.contains("list-type"));
        let is_versioning = query.split('&').any(|it| it.starts_with("versioning"));
        let key = if is_list { prefix.unwrap_or_default().replace("%2F", "/") } else { key.into() };
        Request { method, key, is_list, is_versioning }
    }
}
