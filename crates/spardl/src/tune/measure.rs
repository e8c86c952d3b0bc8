//! What a method's own work costs here: some steps of it over the transport that it is to be used on.

use std::time::Duration;

use spardl_core::{Algorithm, Density, Estimate, Gamma, Input, Layout, Line, Model, World};
use spardl_drive::{DriveError, Driver, Transport, gather, measure_line};

/// Steps in which floors and thresholds settle, and those that count.
const SETTLING: u64 = 8;
const COUNTED: u64 = 5;
/// Elements from where the gradient of a step begins to where the next one does: whole cache lines.
const STRIDE: usize = 4112;

/// Elements of the gradients: enough that they come from memory, and as few as a slow network asks for.
const ELEMENTS: (u64, u64) = (1 << 14, 1 << 21);
/// Nanoseconds that a dense exchange of them may take on the network. Where the network is slower than that, what local work costs
/// matters little.
const PATIENCE: u64 = 20_000_000;

/// How many elements a probe has.
fn probe_len(line: Line, layouts: &[Layout]) -> u32 {
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
    let probe = Probe::new(transport.world(), layouts, density, line, limit);
    let gamma = probe.gamma(transport, algorithm)?;
    Ok(Model::of_exchange(line, gamma))
}

/// Steps of a method, as training takes them: with another gradient every time. One that stays the same is easier to select from,
/// for some methods more than for others.
pub(super) struct Probe {
    len: u32,
    density: Density,
    line: Line,
    limit: Duration,
    /// Of all steps: each begins a stride further, so that no element has the value that it had.
    gradients: Vec<f32>,
}

impl Probe {
    pub(super) fn new(
        world: World,
        layouts: &[Layout],
        density: Density,
        line: Line,
        limit: Duration,
    ) -> Self {
        let len = probe_len(line, layouts);
        let of_all = len as usize + (SETTLING + COUNTED) as usize * STRIDE;
        Self {
            len,
            density,
            line,
            limit,
            gradients: gradient(world.rank().get(), of_all),
        }
    }

    /// The gamma of a method, the same on all workers: the mean of their medians. What a step takes beyond its selection and its
    /// time on the line counts as merging, so that waits for others that have more to do, or for a core, are in it.
    pub(super) fn gamma<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        algorithm: &dyn Algorithm,
    ) -> Result<Gamma, DriveError> {
        let layout = Layout::flat(self.len);
        let workers = transport.world().size();
        let k = self.density.entries(self.len as usize);
        let Estimate { rounds, bytes } = algorithm.estimate(workers, &layout, k, 0);
        let mine = self.time(transport, algorithm, &layout, k)?;
        let mine: Vec<u8> = mine
            .iter()
            .flatten()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let all: Vec<Vec<[u64; 3]>> = gather(transport, &mine, self.limit)?
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
        let rest = step.saturating_sub(select + self.line.time(rounds.into(), bytes));
        let picos = |nanos: u64, count: u64| {
            let each = u128::from(nanos) * 1000 / u128::from(count.max(1));
            u64::try_from(each).unwrap_or(u64::MAX)
        };
        Ok(Gamma {
            select: picos(select, self.len.into()),
            merge: picos(merge.max(rest), bytes),
        })
    }

    /// Nanoseconds of selecting, of merging and of all in steps of this worker.
    fn time<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        algorithm: &dyn Algorithm,
        layout: &Layout,
        k: usize,
    ) -> Result<Vec<[u64; 3]>, DriveError> {
        let clock = transport.clock();
        let driver = Driver::for_layouts(transport, algorithm, std::slice::from_ref(layout))?;
        let mut driver = driver.with_timeout(self.limit);
        let mut steps = Vec::new();
        for step in 0..SETTLING + COUNTED {
            let gradient = &self.gradients[step as usize * STRIDE..][..self.len as usize];
            driver.barrier()?;
            let began = clock.now();
            let report = driver.all_reduce(&[Input::new(gradient, k, step)])?;
            let took = clock.now().since(began);
            let counts = report.total();
            if step >= SETTLING {
                steps.push([counts.select, counts.merge, took].map(|time| time.as_nanos() as u64));
            }
        }
        Ok(steps)
    }
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

/// Numbers with a tail as gradients have it (a power law of index 4), others for every worker.
fn gradient(rank: u32, len: usize) -> Vec<f32> {
    let value = |index: u64| {
        let mixed = (u64::from(rank) << 40 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = mixed ^ mixed >> 32;
        let unit = ((mixed >> 40) as f32 + 1.0) / (1 << 24) as f32;
        let magnitude = 1.0 / unit.sqrt().sqrt() - 1.0;
        match mixed & 1 {
            0 => magnitude,
            _ => -magnitude,
        }
    };
    (0..len as u64).map(value).collect()
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
            let layouts = [Layout::flat(50_000)];
            let probe = Probe::new(transport.world(), &layouts, density, line, limit);
            probe.gamma(&mut transport, &*algorithm).unwrap()
        });
        let gammas = gammas.unwrap();
        assert!(gammas[0].select > 0 && gammas[0].merge > 0, "{gammas:?}");
        assert!(gammas.iter().all(|gamma| *gamma == gammas[0]));
    }

    #[test]
    fn every_step_of_a_probe_has_another_gradient_with_a_long_tail() {
        let world = World::new(1, 2).unwrap();
        let (density, limit) = (Density::new(0.01).unwrap(), Duration::from_secs(1));
        let line = Line {
            latency: 0,
            bandwidth: u64::MAX,
        };
        let probe = Probe::new(world, &[Layout::flat(100_000)], density, line, limit);
        let step = |step: usize| &probe.gradients[step * STRIDE..][..100_000];
        let same = step(0).iter().zip(step(1)).filter(|(a, b)| a == b);
        assert!(same.count() < 100);
        let mut sizes: Vec<f32> = step(0).iter().map(|value| value.abs()).collect();
        sizes.sort_by(f32::total_cmp);
        // A hundredth of the elements is above 2.16, half of them are below 0.19.
        assert!((2.0..2.4).contains(&sizes[99_000]), "{}", sizes[99_000]);
        assert!((0.18..0.2).contains(&sizes[50_000]), "{}", sizes[50_000]);
        let below = step(0).iter().filter(|value| **value < 0.0).count();
        assert!((49_000..51_000).contains(&below), "{below}");
        let other = gradient(0, 100_000);
        assert!(other != step(0));
    }
}
