//! Few-bit values: a sign and one of a few levels, with a scale for every chunk of 64.
//!
//! What a selection sends lies close above its threshold, so the magnitudes of a chunk differ little, and their logarithm is
//! what matters. The levels of a chunk are `base * 2^(j * step / 64)`. The base is the smallest magnitude, cut to bf16; the step
//! is such that the largest is reached. A magnitude becomes the level whose logarithm is nearest. With one bit there is one
//! level, the mean magnitude as bf16.
//!
//! **Exact errors.** A level is at most twice and at least half the magnitude, so their difference is an f32 (Sterbenz). A
//! chunk for which that cannot be had takes the next wider code, in the end f32 itself: infinities, subnormal bases, magnitudes
//! too far apart, and chunks so short that the code is no shorter. Zeros are left out where a tag is to spare: `zeros.rs`.
//!
//! **Same bits everywhere.** The power of two is a constant with 8 significant bits, the base has 8 as well, so a level is an
//! exact product. Every other operation is a comparison or one that IEEE 754 rounds correctly.
//!
//! **A second time changes nothing.** The smallest magnitude always becomes the base, and the step is one that the largest level
//! in use gives again. So a run of levels is coded as the same levels.
//!
//! | bytes | what |
//! |---|---|
//! | ceil(chunks / 4) | two bits per chunk: its position in the list of codes of the type, or 3 of one with zeros |
//! | per chunk: 2, 1 | base as bf16, step; no step with one bit, neither with f32 |
//! | bits x ceil(count / 8) | a bitmap of the signs, then one for each bit of the level, the lowest first; or f32 values |

#[cfg(test)]
mod tests;
mod zeros;

use spardl_kernels::Level;
use spardl_kernels::few_bits::{self, Grid, Ladder};

use super::super::Reader;
use crate::error::DecodeError;
use zeros::Packed;

/// Values that share a scale.
const CHUNK: usize = 64;
/// Powers of two from 1 to 2 in steps of a 64th, as the seven bits after the leading one.
const LADDER: [u8; 64] = [
    0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 23, 24, 26, 28, 29, 31, 33, 34, 36, 38,
    40, 42, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63, 65, 67, 69, 72, 74, 76, 78, 80, 83, 85, 87,
    90, 92, 94, 97, 99, 102, 104, 107, 109, 112, 115, 117, 120, 123, 125,
];
/// The nearest rung of the ladder for each seven bits; 64 is the first of the next octave.
const RUNG: [u8; 128] = [
    0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10, 11, 12, 12, 13, 13, 14, 15, 15, 16, 16, 17,
    18, 18, 19, 19, 20, 21, 21, 22, 22, 23, 23, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30,
    31, 31, 32, 32, 33, 34, 34, 35, 35, 35, 36, 36, 37, 37, 38, 38, 39, 39, 40, 40, 41, 41, 42, 42,
    43, 43, 43, 44, 44, 45, 45, 46, 46, 47, 47, 47, 48, 48, 49, 49, 50, 50, 50, 51, 51, 52, 52, 52,
    53, 53, 54, 54, 55, 55, 55, 56, 56, 56, 57, 57, 58, 58, 58, 59, 59, 60, 60, 60, 61, 61, 61, 62,
    62, 63, 63, 63, 64,
];
/// The first seven bits whose nearest rung is at least 1, 2, .. 64.
const FIRST: [u8; 64] = {
    let (mut first, mut bits) = ([0; 64], 128);
    while bits > 0 {
        bits -= 1;
        let mut rung = RUNG[bits] as usize;
        while rung > 0 {
            rung -= 1;
            first[rung] = bits as u8;
        }
    }
    first
};
/// Codes of at most so many levels have tables.
const FEW: u32 = 8;
/// The widest step: half of it, and what the tables round, is less than an octave.
const WIDEST: u32 = 125;
/// For each step, where each level but the first begins, as a multiple of the base.
///
/// A magnitude belongs to the first level that is no further than half a step. Divided by the base and rounded to eight significant bits,
/// it must reach the first such number there. To divide rounds, and yet to compare the magnitude with the base times the least f32 that
/// rounds so comes to the same: that product is exact, and no f32 lies between it and the smallest magnitude whose quotient is rounded up.
static FLOORS: [[f32; FEW as usize - 1]; WIDEST as usize + 1] = {
    let mut floors = [[f32::INFINITY; FEW as usize - 1]; WIDEST as usize + 1];
    let mut step = 1;
    while step <= WIDEST {
        let mut number = 1;
        while number < FEW {
            // Half a step below a level it is nearest: the first rung that is no lower, and where that begins.
            let rung = ((2 * number - 1) * step).div_ceil(2);
            let (octave, rung) = ((rung - 1) / 64, (rung - 1) % 64);
            let upper = ((127 + octave) << 7) + FIRST[rung as usize] as u32;
            floors[step as usize][number as usize - 1] = f32::from_bits((upper << 16) - 0x8000);
            number += 1;
        }
        step += 1;
    }
    floors
};
/// For each step, the levels as multiples of the base.
static POWERS: [[f32; FEW as usize]; WIDEST as usize + 1] = {
    let mut powers = [[1.0; FEW as usize]; WIDEST as usize + 1];
    let mut step = 1;
    while step <= WIDEST {
        let mut number = 0;
        while number < FEW {
            powers[step as usize][number as usize] = power(number * step);
            number += 1;
        }
        step += 1;
    }
    powers
};
/// For each rung that the largest magnitude may be on, the [`step`] of eight levels.
static STEPS: [Option<(u32, u32)>; (FEW * WIDEST) as usize] = {
    let mut steps = [None; (FEW * WIDEST) as usize];
    let mut rung = 0;
    while rung < FEW * WIDEST {
        steps[rung as usize] = step(rung, FEW - 1);
        rung += 1;
    }
    steps
};
const INFINITE: u32 = 0x7f80_0000;

