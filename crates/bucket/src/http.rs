//! HTTP requests to a store: those of the library, and the header of their answers that it does not
//! pass on.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::cell::Cell;
use std::time::Duration;

tokio::task_local! {
    static ASKED: Cell<Option<Duration>>;
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
        let header = answer.headers().get("retry-after");
        let seconds = header.and_then(|it| it.to_str().ok()?.trim().parse().ok());
        // Not within a request of ours: one for credentials, made apart.
        let _ = ASKED.try_with(|asked| asked.set(seconds.map(Duration::from_secs)));
        Ok(answer)
    }
}
