//! Calls on the newest view of a volume that another process changes.

use crate::calls::types::*;
use crate::calls::{Calls, ChangeFeed, How, Node, TreeWatch, table};
use shoal_engine::{Caller, Result, TreeChange, TreeChanged};
use std::sync::Arc;

/// Makes each call on the calls that `F` returns then. Numbers of nodes must mean the same in all
/// of them.
pub struct Newest<F>(pub F);

impl<F> std::fmt::Debug for Newest<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Newest")
    }
}

macro_rules! pass_on {
    (
        $($(#[$doc:meta])* $number:literal $name:ident $effect:ident (
            $($arg:ident : $type:ty),* $(,)?
        ) -> $result:ty;)*
        by hand:
        $($(#[$hand_doc:meta])* $hand_number:literal $hand:ident $hand_effect:ident (
            $($hand_arg:ident : $hand_type:ty),* $(,)?
        ) -> $hand_result:ty;)*
    ) => {
        impl<F: Fn() -> Arc<dyn Calls> + Send + Sync> Calls for Newest<F> {
            $(
                fn $name(&self, who: &Caller, $($arg: $type),*) -> Result<$result> {
                    (self.0)().$name(who, $($arg),*)
                }
            )*
            $(
                fn $hand(&self, who: &Caller, $($hand_arg: $hand_type),*) -> Result<$hand_result> {
                    (self.0)().$hand(who, $($hand_arg),*)
                }
            )*
        }
    };
}

table!(pass_on);
