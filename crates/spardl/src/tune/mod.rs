//! Which method is fastest here: measured, predicted, explained.
//!
//! [`Tuner::tune`] measures what messages take between the workers of a transport (alpha and beta) and what a method's own work
//! costs on them (gamma), and takes the least predicted time over every method that loses nothing, the dense ones included. The
//! decision itself, [`rank`], is a function of these numbers alone.
//!
//! ```
//! use spardl::tune::Tuner;
//! use spardl::{Density, Layout, run_workers};
//!
//! let tunings = run_workers(2, |mut transport| {
//!     Tuner::new().tune(&mut transport, &[Layout::flat(20_000)], Density::new(0.01)?)
//! })?;
//! for tuning in tunings {
//!     println!("{}", tuning?); // a table, and the choice in words
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choice;
pub(crate) mod measure;
mod measurement;
mod tuning;

use std::any::type_name;
use std::path::PathBuf;
use std::time::Duration;

use spardl_core::{Density, Gamma, Layout, Line, Model};
use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_drive::{DriveError, Transport, gather, measure_line};
use spardl_kernels::Level;

use crate::Error;

use measure::Probe;

pub use choice::{Choice, Gammas, Kind, Ranked, Space, rank};
pub use measurement::{Conditions, Measurement, MeasurementError};
pub use tuning::Tuning;

/// What is predicted to take at most so many times as long as the best is measured so often again.
const CLOSE: f64 = 1.5;
const AGAIN: u32 = 2;

/// How a method is chosen.
#[derive(Clone, Debug)]
pub struct Tuner {
    space: Space,
    host: String,
    cache: Option<PathBuf>,
    factor: f64,
    every: u64,
    timeout: Duration,
    every_method: bool,
    margin: f64,
    current: Option<Choice>,
}

impl Default for Tuner {
    fn default() -> Self {
        Self::new()
    }
}

impl Tuner {
    /// A tuner of everything in [`Space::default`], without a cache.
    pub fn new() -> Self {
        Self {
            space: Space::default(),
            host: String::new(),
            cache: None,
            factor: 3.0,
            every: 100,
            timeout: DEFAULT_TIMEOUT,
            every_method: false,
            margin: 0.1,
            current: None,
        }
    }

    /// What it chooses from.
    #[must_use]
    pub fn space(mut self, space: Space) -> Self {
        self.space = space;
        self
    }

