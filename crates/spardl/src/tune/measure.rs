//! What a method's own work costs here: some steps of it over the transport that it is to be used on.

use std::time::Duration;

use spardl_core::{Algorithm, Density, Estimate, Gamma, Input, Layout, Line, Model};
use spardl_drive::{DriveError, Driver, Transport, gather, measure_line};

/// Steps in which floors and thresholds settle, and those that count.
const SETTLING: u64 = 8;
const COUNTED: u64 = 5;

/// Elements of the gradients: enough that they come from memory, and as few as a slow network asks for.
const ELEMENTS: (u64, u64) = (1 << 14, 1 << 21);
/// Nanoseconds that a dense exchange of them may take on the network. Where the network is slower than that, what local work costs
/// matters little.
const PATIENCE: u64 = 20_000_000;

/// How many elements a probe has.
pub(super) fn probe_len(line: Line, layouts: &[Layout]) -> u32 {
    let elements: u64 = layouts.iter().map(|layout| u64::from(layout.len())).sum();
    let bits_in_time = u128::from(line.bandwidth) * u128::from(PATIENCE) / 1_000_000_000;
    // A dense exchange sends about eight bytes per element.
    let most = u64::try_from(bits_in_time / 64).unwrap_or(u64::MAX);
    let len = most.clamp(ELEMENTS.0, ELEMENTS.1).min(elements.max(1));
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Alpha, beta and the gamma of one method.
pub(crate) fn model<T: Transport + ?Sized>(
    transport: &mut T,
    algorithm: &dyn Algorithm,
    layouts: &[Layout],
    density: Density,
    limit: Duration,
) -> Result<Model, DriveError> {
    let line = measure_line(transport, limit)?;
    let len = probe_len(line, layouts);
    let gamma = probe(transport, algorithm, (len, density), line, limit)?;
    Ok(Model::of_exchange(line, gamma))
}

/// The gamma of a method, the same on all workers: the mean of their medians. What a step takes beyond its selection and its time
/// on the line counts as merging, so that waits for others that have more to do, or for a core, are in it.
pub(super) fn probe<T: Transport + ?Sized>(
    transport: &mut T,
    algorithm: &dyn Algorithm,
    (len, density): (u32, Density),
    line: Line,
    limit: Duration,
) -> Result<Gamma, DriveError> {
    let layout = Layout::flat(len);
    let workers = transport.world().size();
    let k = density.entries(len as usize);
    let Estimate { rounds, bytes } = algorithm.estimate(workers, &layout, k, 0);
    let mine = time(transport, algorithm, &layout, k, limit)?;
    let mine: Vec<u8> = mine
        .iter()
        .flatten()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let all: Vec<Vec<[u64; 3]>> = gather(transport, &mine, limit)?
        .iter()
        .map(|said| steps(said))
        .collect();
    let mean = |part: usize| {
        let medians = all
            .iter()
            .map(|steps| median(steps.iter().map(|step| step[part]).collect()));
        medians.sum::<u64>() / u64::from(workers)
    };
    let (select, merge) = (mean(0), mean(1));
    let slowest = |step: usize| {
        all.iter()
            .filter_map(|steps| steps.get(step))
            .map(|s| s[2])
            .max()
    };
    let step = median((0..COUNTED as usize).filter_map(slowest).collect());
    let rest = step.saturating_sub(select + line.time(rounds.into(), bytes));
    let picos = |nanos: u64, count: u64| {
        let each = u128::from(nanos) * 1000 / u128::from(count.max(1));
        u64::try_from(each).unwrap_or(u64::MAX)
    };
    Ok(Gamma {
        select: picos(select, len.into()),
        merge: picos(merge.max(rest), bytes),
    })
}

/// What a worker says of its steps: three numbers each.
fn steps(said: &[u8]) -> Vec<[u64; 3]> {
    let (numbers, _) = said.as_chunks::<8>();
    let (steps, _) = numbers.as_chunks::<3>();
    steps
        .iter()
        .map(|step| step.map(u64::from_le_bytes))
        .collect()
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// Nanoseconds of selecting, of merging and of all in steps of this worker.
fn time<T: Transport + ?Sized>(
    transport: &mut T,
    algorithm: &dyn Algorithm,
    layout: &Layout,
    k: usize,
    limit: Duration,
) -> Result<Vec<[u64; 3]>, DriveError> {
    let (rank, clock) = (transport.world().rank().get(), transport.clock());
    let driver = Driver::for_layouts(transport, algorithm, std::slice::from_ref(layout))?;
    let mut driver = driver.with_timeout(limit);
    let gradient = gradient(rank, layout.len());
    let mut steps = Vec::new();
    for step in 0..SETTLING + COUNTED {
        driver.barrier()?;
        let began = clock.now();
        let report = driver.all_reduce(&[Input::new(&gradient, k, step)])?;
        let took = clock.now().since(began);
        let counts = report.total();
        if step >= SETTLING {
            steps.push([counts.select, counts.merge, took].map(|time| time.as_nanos() as u64));
        }
    }
    Ok(steps)
}

/// A gradient with few large entries, another one for every worker.
fn gradient(rank: u32, len: u32) -> Vec<f32> {
    let value = |index: u32| {
        let mixed = (u64::from(rank) << 32 | u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        // From -1 to 1, evenly; its ninth power has a long tail.
        let even = (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let cube = even * even * even;
        cube * cube * cube
    };
    (0..len).map(value).collect()
}

#[cfg(test)]
mod tests {
    use spardl_drive::run_workers;

    use super::*;

    #[test]
    fn slow_networks_are_asked_for_little_and_short_gradients_for_no_more_than_they_are() {
        let len = |bandwidth, elements| {
            let line = Line {
                latency: 0,
                bandwidth,
            };
            probe_len(line, &[Layout::flat(elements)])
        };
        assert_eq!(len(1_000_000_000, 1 << 30), 312_500);
        assert_eq!(len(1_000, 1 << 30), 1 << 14);
        assert_eq!(len(u64::MAX, 1 << 30), 1 << 21);
        assert_eq!(len(u64::MAX, 77), 77);
        assert_eq!(len(u64::MAX, 0), 1);
    }

    #[test]
    fn all_workers_hear_the_same_costs() {
        let density = Density::new(0.01).unwrap();
        let algorithm = spardl_algos::registry::build("spardl", &Default::default()).unwrap();
        let limit = Duration::from_secs(60);
        let line = Line {
            latency: 0,
            bandwidth: u64::MAX,
        };
        let gammas = run_workers(3, |mut transport| {
            let size = (50_000, density);
            probe(&mut transport, &*algorithm, size, line, limit).unwrap()
        });
        let gammas = gammas.unwrap();
        assert!(gammas[0].select > 0 && gammas[0].merge > 0, "{gammas:?}");
        assert!(gammas.iter().all(|gamma| *gamma == gammas[0]));
    }
}
