//! Counters of the requests to a store, and their price.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! requests {
    ($($variant:ident $name:literal $class:ident $what:literal;)*) => {
        /// Kinds of requests.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Request { $(#[doc = $what] $variant,)* }
        impl Request {
            /// All kinds.
            pub const ALL: &'static [Request] = &[$(Request::$variant,)*];
            /// The kind's name in output.
            pub fn name(self) -> &'static str { match self { $(Request::$variant => $name,)* } }
            /// Its description.
            pub fn what(self) -> &'static str { match self { $(Request::$variant => $what,)* } }
            /// The class by which stores charge it.
            pub fn class(self) -> Class { match self { $(Request::$variant => Class::$class,)* } }
        }
    };
}

/// The class of a request in price lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// PUT and LIST.
    Write,
    /// GET.
    Read,
    /// DELETE.
    Free,
}

requests! {
    PutLog "put_log" Write "requests that write a log object, one for each flush";
    PutData "put_data" Write "requests that write a data object";
    PutManifest "put_manifest" Write "requests that write a manifest";
    Get "get" Read "requests that read an object or a part of one";
    List "list" Write "requests that list objects";
    Delete "delete" Free "requests that delete an object";
}

const KINDS: usize = Request::ALL.len();

/// Counters, shared by all threads.
#[derive(Default)]
pub(crate) struct Requests {
    count: [AtomicU64; KINDS],
    failed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Requests of a volume since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// By kind, as in [`Request::ALL`], those included that failed.
    pub count: [u64; KINDS],
    /// Requests that failed and were sent again.
    pub failed: u64,
    /// Bytes of objects sent.
    pub sent: u64,
    /// Bytes of objects received.
    pub received: u64,
}

impl Requests {
    pub(crate) fn add(&self, kind: Request, sent: u64) {
        self.count[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
    }
    pub(crate) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn read(&self) -> Counted {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counted {
            count: std::array::from_fn(|kind| of(&self.count[kind])),
            failed: of(&self.failed),
            sent: of(&self.sent),
            received: of(&self.received),
        }
    }
}

/// Prices of a store, in dollars.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// A thousand requests of [`Class::Write`].
    pub writes: f64,
    /// A thousand requests of [`Class::Read`].
    pub reads: f64,
    /// A gigabyte stored for a month.
    pub month: f64,
}

/// List prices of S3 Standard in us-east-1, as of 2026.
pub const S3: Prices = Prices { writes: 0.005, reads: 0.0004, month: 0.023 };

impl Counted {
    /// Requests of one kind.
    pub fn of(&self, kind: Request) -> u64 {
        self.count[kind as usize]
    }
    /// Requests of one class.
    pub fn of_class(&self, class: Class) -> u64 {
        Request::ALL.iter().filter(|kind| kind.class() == class).map(|kind| self.of(*kind)).sum()
    }
    /// The price of the requests, in dollars.
    pub fn price(&self, prices: &Prices) -> f64 {
        let thousands = |class| self.of_class(class) as f64 / 1000.0;
        thousands(Class::Write) * prices.writes + thousands(Class::Read) * prices.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind_and_priced_by_class() {
        let requests = Requests::default();
        for _ in 0..2000 {
            requests.add(Request::PutLog, 100);
        }
        (0..1000).for_each(|_| requests.add(Request::List, 0));
        (0..500).for_each(|_| requests.add(Request::Get, 0));
        (0..500).for_each(|_| requests.add(Request::Delete, 0));
        requests.received(7);
        let found = requests.read();
        assert_eq!((found.of(Request::PutLog), found.sent, found.received), (2000, 200_000, 7));
        assert_eq!(found.of_class(Class::Write), 3000);
        let expected = 3.0 * S3.writes + 0.5 * S3.reads;
        assert!((found.price(&S3) - expected).abs() < 1e-9);
    }
}
