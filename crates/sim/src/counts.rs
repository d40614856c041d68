//! Structs of counts that are added up.

/// Declares a struct whose fields are all `u64`, with `+=` and its numbers in the order of fields.
macro_rules! counts {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$what:meta])* pub $field:ident: u64,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$what])* pub $field: u64,)* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }

        impl $name {
            /// Returns the counts in the order of the fields.
            pub fn numbers(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }

            /// Makes it of numbers in the order of the fields; `None` if they are not as many.
            pub fn from_numbers(numbers: &[u64]) -> Option<$name> {
                let mut numbers = numbers.iter().copied();
                let counts = $name { $($field: numbers.next()?,)* };
                numbers.next().is_none().then_some(counts)
            }
        }
    };
}

pub(crate) use counts;
