//! Credentials of S3, from where people keep them.
//!
//! | order | source | read again |
//! | --- | --- | --- |
//! | 1 | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | |
//! | 2 | web identity: `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN` | before they expire |
//! | 3 | the profile: keys or `credential_process` in `~/.aws/credentials` and `~/.aws/config` | when a file changes, when they expire or are refused |
//! | 4 | a container's: `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` and its like | before they expire |
//! | 5 | the machine's role, by its metadata service, if it is a machine of Amazon's | before they expire |
//!
//! The library has 1, 2, 4 and 5. The order, the files and their syntax are those of Amazon's own
//! tools; `AWS_PROFILE`, `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` are, too.

use async_trait::async_trait;
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error as StoreError, Result};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Time before the end of credentials from which on they are read again.
const EARLY: Duration = Duration::from_secs(60);
/// Longest time for a command that prints credentials: all requests wait for it.
const ASKED_MAX: Duration = Duration::from_secs(60);

/// The source where requests are not signed.
pub(crate) const UNSIGNED: &str = "nowhere, because AWS_SKIP_SIGNATURE is set";

/// The values of variables.
pub(crate) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// The source of credentials.
pub(crate) enum Source {
    /// The library knows how to get them, from there.
    Library(&'static str),
    /// Variables.
    Keys { key: String, secret: String, token: Option<String> },
    /// A profile.
    Profile(Profile),
    /// Nowhere.
    None,
}

/// Finds the source of the credentials.
pub(crate) fn source(files: &Files, env: Env<'_>, renew: &Arc<AtomicBool>) -> Source {
    let value = |name: &str| env(name).filter(|value| !value.is_empty());
    let is_set = |name: &str| value(name).is_some();
    if let (Some(key), Some(secret)) = (value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY"))
    {
        return Source::Keys { key, secret, token: value("AWS_SESSION_TOKEN") };
    }
    // One of them alone: the library says which is missing.
    if is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_SECRET_ACCESS_KEY") {
        return Source::Library("environment variables");
    }
    if is_set("AWS_SKIP_SIGNATURE") {
        return Source::Library(UNSIGNED);
    }
    if is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN") {
        return Source::Library("the web identity in AWS_WEB_IDENTITY_TOKEN_FILE");
    }
    // Also one without keys, if it was asked for: then it says what it lacks.
    if files.get("aws_access_key_id").is_some()
        || files.get("credential_process").is_some()
        || is_set("AWS_PROFILE")
    {
        let profile =
            Profile { files: files.clone(), renew: renew.clone(), kept: Mutex::default() };
        return Source::Profile(profile);
    }
    let container =
        ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    match () {
        () if container.iter().any(|name| is_set(name)) => Source::Library("the container's role"),
        () if may_have_role(env) => Source::Library("the role of this machine (metadata service)"),
        () => Source::None,
    }
}

/// Returns whether this may be a machine of Amazon's. Elsewhere nobody answers, after a while.
fn may_have_role(env: Env<'_>) -> bool {
    if env("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        return false;
    }
    let says = |file: &str, start: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.to_ascii_lowercase().starts_with(start)
    };
    env("AWS_METADATA_ENDPOINT").is_some()
        || says("/sys/class/dmi/id/sys_vendor", "amazon")
        || says("/sys/class/dmi/id/board_vendor", "amazon")
        || says("/sys/hypervisor/uuid", "ec2")
}

/// The files of a profile.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    profile: String,
    credentials: PathBuf,
    config: PathBuf,
}

/// A state of the files, as far as it differs from others.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Files {
    /// The files that the environment names.
    pub(crate) fn from_env(env: Env<'_>) -> Files {
        let home = PathBuf::from(env("HOME").unwrap_or_else(|| "/root".to_owned())).join(".aws");
        let file = |name: &str, default: &str| env(name).map_or(home.join(default), PathBuf::from);
        Files {
            profile: env("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: file("AWS_CONFIG_FILE", "config"),
        }
    }

    /// Returns a value of the profile; that in the credentials file counts.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.read().remove(key)
    }

    fn read(&self) -> HashMap<String, String> {
        let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let named = format!("profile {}", self.profile);
        let mut found = section(&text(&self.config), &[&named, &self.profile]);
        found.extend(section(&text(&self.credentials), &[&self.profile]));
        found
    }

    fn stamp(&self) -> Stamp {
        [&self.credentials, &self.config].map(|path| {
            let facts = fs::metadata(path).ok()?;
            Some((facts.modified().ok()?, facts.len()))
        })
    }
}

