//! From measured points to what is worth drawing.

/// Points that hang together, on the page.
pub(super) type Piece = Vec<(f64, f64)>;

/// About as many points are drawn for one curve.
const DRAWN: usize = 1000;
/// Shorter curves are not smoothed.
const SMOOTHED: usize = 20;

/// The pieces of a curve between points that cannot be shown, and how many of those there are.
pub(super) fn pieces(
    points: &[(f64, f64)],
    shown: impl Fn(&(f64, f64)) -> bool,
) -> (Vec<Piece>, usize) {
    let hidden = points.iter().filter(|point| !shown(point)).count();
    let pieces = points.split(|point| !shown(point));
    let pieces = pieces.filter(|piece| !piece.is_empty()).map(<[_]>::to_vec);
    (pieces.collect(), hidden)
}

/// The mean of the neighbourhood, a fiftieth of the curve, of each point or of as many as are drawn.
pub(super) fn smoothed(piece: &[(f64, f64)]) -> Piece {
    if piece.len() < SMOOTHED {
        return piece.to_vec();
    }
    let reach = (piece.len() / 100).max(2);
    let mean = |i: usize| {
        let near = &piece[i.saturating_sub(reach)..(i + reach + 1).min(piece.len())];
        let sum: f64 = near.iter().map(|&(_, y)| y).sum();
        (piece[i].0, sum / near.len() as f64)
    };
    let last = piece.len() - 1;
    let stride = piece.len().div_ceil(DRAWN);
    let points = (0..last).step_by(stride).chain([last]);
    points.map(mean).collect()
}

/// At most about a thousand points that look the same: of each thin slice of the page the lowest and the highest.
pub(super) fn thinned(piece: &[(f64, f64)], width: f64) -> Piece {
    if piece.len() <= DRAWN {
        return piece.to_vec();
    }
    let slice = |&(x, _): &(f64, f64)| (x / width * (DRAWN / 2) as f64) as i64;
    let mut kept = Vec::with_capacity(DRAWN + 2);
    kept.extend(piece.first());
    for near in piece.chunk_by(|a, b| slice(a) == slice(b)) {
        let by_height = |&a: &usize, &b: &usize| near[a].1.total_cmp(&near[b].1);
        let low = (0..near.len()).min_by(by_height).unwrap_or(0);
        let high = (0..near.len()).max_by(by_height).unwrap_or(0);
        kept.push(near[low.min(high)]);
        if low != high {
            kept.push(near[low.max(high)]);
        }
    }
    kept.extend(piece.last());
    // A curve that runs to and fro has many slices.
    let stride = kept.len().div_ceil(2 * DRAWN);
    kept.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_spikes_and_ends() {
        let mut points: Piece = (0..100_000).map(|i| (f64::from(i) / 150.0, 5.0)).collect();
        points[70_001].1 = 900.0;
        points[70_002].1 = -900.0;
        let thin = thinned(&points, 667.0);
        assert!(thin.len() <= DRAWN + 2, "{}", thin.len());
        assert!(thin.contains(&points[70_001]) && thin.contains(&points[70_002]));
        assert_eq!((thin.first(), thin.last()), (points.first(), points.last()));
        let back_and_forth: Piece = (0..100_000)
            .map(|i| (f64::from(i % 2) * 600.0, 0.0))
            .collect();
        assert!(thinned(&back_and_forth, 667.0).len() <= 2 * DRAWN);
    }

    #[test]
    fn smoothing_keeps_the_mean_and_calms_the_noise() {
        let noisy: Piece = (0..1000)
            .map(|i| (f64::from(i), f64::from(i % 2)))
            .collect();
        let calm = smoothed(&noisy);
        assert_eq!(calm.len(), noisy.len());
        assert!(calm.iter().all(|&(_, y)| (y - 0.5).abs() < 0.1));
        assert_eq!(smoothed(&noisy[..10]), noisy[..10]);
    }

    #[test]
    fn a_curve_breaks_where_a_value_is_missing() {
        let points = [
            (0.0, 1.0),
            (1.0, f64::NAN),
            (2.0, 1.0),
            (3.0, 2.0),
            (4.0, f64::NAN),
        ];
        let (pieces, hidden) = pieces(&points, |point| point.1.is_finite());
        assert_eq!(hidden, 2);
        assert_eq!(pieces, [vec![(0.0, 1.0)], vec![(2.0, 1.0), (3.0, 2.0)]]);
    }
}
