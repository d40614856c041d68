//! Arguments of the commands about buckets.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const BUCKET_AFTER: &str = "\
EXIT STATUS:
  That of the command.

EXAMPLES:
    shoal bucket check s3://my-bucket/volumes/home
";

/// Look at a bucket in which a volume is, or will be
#[derive(Args, Debug)]
#[command(after_long_help = BUCKET_AFTER, disable_help_subcommand = true)]
pub(crate) struct BucketArgs {
    /// Command to run
    #[command(subcommand)]
    pub command: BucketCommand,
}

/// The commands about buckets.
#[derive(Subcommand, Debug)]
pub(crate) enum BucketCommand {
    Check(BucketCheckArgs),
}

const CHECK_AFTER: &str = "\
OUTPUT:
  One fact a line. An operation that does not work has the reason, and the right that is missing.

    endpoint       address of the store
    region         of S3: the region that requests are signed for
    identity       id of the access key, and where it comes from
    clock          difference between the clocks of this machine and of the store: S3 refuses
                   requests from 15 minutes on
    list, get, range get
                   needed to read a volume, and to follow it as a replica
    put, If-None-Match, overwrite, delete
                   needed too, to make a volume and to mount it for writing. If-None-Match: of
                   several writers only one creates an object
    versioning     deleted objects stay as versions, and are paid, or they do not
    PUT, GET       median latency of small requests: an fsync takes about one PUT
    prefix         its contents: nothing, a volume, other objects
    result         what can be done here

  With --json, one object:

    place, endpoint, region, region_of_bucket, virtual_hosted
    identity       {id, source, expires (seconds since 1970)}
    clock_ahead    seconds by which this machine is ahead of the store
    operations     list of {operation, works, reason}; works is absent if it was not tried
    versioning     off, suspended, on or unknown; absent if the store has none
    versioning_reason
    put_ns, get_ns {count, median, max}
    prefix         {state, ...}: state is empty, volume, others, inside or unknown
    left           names of objects that the check wrote and could not delete
    readable, writable
    error          reason why the store cannot be used at all

WRITES:
  The check writes some 50 small objects below the prefix, named race/check-..., and removes them,
  also when it fails or is interrupted. No volume uses such names: it may run beside a mount. It
  writes nothing where the prefix is inside a volume. It ends within 15 seconds, whatever the store
  does. mkfs makes a longer test of If-None-Match.

EXIT STATUS:
  0   Everything that Shoal needs is there.
  1   Something is missing that is needed to make a volume, or to mount it for writing. Reading may
      work.
  2   Wrong usage, or the store cannot be used at all: no answer, no such bucket, wrong keys.
  130, 143  Interrupted by SIGINT or SIGTERM; what was written is removed.

EXAMPLES:
    shoal bucket check s3://my-bucket/volumes/home
    shoal bucket check --json s3://my-bucket/volumes/home | jq .writable
";

/// Find out whether a volume can be in a bucket, and what is missing
///
/// Shows the store's address, the keys and where they come from, and tries each operation that
/// Shoal uses.
#[derive(Args, Debug)]
#[command(after_long_help = CHECK_AFTER)]
pub(crate) struct BucketCheckArgs {
    /// Place of a volume: s3://BUCKET/PREFIX, gs://..., az://... or file:///DIRECTORY
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub url: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
