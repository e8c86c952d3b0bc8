//! Selection equals sorting: every take, every value left, every residual rule, for every input, over many steps.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;
use spardl_core::{Entries, Feedback, Partition, Selector, ValueType};

/// A small deterministic generator (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }

    fn signed(&mut self, magnitude: f32) -> f32 {
        if self.bits() & 1 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

/// What the values of a block look like.
#[derive(Clone, Copy, Debug)]
enum Shape {
    HeavyTail,
    Ties,
    /// Stretches a million times larger than their neighbours.
    Layered,
    NearlyEmpty,
    Subnormal,
    Zero,
    Constant,
}

const SHAPES: [Shape; 7] = [
    Shape::HeavyTail,
    Shape::Ties,
    Shape::Layered,
    Shape::NearlyEmpty,
    Shape::Subnormal,
    Shape::Zero,
    Shape::Constant,
];

impl Shape {
    fn value(self, at: usize, numbers: &mut Numbers) -> f32 {
        let unit = (numbers.below(1 << 20) + 1) as f32 / (1 << 20) as f32;
        let heavy = 1.0 / unit.sqrt() - 1.0;
        let magnitude = match self {
            Self::HeavyTail => heavy,
            Self::Ties => numbers.below(4) as f32,
            Self::Layered if (at / 700).is_multiple_of(3) => 1e6 * heavy,
            Self::Layered => heavy,
            Self::NearlyEmpty if numbers.below(500) > 0 => 0.0,
            Self::NearlyEmpty => heavy,
            Self::Subnormal => f32::from_bits(numbers.below(1 << 22) as u32),
            Self::Zero => 0.0,
            Self::Constant => 2.5,
        };
        numbers.signed(magnitude)
    }
}

/// The selector and, beside it, plain arrays that are sorted.
struct Pair {
    selector: Selector,
    feedback: Feedback,
    /// The inputs of the step.
    input: Vec<f32>,
    /// The current values.
    now: Vec<f32>,
    sent: BTreeSet<usize>,
}

impl Pair {
    fn new(partition: Partition) -> Self {
        let len = partition.len() as usize;
        Self {
            selector: Selector::remembering(partition),
            feedback: Feedback::new(len),
            input: Vec::new(),
            now: Vec::new(),
            sent: BTreeSet::new(),
        }
    }

    fn range(&self, block: usize) -> Range<usize> {
        self.selector.partition().range(block)
    }

    fn pass(&mut self, input: Vec<f32>, quotas: &[usize]) {
        self.selector
            .pass(&mut self.feedback, (&input).into(), quotas);
        self.start(input);
    }

    fn start(&mut self, input: Vec<f32>) {
        // The residual is zero, and 0.0 + -0.0 is 0.0.
        self.input = input.iter().map(|value| 0.0 + value).collect();
        self.now = self.input.clone();
        self.sent.clear();
    }

    /// The block's non-zeros, largest first, ties to the lower index.
    fn sorted(&self, block: usize) -> Vec<usize> {
        let mut sorted: Vec<usize> = self.range(block).filter(|&i| self.now[i] != 0.0).collect();
        sorted.sort_by(|&i, &j| {
            self.now[j]
                .abs()
                .total_cmp(&self.now[i].abs())
                .then(i.cmp(&j))
        });
        sorted
    }

    fn expect(&mut self, mut taken: Vec<usize>, got: &Entries, values: ValueType) {
        taken.sort_unstable();
        let mut expected = Entries::default();
        let mut wires: Vec<f32> = taken.iter().map(|&i| self.now[i]).collect();
        values.round(&mut wires);
        for (i, wire) in taken.into_iter().zip(wires) {
            if wire != 0.0 {
                expected.indices.push(i as u32);
                expected.values.push(wire);
                self.now[i] -= wire;
                self.sent.insert(i);
            }
        }
        assert_eq!(&expected, got);
    }

    fn take_top(&mut self, block: usize, quota: usize, values: ValueType) {
        let mut got = Entries::default();
        let work = self.feedback.work();
        self.selector.take_top(block, work, quota, values, &mut got);
        let mut taken = self.sorted(block);
        taken.truncate(quota);
        self.expect(taken, &got, values);
    }

    fn take_above(&mut self, block: usize, threshold: f32, cap: usize) {
        let (mut got, values) = (Entries::default(), ValueType::F32);
        let work = self.feedback.work();
        self.selector
            .take_above(block, work, threshold, cap, values, &mut got);
        let mut taken = self.sorted(block);
        taken.retain(|&i| self.now[i].abs() >= threshold);
        taken.truncate(cap);
        self.expect(taken, &got, values);
    }

    fn add(&mut self, block: usize, list: Entries) {
        for (&index, value) in list.indices.iter().zip(&list.values) {
            self.now[index as usize] += value;
        }
        self.selector.add(block, list);
    }

    /// A list for `block`: some entries anywhere, and some that nearly or exactly cancel the largest there are.
    fn received(&self, block: usize, count: usize, numbers: &mut Numbers) -> Entries {
        let range = self.range(block);
        let mut indices: BTreeSet<usize> = self.sorted(block).into_iter().take(count / 2).collect();
        if !range.is_empty() {
            indices.extend((0..count).map(|_| range.start + numbers.below(range.len())));
        }
        let value = |i: usize, numbers: &mut Numbers| match numbers.below(4) {
            0 if self.now[i] != 0.0 => -self.now[i],
            1 if self.now[i] != 0.0 => -0.995 * self.now[i],
            _ => Shape::HeavyTail.value(i, numbers),
        };
        let mut list = Entries::default();
        for i in indices {
            let value = value(i, numbers);
            if value != 0.0 {
                list.indices.push(i as u32);
                list.values.push(value);
            }
        }
        list
    }

    /// Settles the block by the rule of this number and compares what is left.
    fn apply(&mut self, block: usize, rule: usize, finals: &BTreeSet<usize>) {
        let list: Vec<u32> = finals.iter().map(|&i| i as u32).collect();
        let (selector, work) = (&mut self.selector, self.feedback.work_mut());
        match rule {
            0 => selector.apply_rule_a(block, work, &list),
            1 => selector.apply_rule_b(block, work),
            2 => selector.clear_sent(block, work),
            _ => selector.clear_sent_final(block, work, &list),
        }
        for i in self.range(block) {
            let (is_final, sent) = (finals.contains(&i), self.sent.contains(&i));
            let expected = match rule {
                0 if is_final => self.now[i],
                1 => self.now[i],
                2 if sent => 0.0,
                3 if sent && is_final => 0.0,
                _ => self.input[i],
            };
            let got = self.feedback.work()[i];
            assert_eq!(
                expected.to_bits(),
                got.to_bits(),
                "rule {rule}: {expected} became {got} at {i}"
            );
        }
    }

    /// Receives, takes and settles every block in a random manner.
    fn work_through(&mut self, quotas: &[usize], numbers: &mut Numbers) {
        for (block, &quota) in quotas.iter().enumerate() {
            for _ in 0..numbers.below(3) {
                let list = self.received(block, quota + 1, numbers);
                self.add(block, list);
            }
            let values = [ValueType::F32, ValueType::Bf16][numbers.below(4) / 3];
            match numbers.below(5) {
                0 => {
                    let sorted = self.sorted(block);
                    let at = sorted.get(numbers.below(2 * quota + 1)).copied();
                    let threshold = at.map_or(0.5, |i| self.now[i].abs());
                    self.take_above(block, threshold, numbers.below(4 * quota + 2));
                }
                1 => {
                    self.take_top(block, quota / 2, values);
                    self.take_top(block, quota, values);
                }
                _ => self.take_top(block, quota, values),
            }
            if numbers.below(3) == 0 {
                let list = self.received(block, quota / 4 + 1, numbers);
                self.add(block, list);
            }
            let mut finals = self.sent.clone();
            finals.retain(|i| self.range(block).contains(i) && i % 3 > 0);
            finals.extend(self.range(block).step_by(1 + numbers.below(50)));
            self.apply(block, numbers.below(4), &finals);
        }
    }
}

/// Many steps of one shape: quotas rotate, the density and the scale change now and then.
fn many_steps(
    shape: Shape,
    partition: Partition,
    k: usize,
    steps: usize,
    seed: u64,
) -> (u64, usize) {
    let (mut numbers, mut pair) = (Numbers(seed), Pair::new(partition.clone()));
    let (mut rescans, mut predicted, mut scale, mut density) = (0, 0, 1.0, k);
    for step in 0..steps {
        if step % 7 == 6 {
            density = [k / 8, k / 2, k, 3 * k][numbers.below(4)];
            scale = [0.125, 1.0, 16.0][numbers.below(3)];
        }
        let quotas = partition.quotas(density, step);
        // Undelivered values of the last step stay, as a residual would.
        let left = std::mem::take(&mut pair.now);
        let input = (0..partition.len() as usize)
            .map(|i| left.get(i).unwrap_or(&0.0) + scale * shape.value(i, &mut numbers))
            .collect();
        pair.pass(input, &quotas);
        let floors = (0..partition.blocks()).map(|block| pair.selector.floor(block));
        predicted += floors
            .filter(|&floor| floor > 0.0 && floor.is_finite())
            .count();
        pair.work_through(&quotas, &mut numbers);
        rescans += pair.selector.stats().rescans;
    }
    (rescans, predicted)
}

#[test]
fn many_steps_on_large_blocks_equal_sorting_and_meet_both_hits_and_misses() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let cuts = [20_000, 20_300, 45_000];
        let partition = Partition::from_cuts(45_000, cuts).unwrap();
        let (rescans, predicted) = many_steps(shape, partition, 900, 16, seed as u64);
        if matches!(shape, Shape::HeavyTail | Shape::Layered) {
            assert!(rescans > 0, "{shape:?}: no prediction ever failed");
            assert!(
                predicted > 10,
                "{shape:?}: only {predicted} floors were predicted"
            );
        }
    }
}

