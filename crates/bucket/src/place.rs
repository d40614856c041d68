//! URLs of buckets: `s3://bucket/prefix`, `gs://`, `az://`, and `file:///directory` for tests.
//!
//! Credentials and everything else come from the usual environment variables
//! (`AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` and their
//! like), those of S3 also from files (`credentials.rs`), or, on machines of a provider, from its
//! metadata service.

use crate::about::{About, Keys, Provider};
use crate::credentials::{Env, Files, Source, source};
use crate::failure::reason;
use crate::http::Connector;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, Error as StoreError, ObjectStore, RetryConfig};
use shoal_base::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest time for one request, with all bytes of an object.
const REQUEST_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A place for a volume: a store, and a prefix in it.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) name: String,
    /// The store has refused the credentials: the next request must not use what is kept of them.
    pub(crate) renew: Arc<AtomicBool>,
    /// Decides on pauses between requests.
    pub(crate) seed: u64,
    pub(crate) about: Arc<About>,
}

impl Place {
    /// Makes a place in a store of the caller's, for tests and for stores without a URL.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: &str, name: &str) -> Place {
        let (prefix, name) = (Path::from(prefix), name.to_owned());
        Place { objects, prefix, name, renew: Arc::default(), seed: 0, about: Arc::default() }
    }

    /// Parses a URL, and takes the rest from the environment. Sends no request.
    ///
    /// # Errors
    /// As of [`Place::parse_with`].
    pub fn parse(url: &str) -> Result<Place> {
        Place::parse_with(url, &|name| std::env::var(name).ok())
    }

    /// As [`Place::parse`], with the values of variables of S3 from `env`.
    ///
    /// # Errors
    /// Invalid: not such a URL, or variables are missing or wrong.
    pub fn parse_with(url: &str, env: Env<'_>) -> Result<Place> {
        let bad = |why: String| Error::refused(Code::Invalid, format!("{url}: {why}"));
        let form = "must be s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or \
                    file:///DIRECTORY";
        let url_trimmed = url.trim_end_matches('/');
        let (scheme, rest) = url_trimmed.split_once("://").ok_or_else(|| bad(form.into()))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        if (bucket.is_empty()) != (scheme == "file") || rest.is_empty() {
            return Err(bad(form.into()));
        }
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(bad("its prefix has '.' or '..' as a name".into()));
        }
        let renew = Arc::<AtomicBool>::default();
        let built = match &*scheme {
            "s3" => s3(bucket, env, &renew),
            "gs" => google(bucket),
            "az" => azure(bucket),
            "file" => return directory(url, prefix),
            _ => return Err(bad(form.into())),
        };
        let (objects, about) = built.map_err(|why| bad(why.text))?;
        let prefix = Path::parse(prefix).map_err(|error| bad(reason(&error)))?;
        let name = format!("{scheme}://{rest}");
        // Differs from that of other machines.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ u64::from(std::process::id());
        Ok(Place { objects, prefix, name, renew, seed, about: Arc::new(about) })
    }

    /// The URL.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The cryptography of TLS, chosen once for the process.
fn choose_provider() {
    // Fails if there is one: then that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn client() -> ClientOptions {
    choose_provider();
    ClientOptions::new().with_timeout(REQUEST_MAX).with_connect_timeout(CONNECT_MAX)
}

/// Shoal repeats requests itself: only it can tell a lost race from a reply that was lost.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: REQUEST_MAX, ..RetryConfig::default() }
}

/// The reason why a store cannot be used.
struct Why {
    text: String,
}