/// A type of few bits: the codes that its chunks may have, the narrowest first, f32 last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    codes: &'static [Code],
}

pub(super) const Q8: Levels = Levels {
    codes: &[Code(8), Code(32)],
};
pub(super) const Q4: Levels = Levels {
    codes: &[Code(4), Code(8), Code(32)],
};
pub(super) const Q2: Levels = Levels {
    codes: &[Code(2), Code(4), Code(8), Code(32)],
};
pub(super) const Q1: Levels = Levels {
    codes: &[Code(1), Code(4), Code(8), Code(32)],
};

/// How the values of a chunk are coded: with so many bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(usize);

impl Code {
    /// Bytes of the scale.
    const fn scale_len(self) -> usize {
        match self.0 {
            32 => 0,
            1 => 2,
            _ => 3,
        }
    }

    /// Bytes of a chunk of `count` values.
    const fn len(self, count: usize) -> usize {
        match self.0 {
            32 => 4 * count,
            bits => self.scale_len() + bits * count.div_ceil(8),
        }
    }

    /// The number of the highest level.
    const fn top(self) -> u32 {
        (1 << (self.0 - 1)) - 1
    }
}

/// The scale of a coded chunk. The step is 0 where there is one level.
#[derive(Clone, Copy, Debug)]
struct Scale {
    base: f32,
    step: u32,
}

impl Scale {
    fn level(self, number: u32) -> f32 {
        self.base * power(number * self.step)
    }
}

/// `2^(rung / 64)`, with eight significant bits.
const fn power(rung: u32) -> f32 {
    if rung >= 64 * 128 {
        return f32::INFINITY;
    }
    let fraction = LADDER[(rung % 64) as usize] as u32;
    f32::from_bits(((127 + rung / 64) << 23) + (fraction << 16))
}

/// The rung nearest to a ratio of at least 1.
fn rung(ratio: f32) -> u32 {
    let bits = ratio.to_bits() + 0x8000;
    let octave = (bits >> 23).saturating_sub(127);
    64 * octave + u32::from(RUNG[(bits >> 16 & 127) as usize])
}

/// The number of the level nearest to a rung, up to `top`.
const fn nearest(rung: u32, step: u32, top: u32) -> u32 {
    let step = step as f32;
    let number = ((rung as f32 + 0.5 * step) / step) as u32;
    if number < top { number } else { top }
}

/// The step with which levels up to `top` reach a rung, and the number of the level they reach it with; `None` when it were too wide.
const fn step(rung: u32, top: u32) -> Option<(u32, u32)> {
    let mut step = steps_of(rung, top);
    loop {
        let reached = match rung {
            0 => 0,
            _ => nearest(rung, step, top),
        };
        // The step that the highest level in use would ask for.
        let again = steps_of(reached * step, top);
        if again == step {
            return if step <= WIDEST {
                Some((step, reached))
            } else {
                None
            };
        }
        step = again;
    }
}

