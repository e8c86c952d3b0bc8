//! Ok-Topk in whole clusters.

use spardl_core::{Collective, Layout, Outcome};
use spardl_sim::Cluster;
use spardl_testkit::{check, generate};

use super::*;

fn cluster(config: &OkTopk, workers: u32, len: usize) -> Cluster {
    Cluster::new(config, workers, &Layout::flat(len as u32)).unwrap()
}

/// A step on gradients, committed; returns the update and the rounds it took.
fn step(cluster: &mut Cluster, gradients: &[Vec<f32>], k: usize, at: u64) -> (Vec<f32>, u32) {
    let report = cluster.step(gradients, k, at).unwrap();
    assert!(report.outcomes.iter().all(|o| *o == Outcome::Updated));
    let update = check::agreed(cluster.workers(), "ok-topk");
    cluster.commit().unwrap();
    (update, report.ledger.rounds[0])
}

fn nonzeros(values: &[f32]) -> usize {
    values.iter().filter(|value| **value != 0.0).count()
}

fn boundaries(worker: &Collective) -> Vec<u64> {
    worker.state().method.u64("boundaries").unwrap().to_vec()
}

fn thresholds(worker: &Collective) -> Vec<f32> {
    worker.state().method.f32("thresholds").unwrap().to_vec()
}

/// Gradients whose large values all lie in the first part of the bucket.
fn skewed(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut gradients = generate::integers(seed, workers, len);
    for gradient in &mut gradients {
        gradient[..len / 10].iter_mut().for_each(|v| *v *= 64.0);
    }
    gradients
}

/// Steps whose inputs equal update plus residuals, of `steps`.
fn conserved(config: &OkTopk, workers: u32, steps: u64) -> u64 {
    let (len, k) = (400, 20);
    let mut cluster = cluster(config, workers, len);
    let holds = (0..steps).filter(|&at| {
        let gradients = skewed(at, workers, len);
        let before = check::inputs(cluster.workers(), &gradients);
        let (update, _) = step(&mut cluster, &gradients, k, at);
        let mut after = check::residuals(cluster.workers());
        check::add(&mut after, &update);
        assert!(nonzeros(&update) <= CAP * k);
        before == after
    });
    holds.count() as u64
}

#[test]
fn the_example_of_the_header_comes_out() {
    let inputs: [&[(usize, f32)]; 5] = [
        &[(0, 9.0), (5, 4.0)],
        &[(0, 8.0), (9, 3.0)],
        &[(2, 5.0), (5, 2.0)],
        &[(0, 6.0), (7, 7.0)],
        &[(7, 5.0), (9, 1.0)],
    ];
    let gradients = inputs.map(|entries| {
        let mut gradient = vec![0.0; 10];
        entries.iter().for_each(|&(i, v)| gradient[i] = v);
        gradient
    });
    let mut cluster = cluster(&OkTopk::default(), 5, 10);
    let (update, rounds) = step(&mut cluster, &gradients, 2, 0);
    assert_eq!(update, [23.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 12.0, 0.0, 0.0]);
    assert_eq!(rounds, 1 + 3 + 6);
    assert_eq!(boundaries(cluster.workers()[2]), [1, 1, 7, 7, 10]);
    assert_eq!(thresholds(cluster.workers()[0]), [4.0, 12.0]);
    assert_eq!(nonzeros(cluster.workers()[3].residual()), 0);
    assert_eq!(cluster.workers()[0].residual()[5], 4.0);
    assert_eq!(nonzeros(cluster.workers()[0].residual()), 1);
}

#[test]
fn nothing_is_lost_with_any_preset_and_any_balance() {
    for workers in [1, 2, 5, 7, 8] {
        for (_, preset) in Preset::ALL {
            for (_, balance) in Balance::ALL {
                let config = OkTopk {
                    preset,
                    balance,
                    repartition_every: 7,
                    exact_every: 5,
                    balance_trigger: 1.5,
                    ..OkTopk::default()
                };
                assert_eq!(conserved(&config, workers, 16), 16, "{}", config.describe());
            }
        }
    }
}