    /// The name of this machine: what was measured on others is not taken from the cache.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// A file in which rank 0 keeps what was measured, with the conditions that it holds for: number of workers, lengths of the
    /// buckets, density, transport, hosts, SIMD level, version. Under the same conditions nothing is measured again.
    #[must_use]
    pub fn cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache = Some(path.into());
        self
    }

    /// A [`Reducer`](crate::Reducer) chooses again when its steps take so many times longer, or shorter, than expected. Default:
    /// 3; below 1 it never does.
    #[must_use]
    pub const fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Steps from one look at the times to the next. Default: 100.
    #[must_use]
    pub const fn every(mut self, steps: u64) -> Self {
        self.every = steps;
        self
    }

    /// How much longer than the fastest method the one in use must be predicted to take before a [`Reducer`](crate::Reducer)
    /// changes, as a part of that time. Default: 0.1, so that the noise of two measurements changes nothing.
    #[must_use]
    pub const fn margin(mut self, margin: f64) -> Self {
        self.margin = margin;
        self
    }

    /// Stays with the choice that is in use now, unless that is predicted to take longer than the fastest by more than the margin.
    #[must_use]
    pub fn stay_with(mut self, current: Choice) -> Self {
        self.current = Some(current);
        self
    }

    /// How long to wait for a peer. Default: 300 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Measures the local work of every method, not only of those that may win on this network.
    #[must_use]
    pub const fn every_method(mut self, every: bool) -> Self {
        self.every_method = every;
        self
    }

    pub(crate) const fn watched(&self) -> (f64, u64) {
        (self.factor, self.every)
    }

    /// Chooses, the same on all workers. All must call it with the same arguments, with nothing in flight.
    ///
    /// # Errors
    /// When a peer is lost or late.
    pub fn tune<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        layouts: &[Layout],
        density: Density,
    ) -> Result<Tuning, Error> {
        let conditions = self.conditions(transport, layouts, density)?;
        let mut note = None;
        let known = match &self.cache {
            None => None,
            Some(path) => {
                let read = (transport.world().rank().get() == 0)
                    .then(|| measurement::read(path, &conditions));
                let (known, complaint) = read.unwrap_or_default();
                note = complaint;
                let said = known.map_or_else(Vec::new, |known| known.to_json().into_bytes());
                let said = self.word_of_first(transport, &said)?;
                Measurement::from_json(&said).ok()
            }
        };
        if let Some(known) = known {
            return self.tuning((layouts, density), known, true);
        }
        let measured = self.measure(transport, layouts, density, conditions)?;
        if note.is_none() {
            note = self.keep(transport, &measured);
        }
        let tuning = self.tuning((layouts, density), measured, false)?;
        Ok(tuning.with_note(note))
    }

    /// As [`Tuner::tune`], but measures again whatever the cache has, and keeps that instead.
    ///
    /// # Errors
    /// As [`Tuner::tune`].
    pub fn tune_anew<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        layouts: &[Layout],
        density: Density,
    ) -> Result<Tuning, Error> {
        let conditions = self.conditions(transport, layouts, density)?;
        let measured = self.measure(transport, layouts, density, conditions)?;
        let note = self.keep(transport, &measured);
        let tuning = self.tuning((layouts, density), measured, false)?;
        Ok(tuning.with_note(note))
    }

    /// Rank 0 keeps what was measured, where there is a cache. Returns what went wrong with that.
    fn keep<T: Transport + ?Sized>(&self, transport: &T, measured: &Measurement) -> Option<String> {
        let path = self.cache.as_ref()?;
        let is_first = transport.world().rank().get() == 0;
        is_first.then(|| measurement::write(path, measured).err())?
    }

    /// Chooses for a network that is only known by its numbers: nothing is measured, and no worker is needed.
    ///
    /// # Errors
    /// When there is no worker.
    pub fn decide(
        &self,
        workers: u32,
        (layouts, density): (&[Layout], Density),
        line: Line,
        gammas: &Gammas,
    ) -> Result<Tuning, Error> {
        let conditions = Conditions {
            workers,
            ..self.known(layouts, density)
        };
        let mut given = Measurement::new(conditions, line);
        for choice in self.space.choices(workers)? {
            given.set_gamma(&choice, gammas.of(&choice));
        }
        self.tuning((layouts, density), given, false)
    }

    /// The decision, with the method in use in mind.
    fn tuning(
        &self,
        at: (&[Layout], Density),
        measured: Measurement,
        is_cached: bool,
    ) -> Result<Tuning, Error> {
        let tuning = Tuning::new(&self.space, at, measured, is_cached)?;
        Ok(match &self.current {
            Some(current) => tuning.staying_with(current, self.margin),
            None => tuning,
        })
    }

    /// Is this what is in use?
    fn is_current(&self, choice: &Choice) -> bool {
        let current = self.current.as_ref().map(Choice::to_string);
        current.is_some_and(|current| current == choice.to_string())
    }

    fn conditions<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        layouts: &[Layout],
        density: Density,
    ) -> Result<Conditions, Error> {
        let mine = format!("{} {}", self.host, Level::best().name());
        let all = gather(transport, mine.as_bytes(), self.timeout).map_err(DriveError::from)?;
        let mut hosts: Vec<String> = Vec::new();
        for host in all.iter().map(|host| String::from_utf8_lossy(host)) {
            hosts.push(host.trim().to_owned());
        }
        Ok(Conditions {
            workers: transport.world().size(),
            // A borrowed transport is the same one.
            transport: type_name::<T>().trim_start_matches("&mut ").to_owned(),
            hosts,
            ..self.known(layouts, density)
        })
    }

    /// The conditions that are known without workers.
    fn known(&self, layouts: &[Layout], density: Density) -> Conditions {
        Conditions {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lengths: layouts.iter().map(Layout::len).collect(),
            density: density.to_string(),
            values: self.space.values.iter().map(ToString::to_string).collect(),
            every_method: self.every_method,
            ..Conditions::default()
        }
    }

    /// Measures alpha and beta, then the gamma of every method that may still win with it.
    fn measure<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        layouts: &[Layout],
        density: Density,
        conditions: Conditions,
    ) -> Result<Measurement, Error> {
        let workers = transport.world().size();
        let line = measure_line(transport, self.timeout).map_err(DriveError::from)?;
        let probe = Probe::new(transport.world(), layouts, density, line, self.timeout);
        let predicted = |choice: &Choice, gamma: Gamma| {
            let estimates = choice.estimates(workers, layouts, density);
            let model = Model::of_exchange(line, gamma);
            model.predict_from(&estimates).exchange()
        };
        let (mut looks, mut best) = (Vec::new(), u64::MAX);
        for (choice, network) in self.by_network(transport, layouts, density, line)? {
            // What is in use is measured too: how much another one is faster decides.
            if network >= best && !self.every_method && !self.is_current(&choice) {
                continue;
            }
            let gamma = probe.gamma(transport, &**choice.algorithm())?;
            best = best.min(predicted(&choice, gamma));
            looks.push((choice, vec![gamma]));
        }
        // The least of many numbers is one that was lucky: what is close to it is looked at again, in turn.
        for _ in 0..AGAIN {
            for (choice, gammas) in &mut looks {
                if predicted(choice, gammas[0]) as f64 <= CLOSE * best as f64 {
                    gammas.push(probe.gamma(transport, &**choice.algorithm())?);
                }
            }
        }
        let mut measured = Measurement::new(conditions, line);
        for (choice, mut gammas) in looks {
            gammas.sort_by_key(|gamma| predicted(&choice, *gamma));
            measured.set_gamma(&choice, gammas[gammas.len() / 2]);
        }
        Ok(measured)
    }

    /// The choices in the order of what the network alone takes for them, as rank 0 computes it: all workers must look at the same
    /// ones.
    fn by_network<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        layouts: &[Layout],
        density: Density,
        line: Line,
    ) -> Result<Vec<(Choice, u64)>, Error> {
        let workers = transport.world().size();
        let choices = self.space.choices(workers)?;
        let model = Model::of_exchange(line, Gamma::default());
        let mut order: Vec<(u32, u64)> = (0..)
            .zip(&choices)
            .map(|(index, choice)| {
                let estimates = choice.estimates(workers, layouts, density);
                (index, model.predict_from(&estimates).exchange())
            })
            .collect();
        order.sort_by_key(|(_, nanos)| *nanos);
        let mine: Vec<u8> = order
            .iter()
            .flat_map(|(index, nanos)| [u64::from(*index).to_le_bytes(), nanos.to_le_bytes()])
            .flatten()
            .collect();
        let said = self.word_of_first(transport, &mine)?;
        let (numbers, _) = said.as_chunks::<8>();
        let (pairs, _) = numbers.as_chunks::<2>();
        let pairs = pairs.iter().filter_map(|[index, nanos]| {
            let index = usize::try_from(u64::from_le_bytes(*index)).ok()?;
            Some((choices.get(index)?.clone(), u64::from_le_bytes(*nanos)))
        });
        Ok(pairs.collect())
    }

    /// What rank 0 says.
    fn word_of_first<T: Transport + ?Sized>(
        &self,
        transport: &mut T,
        mine: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let first = transport.world().rank().get() == 0;
        let said = if first { mine } else { &[] };
        let mut all = gather(transport, said, self.timeout).map_err(DriveError::from)?;
        Ok(all.swap_remove(0))
    }
}
