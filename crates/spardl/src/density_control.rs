//! Density by time: as much of the gradient as the network carries within a budget.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use spardl_core::{Algorithm, ConfigError, Density, Layout, Model};
use spardl_drive::Transport;

use crate::{Error, Reducer, Report};

/// How long the exchange of a step may take.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// So long.
    Time(Duration),
    /// This part of the time in which the gradient is computed.
    Part(f64),
}

impl Default for Budget {
    /// Two thirds of the compute time: about the backward pass, behind which an exchange can hide.
    fn default() -> Self {
        Self::Part(0.67)
    }
}

impl Budget {
    /// Nanoseconds, for a step that computes for so long.
    fn nanos(self, compute: u64) -> u64 {
        match self {
            Self::Time(time) => time.as_nanos() as u64,
            Self::Part(part) => (part * compute as f64) as u64,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => write!(f, "{}us", time.as_micros()),
            Self::Part(part) => part.fmt(f),
        }
    }
}

/// Reads `20ms` (or s, us), or `0.5` for half of the compute time.
impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let timed = units.iter().find_map(|(name, size)| {
            let number: f64 = text.strip_suffix(name)?.trim().parse().ok()?;
            Duration::try_from_secs_f64(number * size).ok()
        });
        let part = || text.parse().ok().filter(|part: &f64| part.is_finite());
        let budget = match timed {
            Some(time) => Some(Self::Time(time)).filter(|_| !time.is_zero()),
            None => part().filter(|part| *part > 0.0).map(Self::Part),
        };
        budget.ok_or_else(|| {
            format!(
                "budget '{text}' is not a time like 20ms or a part of the compute time like 0.5"
            )
        })
    }
}

/// The part that a change of the density may make at once, at most; and below it is not worth one.
const MOST_AT_ONCE: f64 = 2.0;
const LEAST: f64 = 1.02;

/// Holds the exchange of a [`Reducer`] within a budget by its density, the same on all workers at every step.
///
/// [`DensityControl::note`] each step, then [`DensityControl::adjust`] on all workers: every so many steps they exchange what their
/// steps took, and rank 0's word on the next density holds for all. What a step's exchange took is what it took on the worker that
/// waited least, as the others waited for slower ones too.
///
/// ```
/// use std::time::Duration;
/// use spardl::{Budget, DensityControl, Reducer, run_workers};
///
/// let densities = run_workers(2, |transport| {
///     let mut reducer = Reducer::builder("spardl").build(transport, 10_000)?;
///     let mut control = DensityControl::new(Budget::Time(Duration::from_millis(5))).every(4);
///     control.learn(&mut reducer)?; // alpha, beta and gamma: what a density will take
///     for _ in 0..12 {
///         reducer.set_density(control.density())?;
///         let report = reducer.all_reduce(&mut [0.5; 10_000])?;
///         control.note(Duration::from_millis(10), &report);
///         control.adjust(&mut reducer)?;
///     }
///     Ok::<_, spardl::Error>(control.density())
/// })?;
/// let densities: Vec<f64> = densities.into_iter().collect::<Result<_, _>>()?;
/// assert!(densities[0] == densities[1] && (0.001..=0.5).contains(&densities[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DensityControl {
    budget: Budget,
    least: f64,
    most: f64,
    every: usize,
    density: f64,
    model: Option<Model>,
    /// Nanoseconds of computing and of exchanging, of the steps since the last look.
    steps: Vec<[u64; 2]>,
}

/// What a look at the times found, the same on all workers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Looked {
    /// What exchanges took, the median.
    pub exchange: Duration,
    /// What they may take.
    pub budget: Duration,
    /// The density they had.
    pub before: f64,
    /// The density from now on.
    pub density: f64,
}

impl DensityControl {
    /// A control that starts with density 0.01, stays between 0.001 and 0.5 and looks at the times every 20 steps.
    pub const fn new(budget: Budget) -> Self {
        Self {
            budget,
            least: 0.001,
            most: 0.5,
            every: 20,
            density: 0.01,
            model: None,
            steps: Vec::new(),
        }
    }

