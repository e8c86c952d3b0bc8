//! Every level against the portable one, and the portable one against a naive oracle.

mod expand;
mod lists;
mod sources;

use proptest::prelude::*;
use spardl_kernels::*;

/// Finite values with everything that could go wrong: signed zeros, subnormals, extremes, ties, any bit pattern.
fn finite() -> impl Strategy<Value = f32> + Clone {
    prop_oneof![
        4 => -1.0f32..1.0,
        2 => prop::sample::select(vec![
            0.0, -0.0, 0.5, -0.5, 1.0, f32::from_bits(1), -f32::from_bits(1), f32::from_bits(0x007f_ffff),
            f32::MIN_POSITIVE, f32::MAX / 2.0, f32::MIN / 2.0,
        ]),
        1 => any::<u32>().prop_map(f32::from_bits).prop_filter("halved so that sums stay finite", |x| {
            x.abs() <= f32::MAX / 2.0
        }),
    ]
}

/// Any value; one in a hundred or so is not finite.
fn rarely_finite() -> impl Strategy<Value = f32> + Clone {
    prop_oneof![
        200 => finite(),
        1 => prop::sample::select(vec![
            f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY, f32::MAX,
        ]),
    ]
}

/// Pairs of values (so that the slices agree in length) and where the sub-slice under test starts.
fn pairs(
    value: impl Strategy<Value = f32> + Clone,
) -> impl Strategy<Value = (Vec<f32>, Vec<f32>, usize)> {
    let length = prop_oneof![3 => 0usize..300, 1 => 0usize..5000];
    (length, 0usize..18).prop_flat_map(move |(length, offset)| {
        let total = length + offset;
        let vector = prop::collection::vec(value.clone(), total);
        (vector.clone(), vector, Just(offset))
    })
}

