//! Axes: from values to places, and where the ticks go.

/// An axis. `low` and `high` are logarithms to base 10 when it is logarithmic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) log: bool,
}

/// Smaller than anything measured, and far from where numbers lose their digits.
const TINY: f64 = 1e-290;

/// A place on an axis, from 0 to 1, and its name.
pub(super) type Tick = (f64, String);

impl Scale {
    /// An axis over all `values`, which must be finite and, on a logarithmic axis, positive.
    pub(super) fn over(values: impl Iterator<Item = f64>, log: bool) -> Option<Self> {
        let place = |value: f64| if log { value.log10() } else { value };
        let (low, high) = values
            .map(place)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            return None;
        }
        // One value, or values that only rounding tells apart: give them room, so that ticks differ.
        let size = low.abs().max(high.abs());
        let least = if log { 1e-6 } else { TINY };
        let room = if high - low > (size * 1e-6).max(least) {
            0.0
        } else if log {
            0.1
        } else if size > TINY {
            size * 0.05
        } else {
            1.0
        };
        Some(Self {
            low: low - room,
            high: high + room,
            log,
        })
    }

    /// With a little space at both ends, so that no curve runs along the frame.
    pub(super) fn padded(self) -> Self {
        let pad = (self.high - self.low) * 0.04;
        // A loss starts at zero: no ticks below it for nothing.
        let keep_zero = !self.log && self.low >= 0.0 && self.low < pad;
        Self {
            low: if keep_zero { 0.0 } else { self.low - pad },
            high: self.high + pad,
            log: self.log,
        }
    }

    /// Can `value` be shown? Beyond this size differences and powers overflow.
    pub(super) fn shows(log: bool, value: f64) -> bool {
        let size = value.abs();
        size < 1.0 / TINY && (!log || value > TINY)
    }

    /// The place of `value` on the axis, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    /// About six round values.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let ticks = if self.log {
            self.log_ticks()
        } else {
            round_values(self.low, self.high)
        };
        ticks
            .into_iter()
            .map(|(value, text)| (self.place(value), text))
            .filter(|(place, _)| (-1e-9..=1.0 + 1e-9).contains(place))
            .collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        // Within what powers of ten can be written as.
        let first = self.low.floor().max(-300.0) as i32;
        let last = self.high.ceil().min(300.0) as i32;
        let decades = self.high - self.low;
        if decades < 0.7 {
            return round_values(10_f64.powf(self.low), 10_f64.powf(self.high));
        }
        let digits: &[f64] = if decades <= 3.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let stride = (decades / 7.0).ceil().max(1.0) as usize;
        let decades = (first..=last).step_by(stride);
        let values = decades.flat_map(|decade| digits.iter().map(move |&digit| (digit, decade)));
        values
            .map(|(digit, decade)| {
                let value = digit * 10_f64.powi(decade);
                (value, number(value, decade))
            })
            .collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten in the range, with their names.
fn round_values(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / 7.0;
    let exponent = rough.log10().floor();
    let power = 10_f64.powf(exponent);
    let (digit, carry) = match rough / power {
        r if r <= 1.0 => (1.0, 0),
        r if r <= 2.0 => (2.0, 0),
        r if r <= 5.0 => (5.0, 0),
        _ => (1.0, 1),
    };
    let exponent = exponent as i32 + carry;
    let step = digit * 10_f64.powi(exponent);
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 20.0) as u32;
    (0..=count)
        .map(|i| {
            let value = (first + f64::from(i)) * step;
            (value, number(value, exponent))
        })
        .collect()
}

/// A number whose last digit of interest is that of 10^`exponent`.
fn number(value: f64, exponent: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let size = value.abs().log10().floor() as i32;
    if size >= 6 || size < -4 && exponent < -4 {
        let digits = usize::try_from(size - exponent).unwrap_or(0);
        return format!("{value:.digits$e}");
    }
    let decimals = usize::try_from(-exponent).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let (whole, rest) = match text.split_once('.') {
        Some((whole, rest)) => (whole, format!(".{rest}")),
        None => (text.as_str(), String::new()),
    };
    format!("{}{rest}", grouped(whole))
}

/// Groups of three digits.
fn grouped(whole: &str) -> String {
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut text = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(low: f64, high: f64, log: bool) -> Vec<String> {
        let scale = Scale::over([low, high].into_iter(), log).unwrap();
        scale.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            names(0.0, 12_000.0, false).join(" "),
            "0 2,000 4,000 6,000 8,000 10,000 12,000"
        );
        assert_eq!(names(0.07, 2.31, false).join(" "), "0.5 1.0 1.5 2.0");
        assert_eq!(names(-1.0, 1.0, false).join(" "), "-1.0 -0.5 0 0.5 1.0");
        assert_eq!(names(0.0, 5e6, false).join(" "), "0 1e6 2e6 3e6 4e6 5e6");
        assert_eq!(
            names(0.001, 1.0, true)[..4].join(" "),
            "0.001 0.002 0.005 0.01"
        );
        assert_eq!(
            names(1e-12, 1e9, true).join(" "),
            "1e-12 1e-9 1e-6 0.001 1 1,000 1e6 1e9"
        );
        assert_eq!(names(2.0, 3.0, true).join(" "), "2.0 2.2 2.4 2.6 2.8 3.0");
    }

    #[test]
    fn there_are_some_ticks_and_not_too_many_on_any_axis() {
        for log in [false, true] {
            for low in [1e-289_f64, 1e-9, 0.3, 1.0, 7.0, 1e12, 9e288] {
                for span in [0.0, 1e-15, 1e-6, 0.5, 1.0, 3.0, 1e4, 1e30] {
                    let high = (low * (1.0 + span)).min(9.9e289);
                    let scale = Scale::over([low, high].into_iter(), log).unwrap().padded();
                    let ticks = scale.ticks();
                    assert!(
                        (2..=12).contains(&ticks.len()),
                        "{low} {span} {log}: {ticks:?}"
                    );
                    assert!(ticks.iter().all(|(_, name)| name.len() <= 13), "{ticks:?}");
                }
            }
        }
    }
}
