//! The options that describe what workers compute, and what happens to messages.

use std::time::Duration;

use spardl_core::Rank;
use spardl_sim::{Compute, Cores, Effect, Rule, Spread, Stragglers};

use super::units::{duration, nanos};
use crate::output::bad_request;

/// How long workers compute.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct ComputeArgs {
    /// Time before the backward pass.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = nanos)]
    pub(crate) forward: u64,
    /// Time of the backward pass; the buckets are ready along it.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = nanos)]
    pub(crate) backward: u64,
    /// Noise of the compute time: constant, uniform:PART, exponential:PART, lognormal:SIGMA.
    #[arg(long, default_value = "constant", value_name = "SHAPE", value_parser = spread)]
    pub(crate) noise: Spread,
    /// Slow steps: PROBABILITYxFACTOR, e.g. 0.01x3 for a worker that takes three times as long in every hundredth step.
    #[arg(long, value_name = "PxF", value_parser = stragglers)]
    pub(crate) stragglers: Option<Stragglers>,
    /// Speeds of uneven machines, over and over along the ranks, e.g. 1,1,1,0.5.
    #[arg(long, value_delimiter = ',', value_name = "SPEED,..", value_parser = speed)]
    pub(crate) speeds: Vec<f64>,
    /// Picoseconds that selecting takes per element of the gradient.
    #[arg(long, default_value_t = 0, value_name = "PS")]
    pub(crate) select_ps: u64,
    /// Picoseconds that taking in and passing on takes per byte received.
    #[arg(long, default_value_t = 0, value_name = "PS")]
    pub(crate) merge_ps: u64,
    /// Cores that workers share to select and merge, and that move their messages: those of a machine with two-level, else of one machine with all of them
    /// [default: each worker has its own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) cores: Option<u32>,
    /// Picoseconds that the system takes of these cores to move a byte, on both ends together: see `spardl doctor`.
    #[arg(long, default_value_t = 0, value_name = "PS", requires = "cores")]
    pub(crate) transport_ps: u64,
}

impl ComputeArgs {
    /// The model of the workers, of which so many share the cores of a machine.
    pub(crate) fn model(&self, sharing: u32) -> Compute {
        Compute {
            forward: self.forward,
            backward: self.backward,
            spread: self.noise,
            stragglers: self.stragglers,
            speeds: self.speeds.clone(),
            select: self.select_ps,
            merge: self.merge_ps,
            cores: self.cores.map(|count| Cores {
                count,
                workers: sharing,
                transport: self.transport_ps,
            }),
        }
    }
}

fn part(text: &str, what: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|part| (0.0..=10.0).contains(part));
    number.ok_or_else(|| format!("'{text}' is not {what}: expected a number from 0 to 10"))
}

fn spread(text: &str) -> Result<Spread, String> {
    let (shape, width) = text.split_once(':').unwrap_or((text, ""));
    match shape {
        "constant" => Ok(Spread::Constant),
        "uniform" => part(width, "a part").map(|part| Spread::Uniform(part.min(1.0))),
        "exponential" => part(width, "a part").map(Spread::Exponential),
        "lognormal" => part(width, "a sigma").map(Spread::LogNormal),
        _ => Err(format!(
            "'{text}' is not a noise: expected constant, uniform:0.1, exponential:0.1 or lognormal:0.1"
        )),
    }
}

fn stragglers(text: &str) -> Result<Stragglers, String> {
    let parts = text.split_once('x').and_then(|(probability, factor)| {
        let probability = probability.parse().ok()?;
        let factor: f64 = factor.parse().ok()?;
        let is_right = (0.0..=1.0).contains(&probability) && (1.0..=1e6).contains(&factor);
        is_right.then_some(Stragglers {
            probability,
            factor,
        })
    });
    parts.ok_or_else(|| {
        format!("'{text}' is not PROBABILITYxFACTOR: expected 0 to 1 and 1 or more, like 0.01x3")
    })
}

