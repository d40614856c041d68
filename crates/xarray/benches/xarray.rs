//! The cost of the calls, in batches of thousands: `cargo bench -p shoal-xarray`.
//!
//! For single operations with percentiles, and for other structures, see `shoal bench inode-index`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use shoal_xarray::{Mark, Value, XArray};
use std::hint::black_box;
use std::sync::Arc;

const ENTRIES: u64 = 1 << 20;
const BATCH: u64 = 1 << 14;

fn value(number: u64) -> Value {
    Value::new(number as usize).expect("small")
}

fn filled(stride: u64) -> XArray<Value> {
    let array = XArray::new();
    for n in 0..ENTRIES {
        array.insert(n * stride, value(n)).expect("memory");
    }
    array
}

/// Indexes in an unpredictable order.
fn scattered() -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    (0..BATCH).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 32) * ENTRIES) >> 32
    })
}

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(BATCH));
    for (name, stride) in [("dense", 1), ("every 64th", 64)] {
        let array = filled(stride);
        group.bench_function(format!("get pinned once, {name}"), |b| {
            b.iter(|| {
                let guard = array.pin();
                scattered().for_each(|n| {
                    black_box(guard.get(n * stride));
                });
            });
        });
        group.bench_function(format!("get, {name}"), |b| {
            b.iter(|| {
                scattered().for_each(|n| {
                    black_box(array.get(n * stride));
                });
            });
        });
        group.bench_function(format!("iterate pinned, {name}"), |b| {
            b.iter(|| black_box(array.pin().range(..).take(BATCH as usize).count()));
        });
    }
    let array = XArray::new();
    for n in 0..ENTRIES {
        array.insert(n, Arc::new(n)).expect("memory");
    }
    group.bench_function("get an Arc, dense", |b| {
        b.iter(|| scattered().for_each(|n| drop(black_box(array.get(n)))));
    });
    group.finish();
}

fn writing(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(BATCH));
    for (name, stride) in [("dense", 1), ("every 64th", 64)] {
        group.bench_function(format!("insert, {name}"), |b| {
            let insert = |array: XArray<Value>| {
                for n in 0..BATCH {
                    array.insert(n * stride, value(n)).expect("memory");
                }
                array
            };
            b.iter_batched(XArray::new, insert, BatchSize::SmallInput);
        });
    }
    let array = filled(1);
    group.bench_function("set and clear a mark", |b| {
        b.iter(|| {
            scattered().for_each(|n| {
                array.set_mark(n, Mark::A);
                array.clear_mark(n, Mark::A);
            });
        });
    });
    group.bench_function("alloc and remove", |b| {
        b.iter(|| {
            scattered().for_each(|n| {
                array.remove(n);
                black_box(array.alloc(.., value(n)).expect("a gap"));
            });
        });
    });
    group.finish();
}

criterion_group!(benches, reading, writing);
criterion_main!(benches);