/// Returns the values of a section, whose name is one of these.
fn section(text: &str, names: &[&str]) -> HashMap<String, String> {
    let (mut found, mut inside) = (HashMap::new(), false);
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default();
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            inside = names.contains(&name.as_str());
            continue;
        }
        // An indented line belongs to a value of several.
        if let Some((key, value)) = bare.split_once('=')
            && inside
            && !line.starts_with([' ', '\t'])
        {
            // A comment behind a value begins with a space.
            let value = value.split(" #").next().unwrap_or_default().trim();
            found.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

/// The credentials of a profile.
#[derive(Debug)]
pub(crate) struct Profile {
    files: Files,
    /// The store has refused what was read last.
    renew: Arc<AtomicBool>,
    /// Held while others are read: of many requests at once, one asks the command.
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    credential: Arc<AwsCredential>,
    stamp: Stamp,
    expires: Option<SystemTime>,
}

/// The output of `credential_process`, and the values of a file.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

#[async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().await;
        let (stamp, is_refused) = (self.files.stamp(), self.renew.swap(false, Ordering::Relaxed));
        let is_early = |expires: SystemTime| expires > SystemTime::now() + EARLY;
        if let Some(kept) = &*kept
            && kept.stamp == stamp
            && !is_refused
            && kept.expires.is_none_or(is_early)
        {
            return Ok(kept.credential.clone());
        }
        let values = self.files.read();
        let printed = match values.get("aws_access_key_id") {
            Some(key) => {
                let secret = values.get("aws_secret_access_key");
                let secret = secret.ok_or_else(|| self.lacks("has no aws_secret_access_key"))?;
                Printed {
                    access_key_id: key.clone(),
                    secret_access_key: secret.clone(),
                    session_token: values.get("aws_session_token").cloned(),
                    expiration: None,
                }
            }
            None => match values.get("credential_process").cloned() {
                Some(command) => {
                    let asked = tokio::task::spawn_blocking(move || ask(&command));
                    let printed = match timeout(ASKED_MAX, asked).await {
                        Ok(ended) => ended.unwrap_or_else(|error| Err(error.to_string())),
                        Err(_) => Err(format!("it has not ended in {} s", ASKED_MAX.as_secs())),
                    };
                    printed.map_err(|why| self.lacks(&format!("credential_process: {why}")))?
                }
                None if values.contains_key("role_arn") => {
                    let why = "assumes a role, which Shoal cannot do by itself: let \
                               credential_process print the role's credentials";
                    return Err(self.lacks(why));
                }
                None => return Err(self.lacks("has no aws_access_key_id")),
            },
        };
        let expires = printed
            .expiration
            .as_deref()
            .and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok().map(SystemTime::from));
        let credential = Arc::new(AwsCredential {
            key_id: printed.access_key_id,
            secret_key: printed.secret_access_key,
            token: printed.session_token,
        });
        *kept = Some(Kept { credential: credential.clone(), stamp, expires });
        Ok(credential)
    }
}

impl Profile {
    /// Returns where the credentials come from, for messages.
    pub(crate) fn source(&self) -> String {
        let Files { profile, credentials, config } = &self.files;
        let has_key = |file: &PathBuf, names: &[&str]| {
            let text = fs::read_to_string(file).unwrap_or_default();
            section(&text, names).contains_key("aws_access_key_id")
        };
        let named = format!("profile {profile}");
        let file = match () {
            () if has_key(credentials, &[profile]) => credentials,
            () if has_key(config, &[&named, profile]) => config,
            () => return format!("credential_process of profile {profile}"),
        };
        format!("profile {profile} in {}", file.display())
    }

    /// Returns when the credentials that were read last expire, if that is known.
    pub(crate) async fn expires(&self) -> Option<SystemTime> {
        self.kept.lock().await.as_ref()?.expires
    }

