//! Placeholder of the tests.
