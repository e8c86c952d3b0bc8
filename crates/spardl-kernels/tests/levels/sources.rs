//! The pass over gradients of every type and scale, against a naive oracle.

use half::{bf16, f16};
use proptest::prelude::*;
use spardl_kernels::*;

use super::{bits, earlier, naive_candidates, noise, same_candidates, threshold, with_earlier};

/// 16-bit patterns: mostly of moderate values, some subnormal, zero or huge, one in some hundred anything.
fn patterns() -> impl Strategy<Value = Vec<u16>> {
    let pattern = prop_oneof![
        300 => prop_oneof![0x3000u16..0x4000, 0xb000u16..0xc000],
        100 => prop::sample::select(vec![0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x007f, 0x0080, 0x7bff, 0xfbff]),
        1 => any::<u16>(),
        1 => prop::sample::select(vec![0x7c00, 0xfc00, 0x7c01, 0xfe00, 0x7f80, 0xff80, 0x7f81, 0xffff]),
    ];
    let length = prop_oneof![3 => 0usize..300, 1 => 0usize..5000];
    length.prop_flat_map(move |length| prop::collection::vec(pattern.clone(), length))
}

fn scale() -> impl Strategy<Value = f32> {
    prop_oneof![
        3 => prop::sample::select(vec![
            1.0, -1.0, 0.5, 0.0, -0.0, 1.0 / 65536.0, f32::MIN_POSITIVE, f32::from_bits(1), 1e34, f32::MAX,
        ]),
        1 => prop::sample::select(vec![f32::INFINITY, f32::NAN]),
        2 => -3.0f32..3.0,
    ]
}

/// The same patterns as a gradient of each type, with their values according to the crate `half`.
fn each_source(patterns: &[u16], check: impl Fn(Source<'_>, Vec<f32>)) {
    let halves: Vec<f16> = patterns.iter().map(|&p| f16::from_bits(p)).collect();
    let brains: Vec<bf16> = patterns.iter().map(|&p| bf16::from_bits(p)).collect();
    let singles: Vec<f32> = halves.iter().map(|h| h.to_f32()).collect();
    check(Source::F16(&halves), singles.clone());
    check(
        Source::Bf16(&brains),
        brains.iter().map(|b| b.to_f32()).collect(),
    );
    check(Source::F32(&singles), singles.clone());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn accumulate_has_the_bits_of_the_widened_and_scaled_gradient_at_every_level(
        patterns in patterns(),
        scale in scale(),
        offset in 0usize..18,
        base in 0u32..1 << 31,
        threshold in threshold(),
        seed in any::<u32>(),
    ) {
        let residual = noise(patterns.len(), seed);
        each_source(&patterns, |source, values| {
            let products = values.iter().map(|value| value * scale);
            let expected: Vec<f32> = residual.iter().zip(products).map(|(r, g)| r + g).collect();
            let finite = expected.iter().all(|value| value.is_finite());
            let candidates = with_earlier(naive_candidates(&expected, base, threshold));
            for level in Level::available() {
                let context = format!("{} {scale:e} {source:?}", level.name());
                let mut work = vec![0.5; values.len() + offset];
                let mut out = earlier();
                let gradient = Scaled { source, scale };
                let seen = accumulate(
                    level, &residual, gradient, &mut work[offset..], base, threshold, &mut out,
                );
                assert_eq!(seen, finite, "{context}");
                if finite {
                    assert_eq!(bits(&work[offset..]), bits(&expected), "{context}");
                    assert!(same_candidates(&out, &candidates), "{context}");
                }
            }
        });
    }

    #[test]
    fn copy_has_the_bits_of_the_widened_and_scaled_gradient_at_every_level(
        patterns in patterns(),
        scale in scale(),
    ) {
        each_source(&patterns, |source, values| {
            let expected: Vec<f32> = values.iter().map(|value| value * scale).collect();
            let finite = expected.iter().all(|value| value.is_finite());
            for level in Level::available() {
                let mut work = vec![0.5; values.len()];
                let context = format!("{} {scale:e} {source:?}", level.name());
                assert_eq!(copy(level, Scaled { source, scale }, &mut work), finite, "{context}");
                if finite {
                    assert_eq!(bits(&work), bits(&expected), "{context}");
                }
            }
        });
    }
}

#[test]
fn large_narrow_gradients_take_the_streaming_path_and_give_the_same_bits() {
    let len = 300_003;
    let residual = noise(len, 1);
    let patterns: Vec<u16> = noise(len, 2)
        .iter()
        .map(|&v| f16::from_f32(v).to_bits())
        .collect();
    each_source(&patterns, |source, values| {
        for scale in [1.0, 0.75] {
            let products = values.iter().map(|value| value * scale);
            let expected: Vec<f32> = residual.iter().zip(products).map(|(r, g)| r + g).collect();
            for threshold in [f32::INFINITY, 1.2, 0.0] {
                let candidates = naive_candidates(&expected, 5, threshold);
                for level in Level::available() {
                    let (mut work, mut out) = (vec![0.0; len + 1], Entries::new());
                    let gradient = Scaled { source, scale };
                    let work = &mut work[1..];
                    assert!(accumulate(
                        level, &residual, gradient, work, 5, threshold, &mut out
                    ));
                    assert_eq!(bits(work), bits(&expected), "{}", level.name());
                    assert!(same_candidates(&out, &candidates), "{}", level.name());
                }
            }
        }
    });
}

#[test]
fn a_product_that_overflows_is_seen_wherever_it_is() {
    let (len, residual) = (200_003, vec![1.0; 200_003]);
    let mut work = vec![0.0; len];
    for place in [0, 17, 123_456, len - 1] {
        let mut gradient = vec![f16::ONE; len];
        gradient[place] = f16::MAX;
        let gradient = Scaled {
            source: Source::F16(&gradient),
            scale: 1e34,
        };
        for level in Level::available() {
            let mut out = Entries::new();
            assert!(!accumulate(
                level, &residual, gradient, &mut work, 0, 1e35, &mut out
            ));
            assert!(!copy(level, gradient, &mut work));
        }
    }
}
