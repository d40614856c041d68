//! The table of rows: a call's number, its name, whether it changes anything, arguments, result.
//!
//! The macro makes of the list in [`crate::calls`]: the trait, [`ROWS`], what sends a call
//! ([`crate::client::Remote`]), and what answers one ([`answer`]). Rows *by hand* have arguments
//! that are no plain values; their two halves are in [`crate::client`] and [`crate::server`].

use crate::calls::Effect;

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its number, which is never used again.
    pub number: u16,
    /// The name of the call.
    pub name: &'static str,
    /// Its effect on the volume.
    pub effect: Effect,
}

macro_rules! rows {
    (
        $($(#[$doc:meta])* $number:literal $name:ident $effect:ident (
            $($arg:ident : $type:ty),* $(,)?
        ) -> $result:ty;)*
        by hand:
        $($(#[$hand_doc:meta])* $hand_number:literal $hand:ident $hand_effect:ident (
            $($hand_arg:ident : $hand_type:ty),* $(,)?
        ) -> $hand_result:ty;)*
    ) => {
        /// The calls, made for a caller.
        ///
        /// # Errors
        /// Those of the engine's call of the same meaning; of a session besides those of its
        /// connection.
        pub trait Calls: Send + Sync {
            $(
                $(#[$doc])*
                #[allow(clippy::missing_errors_doc, reason = "said of the trait")]
                fn $name(&self, who: &Caller, $($arg: $type),*) -> Result<$result>;
            )*
            $(
                $(#[$hand_doc])*
                #[allow(clippy::missing_errors_doc, reason = "said of the trait")]
                fn $hand(&self, who: &Caller, $($hand_arg: $hand_type),*) -> Result<$hand_result>;
            )*
        }

        /// All rows, in the order of their numbers.
        pub const ROWS: &[crate::rows::Row] = &[
            $(crate::rows::Row {
                number: $number, name: stringify!($name), effect: Effect::$effect,
            },)*
            $(crate::rows::Row {
                number: $hand_number, name: stringify!($hand), effect: Effect::$hand_effect,
            },)*
        ];

        /// Numbers of the rows.
        #[allow(non_upper_case_globals, dead_code, reason = "named as the calls; not all are used")]
        pub(crate) mod number {
            $(pub(crate) const $name: u16 = $number;)*
            $(pub(crate) const $hand: u16 = $hand_number;)*
        }

        /// Answers a row with plain arguments: reads them, makes the call, and writes its result.
        pub(crate) fn answer(
            gate: &mut crate::gate::Gate<'_>,
            who: &Caller,
            args: &mut crate::wire::Reader<'_>,
            out: &mut crate::wire::Writer<'_>,
        ) -> Result<()> {
            use crate::gate::{Admit, Grant};
            match gate.number {
                $($number => {
                    $(
                        let $arg: $type = crate::wire::Take::take(args)?;
                        let $arg: $type = Admit::admit($arg, gate)?;
                    )*
                    args.end()?;
                    let result: $result = gate.calls.$name(who, $($arg),*)?;
                    crate::wire::Put::put(&Grant::grant(result, gate)?, out);
                })*
                number => return Err(crate::wire::unknown_row(number)),
            }
            Ok(())
        }

        impl<L: crate::client::Link> Calls for crate::client::Remote<L> {
            $(
                fn $name(&self, who: &Caller, $($arg: $type),*) -> Result<$result> {
                    self.call($number, who, |_out| {
                        $(crate::wire::Put::put(&$arg, _out);)*
                    })
                }
            )*
            crate::client::by_hand!{}
        }
    };
}

pub(crate) use rows;
