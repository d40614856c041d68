//! HTTP requests to a store: those of the library, and the headers of their answers that it does
//! not pass on.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime};

tokio::task_local! {
    static ASKED: Cell<Option<Duration>>;
    static HEARD: RefCell<Heard>;
}

/// Facts in the headers of answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Time of this machine less that of the store, in seconds (`Date`).
    pub ahead: Option<i64>,
    /// The bucket's region (`x-amz-bucket-region`).
    pub region: Option<String>,
}

impl Heard {
    /// Learns from the headers of an answer, found by `header`.
    fn learn<'h>(&mut self, header: impl Fn(&str) -> Option<&'h str>) {
        let date = header("date").and_then(|text| chrono::DateTime::parse_from_rfc2822(text).ok());
        if let Some(date) = date {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.ahead = Some(now.as_secs() as i64 - date.timestamp());
        }
        if let Some(region) = header("x-amz-bucket-region") {
            self.region = Some(region.to_owned());
        }
    }
}

/// Runs requests. Also returns what the headers of the answers say.
pub(crate) async fn with_headers<T>(requests: impl Future<Output = T>) -> (T, Heard) {
    let heard = async { (requests.await, HEARD.with(RefCell::take)) };
    HEARD.scope(RefCell::default(), heard).await
}

/// Runs a request. Also returns the pause that the store has asked for (`Retry-After`, in seconds)
/// in the answer to it.
pub(crate) async fn with_pause<T>(request: impl Future<Output = T>) -> (T, Option<Duration>) {
    ASKED.scope(Cell::new(None), async { (request.await, ASKED.with(Cell::get)) }).await
}

/// Connects as [`ReqwestConnector`] does.
#[derive(Debug, Default)]
pub(crate) struct Connector(ReqwestConnector);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.execute(request).await?;
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        let seconds = header("retry-after").and_then(|it| it.trim().parse().ok());
        // Not within a request of ours: one for credentials, made apart.
        let _ = ASKED.try_with(|asked| asked.set(seconds.map(Duration::from_secs)));
        let _ = HEARD.try_with(|heard| heard.borrow_mut().learn(header));
        Ok(answer)
    }
}
