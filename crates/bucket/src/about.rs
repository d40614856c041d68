//! Facts of a place: where its store is, whose keys are used, which right each operation takes, and
//! whether the store keeps what is deleted.

use crate::credentials::{Profile, UNSIGNED};
use crate::failure::{is_denied, reason};
use crate::http::Connector;
use object_store::aws::AmazonS3;
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions, Signer};
use object_store::{ClientOptions, Error as StoreError, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// An operation of a store that Shoal uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Lists the objects below a prefix.
    List,
    /// Reads an object, and is told if there is none.
    Get,
    /// Reads a part of an object.
    GetRange,
    /// Writes a new object.
    Put,
    /// Writes an object only if there is none of its name (`If-None-Match: *`).
    Create,
    /// Writes an object in place of another one.
    Overwrite,
    /// Deletes an object.
    Delete,
}

impl Operation {
    /// All operations, in the order of reports.
    pub const ALL: [Operation; 7] = [
        Operation::List,
        Operation::Get,
        Operation::GetRange,
        Operation::Put,
        Operation::Create,
        Operation::Overwrite,
        Operation::Delete,
    ];

    /// The operation's name in output.
    pub fn name(self) -> &'static str {
        match self {
            Operation::List => "list",
            Operation::Get => "get",
            Operation::GetRange => "get_range",
            Operation::Put => "put",
            Operation::Create => "if_none_match",
            Operation::Overwrite => "overwrite",
            Operation::Delete => "delete",
        }
    }

    /// Reading a volume, and following it, needs it.
    pub fn is_of_readers(self) -> bool {
        matches!(self, Operation::List | Operation::Get | Operation::GetRange)
    }
}

/// The keys that requests are signed with. The secret one is never shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Id of the access key, account or principal, if it is known.
    pub id: Option<String>,
    /// Their origin, for messages: environment variables, a profile, a role.
    pub source: String,
    /// Time at which they expire, if it is known.
    pub expires: Option<SystemTime>,
}

/// State of versioning: with it, a store keeps objects that are deleted or overwritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Versioning {
    /// Deleted objects are gone.
    Off,
    /// Deleted objects are gone; versions from an earlier time stay.
    Suspended,
    /// Deleted objects stay.
    On,
    /// Not known, for this reason.
    Unknown(String),
}

/// The kind of a store.
#[derive(Clone, Debug, Default)]
pub(crate) enum Provider {
    S3(AmazonS3),
    Google,
    Azure,
    Directory(PathBuf),
    /// A store of the caller's.
    #[default]
    Other,
}

/// Facts of a place that take no request.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub provider: Provider,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The bucket is a part of the name of the host (of S3).
    pub is_virtual_hosted: Option<bool>,
    pub keys: Keys,
    pub profile: Option<Arc<Profile>>,
    /// Options of a client of the store.
    pub client: ClientOptions,
}

impl About {
    /// Finds out the id and the expiry of the keys, which may take requests to services that have
    /// them.
    pub(crate) async fn keys(&self) -> Result<Keys> {
        let mut keys = self.keys.clone();
        if let Provider::S3(store) = &self.provider
            && keys.source != UNSIGNED
        {
            keys.id = Some(store.credentials().get_credential().await?.key_id.clone());
            if let Some(profile) = &self.profile {
                keys.source = profile.source();
                keys.expires = profile.expires().await;
            }
        }
        Ok(keys)
    }

    /// Returns the right that an operation takes, in the words of the provider.
    pub(crate) fn right(&self, operation: Operation) -> &'static str {
        use Operation::{Create, Delete, Get, GetRange, List, Overwrite, Put};
        match (&self.provider, operation) {
            (Provider::S3(_), List) => "s3:ListBucket",
            (Provider::S3(_), Get | GetRange) => "s3:GetObject",
            (Provider::S3(_), Put | Create | Overwrite) => "s3:PutObject",
            (Provider::S3(_), Delete) => "s3:DeleteObject",
            (Provider::Google, List) => "storage.objects.list",
            (Provider::Google, Get | GetRange) => "storage.objects.get",
            (Provider::Google, Put | Create) => "storage.objects.create",
            (Provider::Google, Overwrite | Delete) => "storage.objects.delete",
            (Provider::Azure, List | Get | GetRange) => "the role Storage Blob Data Reader",
            (Provider::Azure, _) => "the role Storage Blob Data Contributor",
            (_, List | Get | GetRange) => "permission to read the directory",
            (_, _) => "permission to write in the directory",
        }
    }

    /// Asks whether deleted objects stay as versions; `None`: this store has no versions.
    pub(crate) async fn versioning(&self) -> Option<Versioning> {
        let unknown = |why: &str| Some(Versioning::Unknown(why.to_owned()));
        match &self.provider {
            Provider::S3(store) => match self.ask_versioning(store).await {
                Ok(versioning) => Some(versioning),
                Err(error) if is_denied(&error) => unknown("needs s3:GetBucketVersioning"),
                Err(error) => unknown(&reason(&error)),
            },
            Provider::Google => unknown("see Object Versioning and Soft Delete of the bucket"),
            Provider::Azure => unknown("see versioning and soft delete of the account"),
            Provider::Directory(_) | Provider::Other => None,
        }
    }

    /// Sends the request `GET /?versioning`, which the library does not have.
    async fn ask_versioning(&self, store: &AmazonS3) -> Result<Versioning> {
        let options = SignedUrlOptions::default().with_query([("versioning", "")]);
        let (bucket, valid) = (Path::default(), Duration::from_secs(60));
        let url = store.signed_url_opts(Method::GET, &bucket, valid, &options).await?;
        let other = |source| StoreError::Generic { store: "S3", source };
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.as_str().parse().map_err(|error| other(Box::new(error)))?;
        let client = Connector::default().connect(&self.client)?;
        let answer = client.execute(request).await.map_err(|error| other(Box::new(error)))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|error| other(Box::new(error)))?;
        let body = String::from_utf8_lossy(&body);
        if !status.is_success() {
            // As the library says it.
            return Err(other(format!("status code: {status}: {body}").into()));
        }
        Ok(match () {
            () if body.contains("<Status>Enabled</Status>") => Versioning::On,
            () if body.contains("<Status>Suspended</Status>") => Versioning::Suspended,
            () => Versioning::Off,
        })
    }
}