impl From<StoreError> for Why {
    fn from(error: StoreError) -> Why {
        Why { text: reason(&error) }
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Why {
        Why { text: text.to_owned() }
    }
}

type Built = Result<(Arc<dyn ObjectStore>, About), Why>;

fn s3(bucket: &str, env: Env<'_>, renew: &Arc<AtomicBool>) -> Built {
    let files = Files::from_env(env);
    let of_env = |names: &[&str]| names.iter().find_map(|name| env(name));
    let endpoint = of_env(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
        .or_else(|| files.get("endpoint_url"));
    let schemes = ["http://", "https://"];
    if let Some(endpoint) = &endpoint
        && !schemes.iter().any(|scheme| endpoint.starts_with(scheme))
    {
        let text = format!("the endpoint {endpoint} must begin with https:// or http://");
        return Err(Why { text });
    }
    let plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let client = client().with_allow_http(plain);
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client.clone())
        .with_http_connector(Connector::default())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(no_retries());
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let region = of_env(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| files.get("region"));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let (mut keys, mut profile) = (Keys::default(), None);
    match source(&files, env, renew) {
        Source::Library(from) => keys.source = from.to_owned(),
        Source::Keys { key, secret, token } => {
            "environment variables".clone_into(&mut keys.source);
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
            if let Some(token) = token {
                builder = builder.with_token(token);
            }
        }
        Source::Profile(found) => {
            let found = Arc::new(found);
            keys.source = found.source();
            profile = Some(found.clone());
            builder = builder.with_credentials(found);
        }
        Source::None => {
            return Err("there are no credentials: set AWS_ACCESS_KEY_ID and \
                        AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or write ~/.aws/credentials"
                .into());
        }
    }
    let value = |key| builder.get_config_value(&key);
    let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
    let is_virtual_hosted =
        value(AmazonS3ConfigKey::VirtualHostedStyleRequest).map(|text| text == "true");
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| value(AmazonS3ConfigKey::Endpoint))
        .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let (endpoint, region) = (Some(endpoint), Some(region));
    let store = builder.build()?;
    let provider = Provider::S3(store.clone());
    let about = About { provider, endpoint, region, is_virtual_hosted, keys, profile, client };
    Ok((Arc::new(store), about))
}

fn google(bucket: &str) -> Built {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client())
        .with_http_connector(Connector::default())
        .with_retry(no_retries());
    let value = |key| builder.get_config_value(&key);
    let endpoint = value(GoogleConfigKey::BaseUrl)
        .unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
    let file = value(GoogleConfigKey::ServiceAccount)
        .or_else(|| value(GoogleConfigKey::ApplicationCredentials));
    let source = match file {
        Some(file) => format!("the file {file}"),
        None if value(GoogleConfigKey::ServiceAccountKey).is_some() => {
            "environment variables".to_owned()
        }
        None => "this machine's service account, or gcloud's default credentials".to_owned(),
    };
    let keys = Keys { source, ..Keys::default() };
    let provider = Provider::Google;
    let about = About { provider, endpoint: Some(endpoint), keys, ..About::default() };
    Ok((Arc::new(builder.build()?), about))
}

fn azure(container: &str) -> Built {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_client_options(client())
        .with_http_connector(Connector::default())
        .with_retry(no_retries());
    let value = |key| builder.get_config_value(&key);
    let is_set = |key| value(key).is_some();
    let id = value(AzureConfigKey::AccountName);
    let of_account = id.as_ref().map(|name| format!("https://{name}.blob.core.windows.net"));
    let endpoint = value(AzureConfigKey::Endpoint).or(of_account);
    let source = match () {
        () if is_set(AzureConfigKey::AccessKey) => "the account's key, from the environment",
        () if is_set(AzureConfigKey::SasKey) => "a shared access signature, from the environment",
        () if is_set(AzureConfigKey::ClientSecret) => "a client's secret, from the environment",
        () if is_set(AzureConfigKey::FederatedTokenFile) => "a federated token",
        () => "this machine's managed identity, or another one of Azure's",
    };
    let keys = Keys { id, source: source.to_owned(), expires: None };
    let about = About { provider: Provider::Azure, endpoint, keys, ..About::default() };
    Ok((Arc::new(builder.build()?), about))
}

/// A bucket in a directory, of this machine's programs alone.
fn directory(url: &str, path: &str) -> Result<Place> {
    let path = format!("/{path}");
    let at = |why: String| Error::refused(Code::NotFound, format!("{url}: {why}"));
    if !std::path::Path::new(&path).is_dir() {
        return Err(at(format!("there is no directory {path}; create it first")));
    }
    let objects = LocalFileSystem::new_with_prefix(&path).map_err(|error| at(reason(&error)))?;
    // A flush must be durable.
    let objects = Arc::new(objects.with_fsync(true));
    let about = About { provider: Provider::Directory(path.clone().into()), ..About::default() };
    let place = Place::new(objects, "", &format!("file://{path}"));
    Ok(Place { prefix: Path::default(), about: Arc::new(about), ..place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_say_nothing_are_refused() {
        for url in ["s3://", "s3:///p", "file://host/dir", "ftp://b/p", "s3://b/../p", "nonsense"] {
            let said = Place::parse(url).expect_err(url).to_string();
            assert!(said.starts_with(url), "{said}");
        }
        let said = Place::parse("file:///not/there").expect_err("no directory").to_string();
        assert!(said.contains("create it first"), "{said}");
    }
}