    /// The densities between which it stays.
    ///
    /// # Errors
    /// When they are not densities, or the first is above the second or 0.
    pub fn between(mut self, least: f64, most: f64) -> Result<Self, Error> {
        let (low, high) = (Density::new(least)?, Density::new(most)?);
        if low.get() <= 0.0 || low.get() > high.get() {
            return Err(ConfigError::BadOption {
                method: "density by time".to_owned(),
                option: "bounds".to_owned(),
                value: format!("{least}..{most}"),
                expected: "the lower one is above 0 and not above the other".to_owned(),
            }
            .into());
        }
        (self.least, self.most) = (least, most);
        self.density = self.density.clamp(least, most);
        Ok(self)
    }

    /// Steps from one look to the next, at least one.
    #[must_use]
    pub fn every(mut self, steps: usize) -> Self {
        self.every = steps.max(1);
        self
    }

    /// The density that the next step should have.
    pub const fn density(&self) -> f64 {
        self.density
    }

    /// Goes on from a density that was saved, within the bounds.
    pub fn set_density(&mut self, density: f64) {
        self.density = density.clamp(self.least, self.most);
    }

    /// Measures what messages and the reducer's own work take, so that the first density that is tried is close. Without it the
    /// control finds its way by what steps take. All workers must call it, between steps.
    ///
    /// # Errors
    /// When a step is not finished, or a peer is lost or late.
    pub fn learn<T: Transport>(&mut self, reducer: &mut Reducer<T>) -> Result<(), Error> {
        self.model = Some(reducer.measure_model(Density::new(self.density)?)?);
        Ok(())
    }

    /// Notes a step: how long this worker computed, and what the exchange reported.
    pub fn note(&mut self, compute: Duration, report: &Report) {
        let exchange = report.counts.select + report.counts.merge + report.waited;
        self.steps
            .push([compute, exchange].map(|time| time.as_nanos() as u64));
    }

    /// After every so many steps: agrees on the next density. All workers must call it after each step they noted.
    ///
    /// # Errors
    /// When a step is not finished, or a peer is lost or late.
    pub fn adjust<T: Transport>(
        &mut self,
        reducer: &mut Reducer<T>,
    ) -> Result<Option<Looked>, Error> {
        if self.steps.len() < self.every {
            return Ok(None);
        }
        let mine = self.steps.drain(..).flatten();
        let mine: Vec<u8> = mine.flat_map(u64::to_le_bytes).collect();
        let all = reducer.gather(&mine)?;
        let (compute, exchange) = summary(&all);
        let budget = self.budget.nanos(compute);
        let (workers, layouts) = (reducer.world().size(), reducer.layouts());
        let shape = |density: f64| match &self.model {
            Some(model) => predicted(model, reducer.method(), workers, layouts, density),
            None => density,
        };
        let next = next(self.density, exchange, budget, shape).clamp(self.least, self.most);
        // One worker computes and the others are told: sums of estimates may differ in a bit between machines.
        let said = reducer.gather(&next.to_bits().to_le_bytes())?;
        let first = said
            .first()
            .and_then(|said| said.as_slice().try_into().ok());
        let next = first.map_or(next, |bits| f64::from_bits(u64::from_le_bytes(bits)));
        let before = self.density;
        self.set_density(next);
        Ok(Some(Looked {
            exchange: Duration::from_nanos(exchange),
            budget: Duration::from_nanos(budget),
            before,
            density: self.density,
        }))
    }
}

/// The median over steps of what the worker computed that computed longest, and of what the exchange took on the worker that
/// waited least.
fn summary(all: &[Vec<u8>]) -> (u64, u64) {
    let workers: Vec<Vec<[u64; 2]>> = all
        .iter()
        .map(|said| {
            let (numbers, _) = said.as_chunks::<8>();
            let (steps, _) = numbers.as_chunks::<2>();
            let step = |step: &[[u8; 8]; 2]| step.map(u64::from_le_bytes);
            steps.iter().map(step).collect()
        })
        .collect();
    let steps = workers.iter().map(Vec::len).min().unwrap_or(0);
    let at = |step: usize| workers.iter().map(move |steps| steps[step]);
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    };
    let computes = (0..steps).filter_map(|step| at(step).map(|[compute, _]| compute).max());
    let exchanges = (0..steps).filter_map(|step| at(step).map(|[_, exchange]| exchange).min());
    (median(computes.collect()), median(exchanges.collect()))
}