/// The least step, from 1 on, with which `top` of them reach a rung.
const fn steps_of(rung: u32, top: u32) -> u32 {
    let step = rung.div_ceil(top);
    if step > 1 { step } else { 1 }
}

/// What is known of a chunk before it is coded.
struct Extent {
    least: f32,
    most: f32,
}

impl Extent {
    /// The smallest and the largest magnitude, if levels can be near both: normal numbers all.
    fn of(chunk: &[f32]) -> Option<Self> {
        let (least, most) = few_bits::extent(Level::best(), chunk);
        let normal = least >= f32::MIN_POSITIVE.to_bits() && most < INFINITE;
        normal.then(|| Self {
            least: f32::from_bits(least),
            most: f32::from_bits(most),
        })
    }

    /// The scale with which this code has exact errors, if there is one and the code is shorter than f32.
    fn fit(&self, code: Code, chunk: &[f32]) -> Option<Scale> {
        match code.0 {
            _ if code.len(chunk.len()) >= 4 * chunk.len() => None,
            1 => self.mean(chunk),
            _ => self.ladder(code.top()),
        }
    }

    fn mean(&self, chunk: &[f32]) -> Option<Scale> {
        let sum: f64 = chunk.iter().map(|value| f64::from(value.abs())).sum();
        let mut mean = [(sum / chunk.len() as f64) as f32];
        super::ValueType::Bf16.round(&mut mean);
        let [base] = mean;
        let close = 0.5 * base <= self.least && self.most <= 2.0 * base && base.is_finite();
        close.then_some(Scale { base, step: 0 })
    }

    fn ladder(&self, top: u32) -> Option<Scale> {
        let base = f32::from_bits(self.least.to_bits() & 0xffff_0000);
        let ratio = self.most / base;
        if !ratio.is_finite() {
            return None;
        }
        let rung = if self.least == self.most {
            0
        } else {
            rung(ratio)
        };
        let (step, reached) = match STEPS.get(rung as usize) {
            Some(known) if top == FEW - 1 => *known,
            _ => step(rung, top),
        }?;
        let scale = Scale { base, step };
        scale.level(reached).is_finite().then_some(scale)
    }
}

impl Levels {
    /// The most bytes that a run of `count` values takes.
    pub(super) const fn encoded_len(self, count: usize) -> usize {
        let tags = count.div_ceil(4 * CHUNK);
        count.saturating_mul(4).saturating_add(tags)
    }

    /// The bytes of a run of `count` values all of whose chunks have the narrowest code.
    pub(super) const fn usual_len(self, count: usize) -> usize {
        let (chunks, rest) = (count / CHUNK, count % CHUNK);
        let code = self.codes[0];
        let last = code.len(rest);
        let last = if last < 4 * rest { last } else { 4 * rest };
        let tags = count.div_ceil(4 * CHUNK);
        code.len(CHUNK)
            .saturating_mul(chunks)
            .saturating_add(last + tags)
    }

    pub(super) fn quantise(self, values: &mut [f32], errors: &mut [f32]) {
        let chunks = values.chunks_mut(CHUNK).zip(errors.chunks_mut(CHUNK));
        for (values, errors) in chunks {
            match self.choose(values).1 {
                Some(coded) => coded.quantise(values, errors),
                None => match Packed::of(self, values) {
                    Some(packed) => packed.quantise(self, values, errors),
                    None => errors.fill(0.0),
                },
            }
        }
    }

    pub(super) fn encode(self, src: &[f32], out: &mut Vec<u8>) {
        let tags = out.len();
        out.resize(tags + src.len().div_ceil(4 * CHUNK), 0);
        for (at, chunk) in src.chunks(CHUNK).enumerate() {
            let (tag, coded) = self.choose(chunk);
            out[tags + at / 4] |= (tag as u8) << (2 * (at % 4));
            let Some(coded) = coded else {
                if let Some(packed) = Packed::of(self, chunk) {
                    out[tags + at / 4] |= zeros::TAG << (2 * (at % 4));
                    packed.encode(self, chunk.len(), out);
                } else {
                    out.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
                }
                continue;
            };
            let mut codes = [0; CHUNK];
            coded.codes(chunk, &mut codes[..chunk.len()]);
            let Coded { code, scale, .. } = coded;
            let [.., low, high] = scale.base.to_bits().to_le_bytes();
            let head = [low, high, scale.step as u8];
            out.extend_from_slice(&head[..code.scale_len()]);
            let mut planes = [0; 8];
            let planes = &mut planes[..code.0];
            few_bits::planes(Level::best(), &codes, planes);
            for plane in planes {
                let bytes = plane.to_le_bytes();
                match chunk.len().div_ceil(8) {
                    // A copy of a length that is known is no call.
                    8 => out.extend_from_slice(&bytes),
                    len => out.extend_from_slice(&bytes[..len]),
                }
            }
        }
    }

