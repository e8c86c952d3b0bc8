//! Times and rates as people write them.

use std::time::Duration;

/// Nanoseconds of a time like `10us`.
pub(crate) fn nanos(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let found = scaled(text, &units).filter(|nanos| (0.0..=1e18).contains(nanos));
    let nanos = found.ok_or_else(|| {
        format!("'{text}' is not a time: expected a number and ns, us, ms or s, like 10us")
    })?;
    Ok(nanos.round() as u64)
}

/// A time like `10us`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    nanos(text).map(Duration::from_nanos)
}

/// Bits per second of a rate like `1gbit`.
pub(crate) fn bits(text: &str) -> Result<u64, String> {
    let units = [
        ("kbit", 1e3),
        ("mbit", 1e6),
        ("gbit", 1e9),
        ("tbit", 1e12),
        ("bit", 1.0),
    ];
    let found = scaled(text, &units).filter(|bits| (1.0..=1e18).contains(bits));
    let bits = found.ok_or_else(|| {
        format!("'{text}' is not a rate: expected a number and kbit, mbit, gbit or tbit (per second), like 1gbit")
    })?;
    Ok(bits.round() as u64)
}

/// Bytes of a length like `72kb`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("kb", 1e3), ("mb", 1e6), ("gb", 1e9), ("b", 1.0)];
    let found = scaled(text, &units).filter(|bytes| (0.0..=1e15).contains(bytes));
    let bytes = found.ok_or_else(|| {
        format!("'{text}' is not a length: expected a number and b, kb, mb or gb, like 72kb")
    })?;
    Ok(bytes.round() as u64)
}

/// A number with the first unit that fits.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let number: f64 = number.trim().parse().ok()?;
    number.is_finite().then_some(number * unit)
}

/// A time of so many nanoseconds with three or four digits and a unit.
pub(crate) fn show_time(nanos: f64) -> String {
    let (unit, name) = match nanos {
        x if x >= 1e9 => (1e9, "s"),
        x if x >= 1e6 => (1e6, "ms"),
        x if x >= 1e3 => (1e3, "us"),
        _ => (1.0, "ns"),
    };
    format!("{} {name}", digits(nanos / unit))
}

/// A rate of so many bits per second.
pub(crate) fn show_rate(bits: f64) -> String {
    let (unit, name) = match bits {
        x if x >= 1e12 => (1e12, "Tbit/s"),
        x if x >= 1e9 => (1e9, "Gbit/s"),
        x if x >= 1e6 => (1e6, "Mbit/s"),
        x if x >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{} {name}", digits(bits / unit))
}

/// So many bytes.
pub(crate) fn show_bytes(bytes: f64) -> String {
    let (unit, name) = match bytes {
        x if x >= 1e9 => (1e9, "GB"),
        x if x >= 1e6 => (1e6, "MB"),
        x if x >= 1e3 => (1e3, "kB"),
        _ => (1.0, "B"),
    };
    format!("{} {name}", digits(bytes / unit))
}

/// Up to four significant digits, without zeros that say nothing.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        x if x >= 100.0 => 1,
        x if x >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_are_read_and_shown() {
        assert_eq!(nanos("10us"), Ok(10_000));
        assert_eq!(nanos(" 1.5 MS"), Ok(1_500_000));
        assert_eq!(nanos("0ns"), Ok(0));
        assert_eq!(bits("1gbit"), Ok(1_000_000_000));
        assert_eq!(bits("0.5mbit"), Ok(500_000));
        for wrong in ["10", "us", "-1us", "nanus", "infs"] {
            assert!(nanos(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1", "0gbit", "1gb", "-1gbit"] {
            assert!(bits(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("72kb"), Ok(72_000));
        assert_eq!(bytes("0b"), Ok(0));
        for wrong in ["72", "kb", "-1b", "1gbit"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_time(12_345.0), "12.35 us");
        assert_eq!(show_time(1e9), "1 s");
        assert_eq!(show_rate(25e9), "25 Gbit/s");
        assert_eq!(show_bytes(1_234_567.0), "1.235 MB");
    }
}