fn speed(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|speed| (1e-3..=1e3).contains(speed));
    number.ok_or_else(|| format!("'{text}' is not a speed: expected 0.001 to 1000"))
}

/// What happens to messages.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Faults")]
pub(crate) struct FaultArgs {
    /// A rule: drop=P (sent again after --retransmit), delay=TIME, duplicate=P or lose=P, and which messages: p=P, from=RANK,
    /// to=RANK, round=N. Rules add up, e.g. --fault drop=0.001 --fault delay=1ms,p=0.1,from=3.
    #[arg(long = "fault", value_name = "RULE")]
    pub(crate) faults: Vec<String>,
    /// Time after which a dropped message is sent again.
    #[arg(long, default_value = "200ms", value_name = "TIME", value_parser = duration)]
    pub(crate) retransmit: Duration,
    /// Time after which a worker gives up waiting, and the step fails.
    #[arg(long, default_value = "300s", value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Duration,
}

impl FaultArgs {
    pub(crate) fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        let rules = self.faults.iter().map(|text| {
            let rule = self.rule(text);
            rule.map_err(|error| bad_request(format!("--fault {text}: {error}")))
        });
        rules.collect()
    }

    fn rule(&self, text: &str) -> Result<Rule, String> {
        let mut fields = text.split(',').map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            (name.trim(), value.trim())
        });
        let (name, value) = fields.next().unwrap_or_default();
        let again = self.retransmit;
        let mut rule = match name {
            "drop" => Rule::always(Effect::Drop { again }).with_probability(chance(value)?),
            "delay" => Rule::always(Effect::Delay(duration(value)?)),
            "duplicate" => Rule::always(Effect::Duplicate).with_probability(chance(value)?),
            "lose" => Rule::always(Effect::Lose).with_probability(chance(value)?),
            _ => {
                return Err(format!(
                    "'{name}' is not a fault: expected drop, delay, duplicate or lose"
                ));
            }
        };
        for (name, value) in fields {
            let number = || {
                let number = value.parse::<u32>();
                number.map_err(|_| format!("'{value}' is not a number"))
            };
            match name {
                "p" => rule.probability = chance(value)?,
                "from" => rule.from = Some(Rank::new(number()?)),
                "to" => rule.to = Some(Rank::new(number()?)),
                "round" => rule.round = Some(number()?),
                _ => return Err(format!("'{name}' is not p, from, to or round")),
            }
        }
        Ok(rule)
    }
}

/// A probability; 1 when none is given.
fn chance(text: &str) -> Result<f64, String> {
    if text.is_empty() {
        return Ok(1.0);
    }
    let number = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    number.ok_or_else(|| format!("'{text}' is not a probability from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_complaints_name_them() {
        let args = |text: &str| FaultArgs {
            faults: vec![text.to_owned()],
            retransmit: Duration::from_millis(200),
            deadline: Duration::from_secs(1),
        };
        let rules = args("delay=1ms,p=0.1,from=3").rules().unwrap();
        assert_eq!(rules[0].effect, Effect::Delay(Duration::from_millis(1)));
        assert_eq!(
            (rules[0].probability, rules[0].from),
            (0.1, Some(Rank::new(3)))
        );
        let complaint = |text| args(text).rules().unwrap_err().to_string();
        assert!(complaint("explode").contains("'explode' is not a fault"));
        assert!(complaint("drop=2").contains("'2' is not a probability"));
        assert!(complaint("lose,where=3").contains("'where' is not p, from, to or round"));
    }

    #[test]
    fn noise_and_stragglers_are_read() {
        assert_eq!(spread("lognormal:0.2"), Ok(Spread::LogNormal(0.2)));
        assert!(spread("loud").is_err() && spread("uniform:x").is_err());
        assert_eq!(stragglers("0.01x3").map(|s| s.factor), Ok(3.0));
        assert!(stragglers("2x3").is_err() && stragglers("0.1").is_err());
    }
}