    /// The bytes of a run of `count` values. Whatever they are, [`Levels::each`] can read them.
    pub(super) fn read_run<'a>(
        self,
        reader: &mut Reader<'a>,
        count: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let mut ahead = reader.clone();
        let tags = ahead.bytes(count.div_ceil(4 * CHUNK))?;
        for (at, count) in counts(count).enumerate() {
            if self.packs() && tag(tags, at) == zeros::TAG {
                zeros::read(self, &mut ahead, count)?;
                continue;
            }
            let code = self.code(tags, at)?;
            let chunk = ahead.bytes(code.len(count))?;
            let known = code.0 == 32 || read_scale(code, chunk).is_some();
            if !known {
                return Err(DecodeError::BadScale);
            }
        }
        reader.bytes(reader.remaining() - ahead.remaining())
    }

    /// Calls `take(from, values)` for every chunk of a run that [`Levels::read_run`] found, with its position in the run.
    pub(super) fn each(self, run: &[u8], count: usize, mut take: impl FnMut(usize, &[f32])) {
        let (tags, mut rest) = run.split_at(count.div_ceil(4 * CHUNK));
        let mut values = [0.0; CHUNK];
        for (at, count) in counts(count).enumerate() {
            if self.packs() && tag(tags, at) == zeros::TAG {
                let mut reader = Reader::new(rest);
                let Ok(packed) = zeros::read(self, &mut reader, count) else {
                    // Not a run that was found.
                    return;
                };
                zeros::unpack(self, packed, &mut values[..count]);
                take(at * CHUNK, &values[..count]);
                rest = reader.rest();
                continue;
            }
            let code = self.code(tags, at).unwrap_or(Code(32));
            let (chunk, later) = rest.split_at(code.len(count));
            match read_scale(code, chunk) {
                Some(scale) => {
                    read_levels(Coded::new(code, scale, 0.0), chunk, &mut values[..count])
                }
                None => {
                    let whole = chunk.as_chunks().0.iter();
                    let whole = whole.map(|&bytes| f32::from_le_bytes(bytes));
                    values
                        .iter_mut()
                        .zip(whole)
                        .for_each(|(to, value)| *to = value);
                }
            }
            take(at * CHUNK, &values[..count]);
            rest = later;
        }
    }

    /// The tag of a chunk, and how it is coded unless it travels as f32.
    fn choose(self, chunk: &[f32]) -> (usize, Option<Coded>) {
        let whole = self.codes.len() - 1;
        let coded = Extent::of(chunk).and_then(|extent| {
            let mut tags = 0..whole;
            tags.find_map(|tag| {
                let (code, narrower) = (self.codes[tag], &self.codes[..tag]);
                let coded = Coded::new(code, extent.fit(code, chunk)?, extent.least);
                let stays = tag == 0 || !fits_any(narrower, coded, chunk);
                stays.then_some((tag, Some(coded)))
            })
        });
        coded.unwrap_or((whole, None))
    }

    fn code(self, tags: &[u8], at: usize) -> Result<Code, DecodeError> {
        let tag = tag(tags, at);
        let code = self.codes.get(usize::from(tag));
        code.copied().ok_or(DecodeError::UnknownCoding(tag))
    }

    /// Is a tag to spare for chunks with zeros?
    const fn packs(self) -> bool {
        self.codes.len() <= zeros::TAG as usize
    }
}

/// The tag of a chunk.
const fn tag(tags: &[u8], at: usize) -> u8 {
    tags[at / 4] >> (2 * (at % 4)) & 3
}

/// How a chunk is coded.
#[derive(Clone, Copy, Debug)]
struct Coded {
    code: Code,
    scale: Scale,
    /// The smallest magnitude is the first level, so that it is the base again.
    least: f32,
}

impl Coded {
    const fn new(code: Code, scale: Scale, least: f32) -> Self {
        Self { code, scale, least }
    }