fn threshold() -> impl Strategy<Value = f32> + Clone {
    prop_oneof![
        prop::sample::select(vec![
            0.0,
            -0.0,
            -1.0,
            0.5,
            f32::from_bits(1),
            f32::MIN_POSITIVE,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ]),
        0.0f32..1.5,
    ]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn same_candidates(a: &Entries, b: &Entries) -> bool {
    a.indices == b.indices && bits(&a.values) == bits(&b.values)
}

/// What `extract` is to find, in one line.
fn naive_candidates(work: &[f32], base: u32, threshold: f32) -> Entries {
    let (indices, values) = (base..)
        .zip(work.iter().copied())
        .filter(|(_, w)| threshold.is_finite() && *w != 0.0 && (w.is_nan() || w.abs() >= threshold))
        .unzip();
    Entries { indices, values }
}

/// Some entries from an earlier pass, which must survive.
fn earlier() -> Entries {
    Entries {
        indices: vec![7, 9],
        values: vec![1.0, -2.0],
    }
}

fn with_earlier(found: Entries) -> Entries {
    let mut all = earlier();
    all.indices.extend(found.indices);
    all.values.extend(found.values);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn accumulate_adds_and_finds_the_same_candidates_at_every_level(
        (residual, gradient, offset) in pairs(finite()),
        other in 0usize..18,
        base in 0u32..1 << 31,
        threshold in threshold(),
    ) {
        let (r, g) = (&residual[offset..], &gradient[offset..]);
        let expected: Vec<f32> = r.iter().zip(g).map(|(r, g)| r + g).collect();
        let candidates = with_earlier(naive_candidates(&expected, base, threshold));
        for level in Level::available() {
            // `work` starts at an address that differs from the inputs' modulo 64.
            let mut work = vec![f32::NAN; r.len() + other];
            let mut out = earlier();
            prop_assert!(accumulate(level, r, g.into(), &mut work[other..], base, threshold, &mut out));
            prop_assert_eq!(bits(&work[other..]), bits(&expected), "{}", level.name());
            prop_assert!(same_candidates(&out, &candidates), "{}", level.name());
            prop_assert!(bits(&work[..other]).iter().all(|&b| b == f32::NAN.to_bits()));
        }
    }

    #[test]
    fn accumulate_reports_every_sum_that_is_not_finite(
        (residual, gradient, offset) in pairs(rarely_finite()),
        threshold in threshold(),
    ) {
        let (r, g) = (&residual[offset..], &gradient[offset..]);
        let finite = r.iter().zip(g).all(|(r, g)| (r + g).is_finite());
        for level in Level::available() {
            let mut out = earlier();
            let mut work = vec![0.0; r.len()];
            prop_assert_eq!(accumulate(level, r, g.into(), &mut work, 0, threshold, &mut out), finite);
            prop_assert_eq!(out.indices.len(), out.values.len());
            prop_assert_eq!(&out.indices[..2], &earlier().indices[..]);
        }
    }

    #[test]
    fn copy_keeps_the_bits_and_reports_values_that_are_not_finite(
        (a, _, offset) in pairs(rarely_finite()),
    ) {
        let a = &a[offset..];
        for level in Level::available() {
            let mut work = vec![0.0; a.len()];
            let finite = copy(level, a.into(), &mut work);
            prop_assert_eq!(finite, a.iter().all(|x| x.is_finite()));
            prop_assert_eq!(all_finite(level, a), finite);
            if finite {
                prop_assert_eq!(bits(&work), bits(a));
            }
        }
    }

    #[test]
    fn extract_finds_the_same_candidates_at_every_level(
        (a, _, offset) in pairs(rarely_finite()),
        base in 0u32..1 << 31,
        threshold in threshold(),
        present in any::<prop::sample::Index>(),
    ) {
        let a = &a[offset..];
        let tie = if a.is_empty() { 0.0 } else { a[present.index(a.len())].abs() };
        for threshold in [threshold, tie] {
            let expected = with_earlier(naive_candidates(a, base, threshold));
            for level in Level::available() {
                let mut out = earlier();
                extract(level, a, base, threshold, &mut out);
                prop_assert!(same_candidates(&out, &expected), "{} {threshold:e}", level.name());
            }
        }
    }

    #[test]
    fn add_assign_adds_at_every_level((a, b, offset) in pairs(finite())) {
        let (a, b) = (&a[offset..], &b[offset..]);
        let expected: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
        for level in Level::available() {
            let mut sum = a.to_vec();
            add_assign(level, &mut sum, b);
            prop_assert_eq!(bits(&sum), bits(&expected), "{}", level.name());
        }
    }

    #[test]
    fn sums_have_the_documented_order_at_every_level((a, _, offset) in pairs(finite())) {
        let a = &a[offset..];
        let in_order = |term: fn(f32) -> f64| {
            let mut lanes: Vec<f64> =
                (0..32).map(|l| a.iter().skip(l).step_by(32).fold(0.0, |s, &x| s + term(x))).collect();
            while lanes.len() > 1 {
                let (low, high) = lanes.split_at(lanes.len() / 2);
                lanes = low.iter().zip(high).map(|(l, h)| l + h).collect();
            }
            lanes[0].to_bits()
        };
        for level in Level::available() {
            prop_assert_eq!(sum(level, a).to_bits(), in_order(f64::from));
            prop_assert_eq!(sum_of_squares(level, a).to_bits(), in_order(|x| f64::from(x) * f64::from(x)));
        }
    }

    #[test]
    fn bf16_is_the_nearest_pattern_with_ties_to_even((a, _, offset) in pairs(rarely_finite())) {
        let a = &a[offset..];
        let mut expected = vec![0; a.len()];
        to_bf16(Level::Portable, a, &mut expected);
        for (&x, &pattern) in a.iter().zip(&expected) {
            prop_assert!(is_nearest_bf16(x, pattern), "{x:e} became {pattern:#06x}");
        }
        for level in Level::available() {
            let mut narrow = vec![0; a.len()];
            to_bf16(level, a, &mut narrow);
            prop_assert_eq!(&narrow, &expected, "{}", level.name());
            let mut wide = vec![0.0; a.len()];
            from_bf16(level, &narrow, &mut wide);
            let naive: Vec<u32> = narrow.iter().map(|&b| u32::from(b) << 16).collect();
            prop_assert_eq!(bits(&wide), naive, "{}", level.name());
            let (mut rounded, mut errors) = (a.to_vec(), vec![1.0; a.len()]);
            round_bf16(level, &mut rounded, &mut errors);
            prop_assert_eq!(bits(&rounded), bits(&wide), "{}", level.name());
            let left = a.iter().zip(&wide).map(|(x, wire)| if wire.is_finite() { x - wire } else { 0.0 });
            prop_assert_eq!(bits(&errors), bits(&left.collect::<Vec<f32>>()), "{}", level.name());
        }
    }
}

/// Is `pattern` the closest bf16 to `x`, the even one of two equally close? Infinity counts as the step after the largest.
fn is_nearest_bf16(x: f32, pattern: u16) -> bool {
    let value = |pattern: u16| match f32::from_bits(u32::from(pattern) << 16) {
        inf if inf.is_infinite() => f64::from(inf.signum()) * 2f64.powi(128),
        finite => f64::from(finite),
    };
    if x.is_nan() {
        return f32::from_bits(u32::from(pattern) << 16).is_nan()
            && x.is_sign_negative() == (pattern >> 15 == 1);
    }
    if x.is_infinite() {
        return u32::from(pattern) << 16 == x.to_bits();
    }
    let distance = |pattern: u16| (value(pattern) - f64::from(x)).abs();
    let here = distance(pattern);
    let sign_kept = x.is_sign_negative() == (pattern >> 15 == 1);
    let neighbours = [pattern.wrapping_sub(1), pattern + 1];
    sign_kept
        && neighbours
            .iter()
            .filter(|n| **n & 0x7fff <= 0x7f80)
            .all(|&n| {
                n >> 15 != pattern >> 15
                    || here < distance(n)
                    || here == distance(n) && pattern & 1 == 0
            })
}

/// Cheap pseudo-random values in (-1, 1), the same everywhere.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn large_slices_take_the_streaming_path_and_give_the_same_bits() {
    let len = 2_000_003;
    let (residual, gradient) = (noise(len, 1), noise(len, 2));
    let expected: Vec<f32> = residual.iter().zip(&gradient).map(|(r, g)| r + g).collect();
    for threshold in [f32::INFINITY, 1.8, 0.5, 0.0] {
        let candidates = naive_candidates(&expected, 5, threshold);
        for level in Level::available() {
            for offset in [0, 1, 15] {
                let mut work = vec![0.0; len + offset];
                let mut out = Entries::new();
                assert!(accumulate(
                    level,
                    &residual,
                    gradient[..].into(),
                    &mut work[offset..],
                    5,
                    threshold,
                    &mut out
                ));
                assert_eq!(bits(&work[offset..]), bits(&expected), "{}", level.name());
                assert!(same_candidates(&out, &candidates), "{}", level.name());
            }
        }
    }
}

