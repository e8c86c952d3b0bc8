//! What the last steps taught about a block: where the floor of its next pass may be.

use spardl_kernels::Level;

use super::ranks::Limit;
use crate::list::magnitude;

/// What the last steps taught about a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// The quota of the last selection; 0 before the first.
    quota: u32,
    /// The smallest magnitude selected then.
    pub(super) magnitude: f32,
    /// The next floor is this part of `magnitude`.
    part: f32,
    /// How many entries should reach the floor, as a multiple of the quota.
    margin: f32,
    /// Was the block crowded, and selected from before anything was added to it?
    pub(super) is_read_alone: bool,
}

/// Where `margin` settles while predictions hold, and the most it grows to while they do not.
const MARGIN: (f32, f32) = (1.15, 3.0);

impl Hint {
    pub(super) const FRESH: Hint = Hint {
        quota: 0,
        magnitude: 0.0,
        part: 0.93,
        margin: 1.2,
        is_read_alone: false,
    };

    /// The floor for a selection of about the quota of the last one, if there was such a selection.
    pub(super) fn floor(&self, quota: usize) -> Option<f32> {
        let last = self.quota as usize;
        let known = last > 0 && self.magnitude > 0.0;
        let alike = quota <= last + last / 16 + 1 && quota * 2 > last;
        (known && alike).then_some(self.magnitude * self.part)
    }

    /// A prediction held, or it did not.
    pub(super) const fn held(&mut self, held: bool) {
        let factor = if held { 0.98 } else { 1.5 };
        self.margin = (self.margin * factor).clamp(MARGIN.0, MARGIN.1);
    }

    /// The quota just selected, and the smallest magnitude of it.
    pub(super) fn selected(&mut self, quota: usize, limit: Option<Limit>) {
        self.quota = u32::try_from(quota).unwrap_or(u32::MAX);
        self.magnitude = limit.map_or(0.0, |limit| f32::from_bits(limit.bits));
    }

    /// Predicts the next floor, as a part of the limit: the part moves until about `margin` times the quota of the known `values`, which
    /// are all down to `floor`, reach it; a few more when the quota is small.
    pub(super) fn learn(&mut self, kernels: Level, values: &[f32], floor: f32) {
        let quota = self.quota as f32;
        let wanted = (quota * self.margin + 3.0 * quota.sqrt()) as usize;
        let next = self.magnitude * self.part;
        let reached = if next > floor {
            count_about(kernels, values, magnitude(next))
        } else {
            // Below the floor not all entries are known, so what is known is too little to be wanted.
            values.len().min(wanted - 1)
        };
        let step = if reached > wanted + wanted / 2 {
            1.1
        } else {
            1.02
        };
        let part = if reached < wanted {
            self.part / 1.02
        } else {
            self.part * step
        };
        self.part = part.clamp(0.25, 0.99);
    }
}

/// How many values have magnitude bits of at least `limit`, judged from a quarter of a long list.
fn count_about(kernels: Level, values: &[f32], limit: u32) -> usize {
    const STRETCH: usize = 512;
    const SHARE: usize = 4;
    let count = |values: &[f32]| spardl_kernels::count_at_least(kernels, values, limit);
    if values.len() < 8 * SHARE * STRETCH {
        return count(values);
    }
    let stretches = values.chunks(STRETCH).step_by(SHARE);
    let (seen, found) = stretches.fold((0, 0), |(seen, found), stretch| {
        (seen + stretch.len(), found + count(stretch))
    });
    found * values.len() / seen
}

/// A magnitude that somewhat more than `quota` of `len` elements reach, judged from a sample at fixed positions.
pub(super) fn sampled_floor(len: usize, quota: usize, value: impl Fn(usize) -> f32) -> f32 {
    const SAMPLE: usize = 4096;
    if quota >= len || len <= SAMPLE {
        return 0.0;
    }
    // An odd stride of about len / SAMPLE, so that periodic structure does not alias.
    let stride = (len / SAMPLE) | 1;
    let mut sample: Vec<u32> = (0..len)
        .step_by(stride)
        .map(|i| magnitude(value(i)))
        .collect();
    let wanted = 1.25 * quota as f64 / len as f64 * sample.len() as f64;
    let rank = (wanted + 3.0 * wanted.sqrt() + 2.0) as usize;
    if rank >= sample.len() {
        return 0.0;
    }
    let at = sample.len() - 1 - rank;
    let level = f32::from_bits(*sample.select_nth_unstable(at).1);
    if level.is_finite() { level } else { 0.0 }
}
