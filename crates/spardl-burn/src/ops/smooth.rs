//! The hyperbolic tangent and the logistic function in plain arithmetic, so that loops over them use vector instructions and
//! give the same bits everywhere.

/// The hyperbolic tangent, within 1e-6.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // A quotient of polynomials, fitted on the interval beyond which the result is 1 in f32.
    let x = x.clamp(-7.905, 7.905);
    let s = x * x;
    let p = -2.760_768_5e-16;
    let p = p * s + 2.000_188e-13;
    let p = p * s + -8.604_672e-11;
    let p = p * s + 5.122_297_1e-8;
    let p = p * s + 1.485_722_4e-5;
    let p = p * s + 6.372_619_3e-4;
    let p = p * s + 4.893_525e-3;
    let q = 1.198_258_4e-6;
    let q = q * s + 1.185_347_1e-4;
    let q = q * s + 2.268_434_6e-3;
    let q = q * s + 4.893_525e-3;
    x * p / q
}

/// One over one plus `exp(-x)`.
#[inline(always)]
pub(super) fn logistic(x: f32) -> f32 {
    0.5 * tanh(0.5 * x) + 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_close_to_the_exact_ones() {
        for step in -2000..=2000 {
            let x = step as f32 * 0.01;
            assert!((tanh(x) - x.tanh()).abs() < 1e-6, "{x}");
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(logistic(x)) - exact).abs() < 1e-6, "{x}");
        }
    }
}