    /// For each value the number of its level, shifted by one, and the sign in the lowest bit.
    fn codes(self, values: &[f32], out: &mut [u8]) {
        match self.grid() {
            Some(grid) => few_bits::codes(Level::best(), values, &grid, out),
            None => few_bits::ladder_codes(Level::best(), values, &self.rungs(), out),
        }
    }

    /// Makes each value what is seen of it; `errors` becomes what that takes from it.
    fn quantise(self, values: &mut [f32], errors: &mut [f32]) {
        if let Some(grid) = self.grid() {
            return few_bits::quantise(Level::best(), values, &grid, errors);
        }
        let (mut codes, mut seen) = ([0; CHUNK], [0.0; CHUNK]);
        let (codes, seen) = (&mut codes[..values.len()], &mut seen[..values.len()]);
        self.codes(values, codes);
        self.values(codes, seen);
        for ((value, error), seen) in values.iter_mut().zip(errors).zip(seen) {
            *error = *value - *seen;
            *value = *seen;
        }
    }

    /// The levels and where they begin, if they are few.
    fn grid(self) -> Option<Grid> {
        let Self { code, scale, least } = self;
        if code.top() >= FEW {
            return None;
        }
        let step = scale.step as usize;
        // The smallest magnitude is below every floor.
        let above = f32::from_bits(least.to_bits() + 1);
        let mut floors = FLOORS[step].map(|floor| (scale.base * floor).max(above));
        floors[code.top() as usize..].fill(f32::INFINITY);
        let levels = POWERS[step].map(|power| scale.base * power);
        Some(Grid { floors, levels })
    }

    fn rungs(self) -> Ladder<'static> {
        let Self { code, scale, least } = self;
        Ladder {
            base: scale.base,
            least,
            step: scale.step,
            top: code.top(),
            rungs: &RUNG,
            powers: &LADDER,
        }
    }

    /// What is seen of the codes.
    fn values(self, codes: &[u8], out: &mut [f32]) {
        match self.grid() {
            Some(grid) => few_bits::values(Level::best(), codes, &grid.levels, out),
            None => few_bits::ladder_values(Level::best(), codes, &self.rungs(), out),
        }
    }
}

/// Would one of the `narrower` codes do for what is seen of the chunk? Then a second time would change it.
fn fits_any(narrower: &[Code], coded: Coded, chunk: &[f32]) -> bool {
    let (mut codes, mut seen) = ([0; CHUNK], [0.0; CHUNK]);
    let (codes, seen) = (&mut codes[..chunk.len()], &mut seen[..chunk.len()]);
    coded.codes(chunk, codes);
    coded.values(codes, seen);
    let fits = |extent: Extent| {
        narrower
            .iter()
            .any(|&code| extent.fit(code, seen).is_some())
    };
    Extent::of(seen).is_some_and(fits)
}

/// The lengths of the chunks of a run.
fn counts(count: usize) -> impl Iterator<Item = usize> {
    (0..count)
        .step_by(CHUNK)
        .map(move |from| CHUNK.min(count - from))
}

/// The scale at the start of a chunk, if all its levels are normal numbers; none of a chunk of f32.
fn read_scale(code: Code, chunk: &[u8]) -> Option<Scale> {
    let (&[low, high, ref rest @ ..], true) = (chunk, code.0 < 32) else {
        return None;
    };
    let base = f32::from_bits(u32::from_le_bytes([0, 0, low, high]));
    let (step, range) = match code.0 {
        1 => (0, 0..=0),
        _ => (u32::from(*rest.first()?), 1..=WIDEST),
    };
    let scale = Scale { base, step };
    let normal = base.is_normal() && base > 0.0 && range.contains(&step);
    normal.then_some(scale)
}

fn read_levels(coded: Coded, chunk: &[u8], values: &mut [f32]) {
    let (mut codes, mut planes) = ([0; CHUNK], [0; 8]);
    let planes = &mut planes[..coded.code.0];
    let bytes = chunk[coded.code.scale_len()..].chunks(values.len().div_ceil(8));
    for (plane, bytes) in planes.iter_mut().zip(bytes) {
        *plane = bytes.first_chunk().map_or_else(
            || {
                bytes
                    .iter()
                    .rev()
                    .fold(0, |plane, byte| plane << 8 | u64::from(*byte))
            },
            |whole| u64::from_le_bytes(*whole),
        );
    }
    few_bits::join(Level::best(), planes, &mut codes);
    coded.values(&codes[..values.len()], values);
}
