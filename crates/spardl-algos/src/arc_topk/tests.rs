use spardl_sim::Cluster;
use spardl_testkit::{check, generate};

use super::*;

/// The least seed whose first signs of step 0 differ, as in the header's example.
fn seed_of_the_example() -> u64 {
    let differs = |&seed: &u64| {
        let (rows, mut out) = (
            Rows::new(&Layout::flat(2), Row::Elements(2), 1, 1),
            Vec::new(),
        );
        rows.sketch(seed, 0, &[1.0, 1.0], &mut out);
        out == [0.0]
    };
    (0..).find(differs).expect("half of all seeds do")
}

#[test]
fn the_example_of_the_header_holds() {
    let algorithm = ArcTopk {
        row: Row::Elements(2),
        seed: seed_of_the_example(),
        ..ArcTopk::default()
    };
    let gradients = [
        [3.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [3.0, 0.0, 0.0, -2.0, 0.0, 0.0],
        [0.0, -1.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 2.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    ];
    let mut cluster = Cluster::new(&algorithm, 5, &Layout::flat(6)).unwrap();
    cluster.step(&gradients, 2, 0).unwrap();
    let update = check::agreed(cluster.workers(), "arc-topk");
    assert_eq!(update, [6.0, -1.0, 0.0, 0.0, 0.0, 0.0]);
    cluster.commit().unwrap();
    for (worker, gradient) in cluster.workers().iter().zip(&gradients) {
        let expected = [&[0.0, 0.0], &gradient[2..]].concat();
        assert_eq!(worker.residual(), expected);
    }
}

#[test]
fn rows_that_are_large_in_the_sum_alone_are_found() {
    let (workers, len, row, k) = (8u32, 4000usize, 20usize, 100);
    let algorithm = ArcTopk {
        row: Row::Elements(row as u32),
        columns: 4,
        ..ArcTopk::default()
    };
    let mut cluster = Cluster::new(&algorithm, workers, &Layout::flat(len as u32)).unwrap();
    // Noise that cancels between the workers, and five rows in which all agree a little.
    let loud = [3usize, 50, 51, 120, 199];
    let noise = generate::fractions(9, 1, len).remove(0);
    let worker = |rank: u32| -> Vec<f32> {
        let side = if rank.is_multiple_of(2) { 1.0 } else { -1.0 };
        let value = |i: usize| {
            let agreed = if loud.contains(&(i / row)) { 1.0 } else { 0.0 };
            side * 100.0 * noise[i] + agreed
        };
        (0..len).map(value).collect()
    };
    let gradients: Vec<_> = (0..workers).map(worker).collect();
    cluster.step(&gradients, k, 0).unwrap();
    let update = check::agreed(cluster.workers(), "arc-topk");
    let mut delivered: Vec<usize> = (0..len).filter(|&i| update[i] != 0.0).collect();
    delivered.iter_mut().for_each(|i| *i /= row);
    delivered.dedup();
    assert_eq!(delivered, loud);
}