/// What the model says of an exchange, in nanoseconds.
fn predicted(
    model: &Model,
    algorithm: &dyn Algorithm,
    workers: u32,
    layouts: &[Layout],
    density: f64,
) -> f64 {
    let density = Density::new(density).unwrap_or(Density::ALL);
    let predicted = model.predict(algorithm, workers, layouts, density);
    predicted.exchange() as f64
}

/// The largest density whose exchange fits the budget: what steps took, carried over to other densities by the shape of the
/// model. It changes by a factor of two at most, and stays when it would hardly change.
fn next(density: f64, exchange: u64, budget: u64, shape: impl Fn(f64) -> f64) -> f64 {
    let took = exchange.max(1) as f64 / shape(density).max(1e-300);
    let fits = |density: f64| took * shape(density) <= budget as f64;
    let (mut low, mut high) = (density / MOST_AT_ONCE, (density * MOST_AT_ONCE).min(1.0));
    if fits(high) {
        return high;
    }
    if !fits(low) {
        return low;
    }
    while high / low > 1.002 {
        let middle = 0.5 * (low + high);
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    let change = (low / density).max(density / low);
    if change < LEAST { density } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until exchanges that take `fixed + slope density` are within a tenth of the budget, and the density then.
    fn settle(start: f64, (fixed, slope): (f64, f64), shape: fn(f64) -> f64) -> (usize, f64) {
        let (mut density, budget) = (start, 20_000_000u64);
        for looks in 0..40 {
            let exchange = (fixed + slope * density) as u64;
            let off = exchange as f64 / budget as f64;
            if (0.9..=1.1).contains(&off) {
                return (looks, density);
            }
            density = next(density, exchange, budget, shape).clamp(0.001, 0.5);
        }
        panic!("it does not settle: {density}");
    }

    #[test]
    fn the_budget_is_reached_from_above_and_below_with_a_model_and_without() {
        let with_model: fn(f64) -> f64 = |density| 3e6 + 4e8 * density;
        let without: fn(f64) -> f64 = |density| density;
        for shape in [with_model, without] {
            for start in [0.001, 0.01, 0.4] {
                for network in [(2e6, 1e9), (2e6, 1e8), (5e6, 6e8)] {
                    let (looks, density) = settle(start, network, shape);
                    assert!(looks <= 12, "{looks} looks from {start}");
                    assert!((0.001..=0.5).contains(&density), "{density}");
                }
            }
        }
    }

    #[test]
    fn a_density_changes_by_a_factor_of_two_at_most_and_not_for_nothing() {
        let linear = |density: f64| density;
        assert_eq!(next(0.01, 1_000, 1_000_000, linear), 0.02);
        assert_eq!(next(0.01, 1_000_000, 1_000, linear), 0.005);
        assert_eq!(next(0.01, 1_000_000, 1_010_000, linear), 0.01);
        assert_eq!(next(0.8, 1, 1_000_000, linear), 1.0);
    }

    #[test]
    fn the_longest_compute_and_the_shortest_wait_count_and_the_middle_of_the_steps() {
        let say = |steps: &[[u64; 2]]| -> Vec<u8> {
            steps
                .iter()
                .flatten()
                .flat_map(|n| n.to_le_bytes())
                .collect()
        };
        let one = say(&[[10, 90], [12, 50], [10, 70]]);
        let other = say(&[[30, 40], [11, 60], [20, 75]]);
        assert_eq!(summary(&[one, other]), (20, 50));
        assert_eq!(summary(&[Vec::new(), say(&[[1, 1]])]), (0, 0));
    }

    #[test]
    fn budgets_are_read_and_refused_in_words() {
        assert_eq!("20ms".parse(), Ok(Budget::Time(Duration::from_millis(20))));
        assert_eq!("0.5".parse(), Ok(Budget::Part(0.5)));
        let again = Budget::Time(Duration::from_millis(20)).to_string();
        assert_eq!(again.parse(), Ok(Budget::Time(Duration::from_millis(20))));
        for text in ["", "fast", "0", "-1", "0ms", "nan", "20 parsecs"] {
            let error = text.parse::<Budget>().expect_err(text);
            assert!(error.contains("like 20ms"), "{error}");
        }
    }
}