#[test]
fn one_bad_value_anywhere_in_a_large_slice_is_seen() {
    let len = 2_000_003;
    let residual = vec![0.25; len];
    let mut work = vec![0.0; len];
    for place in [0, 1, 17, 4_000, 1_234_567, len - 1] {
        let mut gradient = vec![0.25; len];
        gradient[place] = f32::NEG_INFINITY;
        for level in Level::available() {
            let mut out = Entries::new();
            assert!(!accumulate(
                level,
                &residual,
                gradient[..].into(),
                &mut work,
                0,
                1.0,
                &mut out
            ));
            assert!(!copy(level, gradient[..].into(), &mut work));
            assert!(!all_finite(level, &gradient));
        }
    }
}

#[test]
fn a_large_copy_keeps_the_bits() {
    let gradient = noise(2_000_003, 3);
    for level in Level::available() {
        let mut work = vec![0.0; gradient.len() + 3];
        assert!(copy(level, gradient[..].into(), &mut work[3..]));
        assert_eq!(bits(&work[3..]), bits(&gradient));
    }
}

#[test]
fn memory_for_candidates_follows_their_number_not_the_length() {
    let len = 2_000_003;
    let (residual, gradient) = (vec![0.0; len], noise(len, 4));
    for level in Level::available() {
        let mut work = vec![0.0; len];
        let mut out = Entries::new();
        accumulate(
            level,
            &residual,
            gradient[..].into(),
            &mut work,
            0,
            0.99,
            &mut out,
        );
        assert!(
            out.indices.capacity() < 2 * out.len() + 20_000,
            "{}",
            level.name()
        );
    }
}