#[test]
fn the_published_intersection_applies_mass_twice() {
    let config = OkTopk {
        residual: Intersection::PublishedUnsorted,
        exact_every: 4,
        ..OkTopk::default()
    };
    assert!(!config.laws().conserves);
    for workers in [2, 5, 8] {
        // Every fourth step is exact and loses; the others hold.
        assert_eq!(conserved(&config, workers, 16), 12);
    }
}

#[test]
fn balance_changes_rounds_and_nothing_else() {
    let (workers, len, k) = (8, 4000, 100);
    let with = |balance| OkTopk {
        balance,
        balance_trigger: 2.0,
        repartition_every: 1000,
        ..OkTopk::default()
    };
    let configs = [Balance::Never, Balance::Always, Balance::Auto].map(with);
    let mut clusters = configs.map(|config| cluster(&config, workers, len));
    let mut rounds = [0; 3];
    for at in 0..8 {
        // The cuts come from the first step; then the large values move.
        let mut gradients = skewed(at, workers, len);
        if at == 0 {
            gradients.iter_mut().for_each(|gradient| gradient.reverse());
        }
        let results: Vec<_> = clusters
            .iter_mut()
            .map(|cluster| step(cluster, &gradients, k, at))
            .collect();
        assert!(results.iter().all(|result| result.0 == results[0].0));
        rounds = [0, 1, 2].map(|c| rounds[c] + results[c].1);
    }
    let (exact, plain, balanced) = (2 + 3 + 6, 2 + 3, 2 + 3 + 3 + 1);
    assert_eq!(rounds[0], exact + 7 * plain);
    assert_eq!(rounds[1], exact + 7 * balanced);
    assert!(rounds[2] > rounds[0] && rounds[2] < rounds[1], "{rounds:?}");
}

#[test]
fn boundaries_ascend_to_the_end_and_are_equal_on_all_ranks() {
    for (workers, len, k) in [(1, 50, 5), (3, 2, 1), (6, 300, 30), (8, 4000, 100)] {
        let config = OkTopk {
            repartition_every: 2,
            ..OkTopk::default()
        };
        let mut cluster = cluster(&config, workers, len);
        for at in 0..6 {
            step(&mut cluster, &skewed(at, workers, len), k, at);
            let cuts = boundaries(cluster.workers()[0]);
            assert_eq!(cuts.len(), workers as usize, "one end for each region");
            assert!(cuts.is_sorted() && cuts.last() == Some(&(len as u64)));
            for worker in cluster.workers() {
                assert_eq!(boundaries(worker), cuts);
                assert_eq!(thresholds(worker)[1], thresholds(cluster.workers()[0])[1]);
            }
        }
    }
}

#[test]
fn regions_follow_the_selected_entries() {
    let (workers, len, k) = (4, 40_000, 800);
    let mut cluster = cluster(&OkTopk::default(), workers, len);
    let (update, _) = step(&mut cluster, &skewed(3, workers, len), k, 0);
    let mut start = 0;
    for end in boundaries(cluster.workers()[0]) {
        let share = nonzeros(&update[start..end as usize]);
        assert!((k / 16..k / 2).contains(&share), "a region has {share}");
        start = end as usize;
    }
}

/// Runs 100 steps, changes the scale of the gradients, and returns the counts (selected by worker 0, in the update) of the
/// steps after that.
fn counts_after(config: &OkTopk, change: f32, steps: u64) -> Vec<(usize, usize)> {
    let (workers, len, k) = (4, 20_000, 400);
    let mut cluster = cluster(config, workers, len);
    let mut counts = Vec::new();
    for at in 0..100 + steps {
        let scale = if at < 100 { 1.0 } else { change };
        let mut gradients = generate::fractions(at, workers, len);
        gradients.iter_mut().flatten().for_each(|v| *v *= scale);
        let (update, _) = step(&mut cluster, &gradients, k, at);
        for worker in cluster.workers() {
            assert!(thresholds(worker).iter().all(|t| t.is_finite() && *t > 0.0));
        }
        if at >= 100 {
            let selected = cluster.workers()[0].stats().selected as usize;
            counts.push((selected, nonzeros(&update)));
        }
    }
    counts
}

