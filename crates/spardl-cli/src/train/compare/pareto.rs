//! Accuracy against bytes at the end of all runs: which methods are worth their bytes.

use spardl_chart::{Chart, Series};

use super::super::table::Row;

/// A point per method and a line through those that no other one beats in both; `None` where there is nothing to choose.
pub(super) fn chart(rows: &[Row]) -> Option<Chart> {
    let points: Vec<(&str, f64, f64)> = rows
        .iter()
        .filter_map(|row| {
            let percent = 100.0 * row.accuracy?;
            Some((row.method.as_str(), row.bytes_per_step / 1e6, percent))
        })
        .collect();
    if points.len() < 2 {
        return None;
    }
    let front = Series::guide("best for their bytes", front(&points));
    let ends = points
        .iter()
        .map(|&(name, megabytes, percent)| Series::new(name, [(megabytes, percent)]));
    Some(Chart {
        title: "Accuracy against bytes, at the end".to_owned(),
        x_label: "megabytes per step, sent by the busiest worker".to_owned(),
        y_label: "test accuracy, %".to_owned(),
        log_x: true,
        log_y: false,
        smooth: false,
        series: ends.chain([front]).collect(),
        ..Chart::default()
    })
}

/// The points of which every one sends less or is more accurate than each of the others, from the fewest bytes up.
fn front(points: &[(&str, f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = points.iter().map(|&(_, x, y)| (x, y)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    sorted.retain(|&(_, accuracy)| {
        let is_better = accuracy > best;
        best = best.max(accuracy);
        is_better
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_leaves_out_what_is_beaten_in_both() {
        let points = [
            ("dense", 100.0, 0.66),
            ("spardl", 1.0, 0.65),
            ("worse", 2.0, 0.64),
            ("as good for more", 3.0, 0.65),
            ("few bits", 0.5, 0.60),
            ("worse at the same bytes", 0.5, 0.59),
        ];
        assert_eq!(front(&points), [(0.5, 0.60), (1.0, 0.65), (100.0, 0.66)]);
    }
}