    fn lacks(&self, what: &str) -> StoreError {
        let Files { profile, credentials, config } = &self.files;
        let (credentials, config) = (credentials.display(), config.display());
        let source = format!("profile {profile} in {credentials} or {config} {what}").into();
        StoreError::Unauthenticated { path: String::new(), source }
    }
}

/// Runs a command that prints credentials.
fn ask(command: &str) -> Result<Printed, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = shell.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("it ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("it printed no keys: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Files {
        let base = std::env::temp_dir().join(format!("shoal-aws-{name}-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let (credentials, config) = (base.join("credentials"), base.join("config"));
        Files { profile: "work".into(), credentials, config }
    }

    fn profile(files: &Files) -> Profile {
        Profile { files: files.clone(), renew: Arc::default(), kept: Mutex::default() }
    }

    fn get(profile: &Profile) -> Result<(String, Option<String>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let found = runtime.block_on(profile.get_credential())?;
        Ok((found.key_id.clone(), found.token.clone()))
    }

    #[test]
    fn sections_of_both_files() {
        let text = "# mine\n[default]\naws_access_key_id=A\n\n[ profile  work ]\n\
                    region = eu-1 # near\n\
                    s3 =\n  addressing_style = path\nENDPOINT_URL=http://h:1\n[other]\nregion=x\n";
        let found = section(text, &["profile work", "work"]);
        assert_eq!(found["region"], "eu-1");
        assert_eq!(found["endpoint_url"], "http://h:1");
        assert!(
            !found.contains_key("addressing_style") && !found.contains_key("aws_access_key_id")
        );
    }

    #[test]
    fn changed_files_are_read_again() {
        let files = files("changed");
        fs::write(&files.config, "[profile work]\naws_access_key_id=C\nregion=r\n").unwrap();
        let of = |key: &str| format!("[work]\naws_access_key_id={key}\naws_secret_access_key=s\n");
        fs::write(&files.credentials, of("A")).unwrap();
        let profile = profile(&files);
        assert_eq!(get(&profile).unwrap(), ("A".into(), None), "this file counts");
        assert_eq!(profile.source(), format!("profile work in {}", files.credentials.display()));
        fs::write(&files.credentials, of("LONGER")).unwrap();
        assert_eq!(get(&profile).unwrap().0, "LONGER");
        fs::write(&files.credentials, "[work]\n").unwrap();
        let said = get(&profile).unwrap_err().to_string();
        assert!(said.contains("has no aws_secret_access_key"), "{said}");
        fs::remove_dir_all(files.credentials.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_command_is_asked_again_when_it_was_refused_or_is_late() {
        let files = files("asked");
        let count = files.config.with_file_name("count");
        let script = |expires: &str| {
            format!(
                "[profile work]\ncredential_process = echo x >>{} && echo '{{\"Version\":1,\
                 \"AccessKeyId\":\"K\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\",\
                 \"Expiration\":\"{expires}\"}}'\n",
                count.display()
            )
        };
        let asked = || fs::read_to_string(&count).unwrap().len() / 2;
        fs::write(&files.config, script("2999-01-01T00:00:00Z")).unwrap();
        let profile = profile(&files);
        assert_eq!(get(&profile).unwrap(), ("K".into(), Some("t".into())));
        assert_eq!(profile.source(), "credential_process of profile work");
        get(&profile).unwrap();
        assert_eq!(asked(), 1, "kept");
        profile.renew.store(true, Ordering::Relaxed);
        get(&profile).unwrap();
        assert_eq!(asked(), 2, "refused");
        fs::write(&files.config, script("1999-01-01T00:00:00Z")).unwrap();
        get(&profile).unwrap();
        get(&profile).unwrap();
        assert_eq!(asked(), 4, "expired each time");
        fs::write(&files.config, "[profile work]\ncredential_process = exit 3\n").unwrap();
        let said = get(&profile).unwrap_err().to_string();
        assert!(said.contains("exit status: 3"), "{said}");
        fs::remove_dir_all(files.config.parent().unwrap()).unwrap();
    }
}