type Counts = std::ops::RangeInclusive<usize>;

/// The counts, selected and in the update, at which the published programs leave their thresholds alone when k is 400.
fn bands_of(preset: Preset) -> [Counts; 2] {
    match preset {
        Preset::Vgg => [267..=500, 267..=533],
        Preset::Lstm => [300..=500, 300..=500],
        Preset::Bert => [320..=500, 320..=500],
    }
}

/// The longest run of steps whose counts are all outside the band.
fn longest_outside(counts: &[usize], band: &Counts) -> usize {
    let runs = counts.split(|count| band.contains(count));
    runs.map(<[usize]>::len).max().unwrap_or(0)
}

#[test]
fn counts_return_to_the_band_within_tau_prime_of_a_tenfold_change_of_scale() {
    for (name, preset) in Preset::ALL {
        let tau_prime = preset.bands().exact_every as usize;
        let config = OkTopk {
            preset,
            exact_every: tau_prime as u64,
            ..OkTopk::default()
        };
        let [local, global] = bands_of(preset);
        for change in [10.0, 0.1] {
            let counts = counts_after(&config, change, 2 * tau_prime as u64);
            let context = format!("{name} times {change}: {counts:?}");
            let back = counts
                .iter()
                .position(|(selected, delivered)| {
                    local.contains(selected) && global.contains(delivered)
                })
                .unwrap();
            assert!(back < tau_prime, "{context}");
            let (selected, delivered): (Vec<_>, Vec<_>) =
                counts[tau_prime..].iter().copied().unzip();
            assert!(longest_outside(&selected, &local) <= 6, "{context}");
            if change > 1.0 {
                assert!(longest_outside(&delivered, &global) <= 6, "{context}");
            }
            // After a fall the residuals come in bursts: the band holds for a few steps together, with half its lower end.
            let around = global.start() / 2..=*global.end() + 50;
            for few in delivered.windows(4) {
                let mean = few.iter().sum::<usize>() / few.len();
                assert!(around.contains(&mean), "{few:?} in {context}");
            }
        }
    }
}

#[test]
fn constant_magnitudes_and_zeros_are_handled() {
    let (workers, len, k) = (3, 100, 10);
    let zeros = vec![vec![0.0; len]; 3];
    let ones = vec![vec![1.0; len]; 3];
    for (preset, expected) in [(Preset::Vgg, k), (Preset::Bert, 4 * k)] {
        let config = OkTopk {
            preset,
            ..OkTopk::default()
        };
        let mut cluster = cluster(&config, workers, len);
        assert_eq!(nonzeros(&step(&mut cluster, &zeros, k, 0).0), 0);
        assert_eq!(thresholds(cluster.workers()[0]), [0.0, 0.0], "none yet");
        assert_eq!(nonzeros(&step(&mut cluster, &ones, k, 1).0), k);
        assert_eq!(thresholds(cluster.workers()[0]), [1.0, 3.0]);
        // All the 90 others are at the threshold: raised above them it finds none and falls back, else the cap holds.
        assert_eq!(nonzeros(&step(&mut cluster, &zeros, k, 2).0), expected);
        let before = thresholds(cluster.workers()[0]);
        let empty = step(&mut cluster, &zeros, 0, 3).0;
        assert_eq!(nonzeros(&empty), 0, "k = 0 delivers nothing");
        assert_eq!(thresholds(cluster.workers()[0]), before);
    }
}

#[test]
fn an_aborted_step_leaves_thresholds_regions_and_counters_as_they_were() {
    let (workers, len, k) = (5, 300, 30);
    let mut cluster = cluster(&OkTopk::default(), workers, len);
    for at in 0..3 {
        let gradients = skewed(at, workers, len);
        let before: Vec<_> = cluster
            .workers()
            .into_iter()
            .map(Collective::state)
            .collect();
        let _ = cluster.step(&gradients, k, at).unwrap();
        cluster.abort();
        let after: Vec<_> = cluster
            .workers()
            .into_iter()
            .map(Collective::state)
            .collect();
        assert_eq!(before, after);
        step(&mut cluster, &gradients, k, at);
    }
}