#[test]
fn many_steps_on_crowded_blocks_equal_sorting() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let partition = Partition::from_cuts(80_000, [70_000, 70_200, 80_000]).unwrap();
        many_steps(shape, partition, 18_000, 8, seed as u64);
    }
}

#[test]
fn crowded_blocks_that_are_read_alone_equal_sorting() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let mut numbers = Numbers(seed as u64);
        let mut pair = Pair::new(Partition::from_cuts(30_000, [20_000, 30_000]).unwrap());
        for step in 0..8 {
            // A scale that jumps makes a prediction fail.
            let scale = if step == 5 { 0.01 } else { 1.0 };
            let left = std::mem::take(&mut pair.now);
            let input = (0..30_000)
                .map(|i| left.get(i).unwrap_or(&0.0) + scale * shape.value(i, &mut numbers))
                .collect();
            let quotas = [2_000, 1_000];
            pair.pass(input, &quotas);
            for (block, quota) in quotas.into_iter().enumerate() {
                pair.take_top(block, quota, ValueType::F32);
                let list = pair.received(block, 300, &mut numbers);
                pair.add(block, list);
                let finals = pair.sent.iter().copied().filter(|i| i % 3 > 0).collect();
                pair.apply(block, step % 2, &finals);
            }
        }
    }
}

