//! How a reducer is made.

use std::sync::Arc;
use std::time::Duration;

use spardl_algos::{Dense, Options, registry};
use spardl_core::{Algorithm, ConfigError, Density, Layout};
use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_drive::{Driver, OnNonFinite, Transport, pool};

use crate::reducer::Watch;
use crate::tune::{Tuner, Tuning};
use crate::{Error, Reducer};

/// What the gradient is replaced by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The mean over workers, as optimisers expect.
    #[default]
    Mean,
    /// The sum over workers.
    Sum,
}

/// How a [`Reducer`] is made.
#[derive(Clone, Debug)]
pub struct Builder {
    method: Method,
    density: f64,
    op: Op,
    timeout: Duration,
    on_non_finite: OnNonFinite,
    dense_steps: u64,
    threads: usize,
    tuner: Tuner,
}

/// The name that lets the reducer choose.
pub const AUTO: &str = "auto";

/// The method: one of the registry with its options, or one of the caller's own.
#[derive(Clone, Debug)]
enum Method {
    Named {
        name: String,
        options: Options,
    },
    Own(Arc<dyn Algorithm>),
    /// Chosen before, on these workers.
    Chosen(Box<Tuning>),
}

impl Builder {
    pub(crate) fn named(name: &str) -> Self {
        Self::new(Method::Named {
            name: name.to_owned(),
            options: Options::default(),
        })
    }

    pub(crate) fn own(algorithm: Arc<dyn Algorithm>) -> Self {
        Self::new(Method::Own(algorithm))
    }

    pub(crate) fn chosen(tuner: Tuner, tuning: Tuning) -> Self {
        Self::new(Method::Chosen(Box::new(tuning))).tuner(tuner)
    }

    fn new(method: Method) -> Self {
        Self {
            method,
            density: 0.01,
            op: Op::default(),
            timeout: DEFAULT_TIMEOUT,
            on_non_finite: OnNonFinite::default(),
            dense_steps: 0,
            threads: 1,
            tuner: Tuner::default(),
        }
    }

    /// Options of a method of the registry. An algorithm of one's own has its options already.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        if let Method::Named { options: place, .. } = &mut self.method {
            *place = options;
        }
        self
    }

    /// The target density: the part of the entries that an update should have, 0 to 1. Default 0.01.
    #[must_use]
    pub const fn density(mut self, density: f64) -> Self {
        self.density = density;
        self
    }

    /// What the gradient is replaced by. Default: the mean.
    #[must_use]
    pub const fn op(mut self, op: Op) -> Self {
        self.op = op;
        self
    }

    /// How long to wait for a peer. Default: 300 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What to do when some worker's gradient holds NaN or an infinity. Default: skip its bucket on all workers.
    #[must_use]
    pub const fn on_non_finite(mut self, policy: OnNonFinite) -> Self {
        self.on_non_finite = policy;
        self
    }

    /// Threads that this worker uses for its local work, its own included; the bits are the same for any number. Default: 1.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// How the method `auto` is chosen: when the reducer is made, by measuring this transport for a second or so, and again when
    /// steps no longer take what was expected. Times decide, so two runs may choose differently; the workers of a run never do.
    #[must_use]
    pub fn tuner(mut self, tuner: Tuner) -> Self {
        self.tuner = tuner;
        self
    }

    /// A warm-up: whole gradients are reduced in the first `steps` steps, then the method begins with an empty residual.
    /// [`Reducer::end_warm_up`] ends it earlier. Default: 0.
    #[must_use]
    pub const fn dense_steps(mut self, steps: u64) -> Self {
        self.dense_steps = steps;
        self
    }

    /// A reducer of gradients of `len` elements, as one bucket.
    ///
    /// # Errors
    /// When the method is unknown, an option does not fit the world, or a step would send messages that are too long.
    pub fn build<T: Transport>(self, transport: T, len: u32) -> Result<Reducer<T>, Error> {
        self.build_for(transport, vec![Layout::flat(len)])
    }

    /// A reducer with one bucket per layout: bucket `i` has the tensors of `layouts[i]`, on all workers.
    ///
    /// Several buckets can be reduced while others are still being computed; some methods look at the tensors of a bucket.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_for<T: Transport>(
        self,
        mut transport: T,
        layouts: Vec<Layout>,
    ) -> Result<Reducer<T>, Error> {
        let density = Density::new(self.density)?;
        let mut watch = None;
        let algorithm = match self.method {
            Method::Named { name, options } if name == AUTO => {
                no_options(&options)?;
                let tuner = self.tuner.timeout(self.timeout);
                let tuning = tuner.tune(&mut transport, &layouts, density)?;
                let algorithm = Arc::clone(tuning.best().algorithm());
                watch = Some(Watch::new(tuner, tuning));
                algorithm
            }
            Method::Named { name, options } => registry::build(&name, &options)?.into(),
            Method::Own(algorithm) => algorithm,
            Method::Chosen(tuning) => {
                let algorithm = Arc::clone(tuning.best().algorithm());
                watch = Some(Watch::new(self.tuner.timeout(self.timeout), *tuning));
                algorithm
            }
        };
        let (workers, limit) = (transport.world().size(), transport.message_limit());
        for layout in &layouts {
            let k = density.entries(layout.len() as usize);
            algorithm.check_messages(workers, layout, k, limit)?;
        }
        let driver = match self.dense_steps {
            0 => Driver::for_layouts(transport, &*algorithm, &layouts)?,
            _ => {
                // What the method refuses is refused now, not at the end of the warm-up.
                for layout in &layouts {
                    algorithm.machine(transport.world(), layout)?;
                }
                Driver::for_layouts(transport, &Dense::default(), &layouts)?
            }
        };
        let threads = pool(self.threads)?;
        let driver = driver
            .with_threads(&threads)
            .with_timeout(self.timeout)
            .with_on_non_finite(self.on_non_finite);
        Ok(Reducer::new(
            driver,
            algorithm,
            threads,
            layouts,
            density,
            self.op,
            self.dense_steps,
        )
        .watched(watch))
    }
}

/// What is chosen brings its own options.
fn no_options(options: &Options) -> Result<(), ConfigError> {
    match options.set.iter().next() {
        None => Ok(()),
        Some((option, value)) => Err(ConfigError::BadOption {
            method: AUTO.to_owned(),
            option: option.clone(),
            value: value.clone(),
            expected: "it chooses a method with its options: name one to set them".to_owned(),
        }),
    }
}