#[test]
fn indices_reach_the_end_of_u32() {
    let work = vec![1.0; 1000];
    for level in Level::available() {
        let mut out = Entries::new();
        extract(level, &work, u32::MAX - 999, 0.5, &mut out);
        assert_eq!(out.indices.last(), Some(&u32::MAX), "{}", level.name());
    }
}

#[test]
fn blocks_on_several_threads_give_the_bits_of_one_call() {
    let values = |seed: u32| -> Vec<f32> {
        let mix = |i: u32| {
            i.wrapping_mul(2_654_435_761)
                .wrapping_add(seed)
                .rotate_left(13)
        };
        (0..200_000)
            .map(|i| (mix(i) % 2001) as f32 * 0.37 - 370.0)
            .collect()
    };
    let (residual, gradient) = (values(1), values(77));
    let (block, threshold) = (70_001, 600.0);
    for level in Level::available() {
        let mut whole = (vec![0.0; residual.len()], Entries::new());
        assert!(accumulate(
            level,
            &residual,
            gradient[..].into(),
            &mut whole.0,
            0,
            threshold,
            &mut whole.1
        ));
        let mut work = vec![0.0; residual.len()];
        let blocks = residual.chunks(block).zip(gradient.chunks(block));
        let found: Vec<Entries> = std::thread::scope(|scope| {
            let blocks = blocks.zip(work.chunks_mut(block)).enumerate();
            let threads: Vec<_> = blocks
                .map(|(at, ((r, g), w))| {
                    scope.spawn(move || {
                        let mut out = Entries::new();
                        assert!(accumulate(
                            level,
                            r,
                            g.into(),
                            w,
                            (at * block) as u32,
                            threshold,
                            &mut out
                        ));
                        out
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let indices: Vec<u32> = found
            .iter()
            .flat_map(|found| found.indices.clone())
            .collect();
        let kept: Vec<f32> = found
            .iter()
            .flat_map(|found| found.values.clone())
            .collect();
        assert!(
            !indices.is_empty() && indices == whole.1.indices,
            "{}",
            level.name()
        );
        assert_eq!(bits(&kept), bits(&whole.1.values), "{}", level.name());
        assert_eq!(bits(&work), bits(&whole.0), "{}", level.name());
    }
}

#[test]
fn bad_arguments_panic_at_every_level() {
    for level in Level::available() {
        let panics = |call: fn(Level)| std::panic::catch_unwind(move || call(level)).is_err();
        assert!(panics(|level| take_at(
            level,
            &mut [1.0; 4],
            &[0, 4],
            &mut Vec::new()
        )));
        assert!(panics(|level| take_at(
            level,
            &mut [],
            &[0],
            &mut Vec::new()
        )));
        assert!(panics(|level| scatter(
            level,
            &mut [1.0; 4],
            &[4, 0],
            &[1.0, 1.0]
        )));
        assert!(panics(|level| scatter(
            level,
            &mut [1.0; 4],
            &[0],
            &[1.0, 1.0]
        )));
        assert!(panics(|level| add_assign(level, &mut [1.0; 4], &[1.0; 3])));
        assert!(panics(|level| to_bf16(level, &[1.0; 4], &mut [0; 3])));
        assert!(panics(|level| leave(level, &mut [1.0; 4], 1, &[0.0; 3])));
        assert!(panics(|level| round_bf16(
            level,
            &mut [1.0; 4],
            &mut [0.0; 3]
        )));
        assert!(panics(|level| from_bf16(level, &[0; 4], &mut [0.0; 3])));
        assert!(panics(|level| {
            copy(level, [1.0; 4][..].into(), &mut [0.0; 5]);
        }));
        assert!(panics(|level| {
            accumulate(
                level,
                &[1.0; 4],
                [1.0; 5][..].into(),
                &mut [0.0; 5],
                0,
                1.0,
                &mut Entries::new(),
            );
        }));
        assert!(panics(|level| extract(
            level,
            &[1.0; 4],
            u32::MAX - 2,
            1.0,
            &mut Entries::new()
        )));
    }
}