#[test]
fn a_candidate_that_shrinks_below_the_floor_uncovers_a_smaller_entry() {
    let mut pair = Pair::new(Partition::even(4, 1));
    let input = vec![10.0, 9.0, 1.0, 0.9];
    pair.selector
        .pass_above(&mut pair.feedback, (&input).into(), &[5.0]);
    pair.start(input);
    let list = Entries {
        indices: vec![0],
        values: vec![-9.95],
    };
    pair.add(0, list);
    pair.take_top(0, 2, ValueType::F32);
    assert_eq!(pair.selector.sent(0), [1, 2]);
    assert_eq!(pair.selector.stats().rescans, 1);
    pair.apply(0, 1, &BTreeSet::new());
}

#[test]
fn thresholds_below_and_above_the_floor_and_caps_equal_sorting() {
    for threshold in [0.0, 0.4, 1.0, 3.0, 50.0, f32::INFINITY] {
        for cap in [0, 1, 100, 6000] {
            for floor in [0.0, 1.0, 2.0, f32::INFINITY] {
                let (mut numbers, mut pair) =
                    (Numbers(cap as u64), Pair::new(Partition::even(5000, 1)));
                let value = |i| Shape::HeavyTail.value(i, &mut numbers);
                let input: Vec<f32> = (0..5000).map(value).collect();
                pair.selector
                    .pass_above(&mut pair.feedback, (&input).into(), &[floor]);
                pair.start(input);
                let list = pair.received(0, 60, &mut numbers);
                pair.add(0, list);
                pair.take_above(0, threshold, cap);
                pair.apply(0, 1, &BTreeSet::new());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_bucket_equals_sorting(
        seed in any::<u64>(),
        shape in prop::sample::select(&SHAPES[..]),
        len in 0..80u32,
        blocks in 1..5usize,
        k in 0..100usize,
    ) {
        many_steps(shape, Partition::even(len, blocks), k, 4, seed);
    }

    #[test]
    fn any_bits_equal_sorting(
        bits in prop::collection::vec(any::<u32>(), 0..200),
        quota in 0..220usize,
        floor in prop::sample::select(vec![0.0, 1e-30, 1.0, 1e20, f32::INFINITY]),
    ) {
        let input: Vec<f32> = bits.into_iter().map(f32::from_bits).map(|v| if v.is_finite() { v } else { 0.0 }).collect();
        let mut pair = Pair::new(Partition::even(input.len() as u32, 1));
        pair.selector.pass_above(&mut pair.feedback, (&input).into(), &[floor]);
        pair.start(input);
        pair.take_top(0, quota, ValueType::F32);
        pair.apply(0, 1, &BTreeSet::new());
    }
}
