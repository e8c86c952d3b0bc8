//! What a normal distribution would have: moments and quantiles.

use spardl_kernels::Level;

/// Mean and standard deviation (of a sample, as torch's), in one read of the array.
pub(super) fn moments(values: &[f32]) -> (f64, f64) {
    /// The second of the two sums finds these elements in the first-level cache.
    const CHUNK: usize = 4096;
    let level = Level::best();
    let (mut sum, mut squares) = (0.0, 0.0);
    for chunk in values.chunks(CHUNK) {
        sum += spardl_kernels::sum(level, chunk);
        squares += spardl_kernels::sum_of_squares(level, chunk);
    }
    let count = values.len() as f64;
    let mean = sum / count;
    let variance = (squares - sum * mean) / (count - 1.0).max(1.0);
    (mean, variance.max(0.0).sqrt())
}

/// `Phi^-1(1 - tail)` for `0 < tail <= 1/2` (P. J. Acklam's approximation).
pub(super) fn upper_quantile(tail: f64) -> f64 {
    const CENTRE: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const CENTRE_BELOW: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const TAIL: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_BELOW: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const BREAK: f64 = 0.024_25;
    let at = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if tail < BREAK {
        let q = (-2.0 * tail.ln()).sqrt();
        -at(&TAIL, q) / at(&TAIL_BELOW, q)
    } else {
        let q = 0.5 - tail;
        q * at(&CENTRE, q * q) / at(&CENTRE_BELOW, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (density, z) in [
            (1.0, 0.0),
            (0.5, 0.674_489_750_2),
            (0.05, 1.959_963_984_5),
            (0.049, 1.968_591_669_2),
            (0.048, 1.977_368_428_2),
            (0.01, 2.575_829_303_5),
            (0.001, 3.290_526_731_5),
            (1e-6, 4.891_638_475_7),
        ] {
            let got = upper_quantile(density / 2.0);
            assert!((got - z).abs() < 2e-7, "density {density}: {got}, not {z}");
        }
    }
}
