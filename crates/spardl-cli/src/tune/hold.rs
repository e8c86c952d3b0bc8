//! Density by time, tried: steps of a method whose density follows what the exchange takes.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use spardl::tune::Choice;
use spardl::{Budget, DensityControl, Looked, Reducer, Transport, run_workers};
use spardl_sim::gradient::{Distribution, Synthetic};

use super::Plan;
use super::auto::first_cause;
use crate::job::Job;
use crate::output::{bad_request, tell};

/// Steps from one look at the times to the next.
const EVERY: usize = 10;

/// How far from its budget an exchange counts as within it.
const CLOSE: f64 = 0.2;

/// A look at the times.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Look {
    step: u64,
    density: f64,
    exchange_ms: f64,
    budget_ms: f64,
    next_density: f64,
}

/// What is to be tried.
pub(super) struct Hold {
    pub(super) budget: Budget,
    pub(super) steps: u64,
    /// Are looks printed as they come?
    pub(super) prints: bool,
}

impl Hold {
    /// A budget that does not need the compute time of a network.
    pub(super) fn new(budget: Budget, steps: u64, prints: bool) -> anyhow::Result<Self> {
        match budget {
            Budget::Time(_) => Ok(Self {
                budget,
                steps,
                prints,
            }),
            part => Err(bad_request(format!(
                "--exchange-budget {part} is a part of a time that is not known here: give a time like 20ms"
            ))),
        }
    }

    pub(super) fn run(
        &self,
        choice: &Choice,
        plan: &Plan,
        job: Option<&mut Job>,
    ) -> anyhow::Result<Vec<Look>> {
        match job {
            Some(job) => self.work(choice, plan, job.transport()),
            None => {
                let all =
                    run_workers(plan.workers, |transport| self.work(choice, plan, transport))?;
                let all = all.into_iter().map(|result| match result {
                    Ok(looks) => Ok(Ok(looks)),
                    Err(error) => error.downcast::<spardl::Error>().map(Err),
                });
                Ok(first_cause(all.collect::<anyhow::Result<Vec<_>>>()?)?)
            }
        }
    }

    fn work<T: Transport>(
        &self,
        choice: &Choice,
        plan: &Plan,
        transport: T,
    ) -> anyhow::Result<Vec<Look>> {
        let rank = transport.world().rank().get();
        let mut reducer = Reducer::with_algorithm(Arc::clone(choice.algorithm()))
            .timeout(plan.deadline)
            .build_for(transport, plan.layouts.clone())?;
        let synthetic = Synthetic {
            distribution: Distribution::HeavyTailed,
            correlation: 0.0,
            seed: 1,
        };
        let mut gradient = vec![0.0; reducer.len()];
        synthetic.fill(rank, 0, &mut gradient);
        let mut control = DensityControl::new(self.budget).every(EVERY);
        control.set_density(plan.density.get());
        control.learn(&mut reducer)?;
        let mut looks = Vec::new();
        for step in 1..=self.steps {
            reducer.set_density(control.density())?;
            for bucket in 0..reducer.buckets() {
                let range = reducer.range(bucket);
                reducer.begin(bucket, &gradient[range])?;
            }
            let report = reducer.wait()?;
            reducer.commit()?;
            control.note(Duration::ZERO, &report);
            if let Some(looked) = control.adjust(&mut reducer)? {
                let look = Look::new(step, &looked);
                if self.prints && rank == 0 {
                    tell(&look.line())?;
                }
                looks.push(look);
            }
        }
        Ok(looks)
    }
}

impl Look {
    fn new(step: u64, looked: &Looked) -> Self {
        Self {
            step,
            density: looked.before,
            exchange_ms: looked.exchange.as_secs_f64() * 1e3,
            budget_ms: looked.budget.as_secs_f64() * 1e3,
            next_density: looked.density,
        }
    }

    fn line(&self) -> String {
        format!(
            "step {:>5}  density {:.5}  exchange {:>8.2} ms of {:.2} ms ({:+.0} %)  next {:.5}\n",
            self.step,
            self.density,
            self.exchange_ms,
            self.budget_ms,
            100.0 * (self.exchange_ms / self.budget_ms - 1.0),
            self.next_density
        )
    }

    fn is_close(&self) -> bool {
        (self.exchange_ms / self.budget_ms - 1.0).abs() <= CLOSE
    }
}

/// How the second half of the looks went, after the density had found its place.
pub(super) fn in_words(looks: &[Look]) -> String {
    let settled = &looks[looks.len() / 2..];
    let close = settled.iter().filter(|look| look.is_close()).count();
    format!(
        "{close} of the last {} looks are within {:.0} % of the budget\n",
        settled.len(),
        100.0 * CLOSE
    )
}
