//! Entries: values that fit into a pointer, distinguished from a node by two bits.
//!
//! | low bits of a slot | it holds |
//! | --- | --- |
//! | all zero | nothing |
//! | `00` | a pointer entry |
//! | `01` | a pointer entry that may be removed: see [`Counted`] |
//! | `01`, where entries are values | a value |
//! | `10` | a node, one level down |
//!
//! An entry type is either a pointer or a value, so the two meanings of `01` never collide.

use std::ptr::without_provenance_mut;
use std::sync::Arc;

/// A slot's content.
pub(crate) type Raw = *mut ();

/// Set in a slot while a remover decides whether its entry is unused.
pub(crate) const LEAVING: usize = 0b01;
/// Set in a slot that holds a node.
pub(crate) const NODE: usize = 0b10;

/// A type that an [`XArray`](crate::XArray) can hold: an [`Arc`] or a [`Value`].
///
/// # Safety
///
/// * `into_raw` must return neither null nor a pointer that is not recognised as an entry: the low
///   bits are `00` if `COUNTED`, and `01` if not.
/// * `as_raw` must return what `into_raw` would; entries are the same exactly if their `as_raw` is.
/// * `clone_raw`, `borrow_raw` and `drop_raw` may be called from several threads on a pointer from
///   `into_raw` until `drop_raw` has been called on it once.
pub unsafe trait Entry: Clone + Send + Sync + 'static {
    /// The view that a reader gets without ownership: `&T` for an `Arc<T>`.
    type Ref<'a>: Copy;

    /// `true` if clones share a reference count. The two low bits are then free.
    const COUNTED: bool;

    /// Converts the entry into a pointer that owns it.
    fn into_raw(self) -> *mut ();

    /// The pointer that identifies this entry.
    fn as_raw(&self) -> *mut ();

    /// Clones the entry behind the pointer.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw` and `drop_raw` has not been called on it.
    unsafe fn clone_raw(raw: *mut ()) -> Self;

    /// Borrows the entry behind the pointer.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw` and `drop_raw` is not called on it during `'a`.
    unsafe fn borrow_raw<'a>(raw: *mut ()) -> Self::Ref<'a>;

    /// Drops the entry that the pointer owns.
    ///
    /// # Safety
    ///
    /// `raw` is from `into_raw` and this is the only call.
    unsafe fn drop_raw(raw: *mut ());
}

/// An entry with a reference count, so that it can be removed if nobody else holds it.
///
/// # Safety
///
/// The count returned by `holders` must be changed only by `clone_raw` and `clone` (incremented at
/// once) and by dropping or `drop_raw` (decremented, with release ordering).
pub unsafe trait Counted: Entry {
    /// Number of holders at some moment after the call began. Weak references do not count.
    /// Relaxed.
    fn holders(&self) -> usize;

    /// Borrows the entry.
    fn look(&self) -> Self::Ref<'_>;
}

// SAFETY: the pointer is that of the Arc, which is aligned for its counters (checked), the
// functions do what those of Arc do, and `T` may be used and dropped by any thread, at any time.
unsafe impl<T: Send + Sync + 'static> Entry for Arc<T> {
    type Ref<'a> = &'a T;
    const COUNTED: bool = true;

    #[inline]
    fn into_raw(self) -> *mut () {
        let raw = Arc::into_raw(self).cast_mut().cast::<()>();
        // The counters stand before the value and their size is a multiple of 8, so the
        // assertion holds for every `T`, although the standard library does not promise it.
        assert!(raw.addr() & (LEAVING | NODE) == 0, "an Arc at {raw:?}");
        raw
    }

    #[inline]
    fn as_raw(&self) -> *mut () {
        Arc::as_ptr(self).cast_mut().cast()
    }

    // SAFETY: as the trait says.
    #[inline]
    unsafe fn clone_raw(raw: *mut ()) -> Arc<T> {
        let value = raw.cast_const().cast::<T>();
        // SAFETY: the caller promises that the pointer is from `Arc::into_raw` and was not
        // dropped. The count added here belongs to the new Arc.
        unsafe {
            Arc::increment_strong_count(value);
            Arc::from_raw(value)
        }
    }

    // SAFETY: as the trait says.
    #[inline]
    unsafe fn borrow_raw<'a>(raw: *mut ()) -> &'a T {
        // SAFETY: the caller promises that the pointer is from `Arc::into_raw` and that the
        // array's count is not dropped during 'a.
        unsafe { &*raw.cast_const().cast::<T>() }
    }

    // SAFETY: as the trait says.
    #[inline]
    unsafe fn drop_raw(raw: *mut ()) {
        // SAFETY: the caller promises that the pointer is from `Arc::into_raw` and dropped only
        // here.
        drop(unsafe { Arc::from_raw(raw.cast_const().cast::<T>()) });
    }
}

// SAFETY: the count is the Arc's own.
unsafe impl<T: Send + Sync + 'static> Counted for Arc<T> {
    #[inline]
    fn holders(&self) -> usize {
        Arc::strong_count(self)
    }

    #[inline]
    fn look(&self) -> &T {
        self
    }
}

/// A number in place of a pointer, two bits shorter (after Linux's `xa_mk_value`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value(usize);

impl Value {
    /// The largest: 2⁶² - 1 where pointers have 64 bits.
    pub const MAX: Value = Value(usize::MAX >> 2);

    /// The number as an entry; `None` above [`Value::MAX`]. O(1).
    #[inline]
    pub const fn new(number: usize) -> Option<Value> {
        if number <= Value::MAX.0 { Some(Value(number)) } else { None }
    }

    /// The number. O(1).
    #[inline]
    pub const fn get(self) -> usize {
        self.0
    }
}

// SAFETY: the low bits are `01` and nothing is owned.
unsafe impl Entry for Value {
    type Ref<'a> = Value;
    const COUNTED: bool = false;

    #[inline]
    fn into_raw(self) -> *mut () {
        self.as_raw()
    }

    #[inline]
    fn as_raw(&self) -> *mut () {
        without_provenance_mut(self.0 << 2 | LEAVING)
    }

    // SAFETY: has no requirements.
    #[inline]
    unsafe fn clone_raw(raw: *mut ()) -> Value {
        Value(raw.addr() >> 2)
    }

    // SAFETY: has no requirements.
    #[inline]
    unsafe fn borrow_raw<'a>(raw: *mut ()) -> Self::Ref<'a> {
        Value(raw.addr() >> 2)
    }

    // SAFETY: has no requirements.
    #[inline]
    unsafe fn drop_raw(_raw: *mut ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_two_bits_less_than_a_pointer() {
        for number in [0, 1, usize::MAX >> 2] {
            let value = Value::new(number).expect("fits");
            assert_eq!(value.get(), number);
            let raw = value.into_raw();
            assert!(!raw.is_null() && raw.addr() & NODE == 0);
            // SAFETY: from `into_raw`, never dropped.
            assert_eq!(unsafe { Value::clone_raw(raw) }, value);
        }
        assert_eq!(Value::new(usize::MAX / 4 + 1), None);
    }

    #[test]
    fn arcs_of_odd_sizes_leave_the_low_bits_free() {
        fn check<T: Send + Sync + 'static>(value: T) {
            let raw = Arc::new(value).into_raw();
            // SAFETY: from `into_raw`, dropped once.
            unsafe { <Arc<T> as Entry>::drop_raw(raw) };
        }
        check(());
        check(1u8);
        check([1u8; 3]);
        check(1u128);
    }
}
