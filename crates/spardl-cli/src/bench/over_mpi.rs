//! The run over MPI: each rank is a worker, rank 0 has the results.

use std::time::Instant;

use anyhow::Context;
use spardl_algos::Dense;
use spardl_core::{Algorithm, Layout};

use super::Case;
use super::gradients::Gradients;
use super::progress::Progress;
use super::workers::{Sample, Timed, all_together, summary, work};
use crate::job::Job;
use crate::output::{Said, bad_request, complain};

/// Times a method, or MPI_Allreduce when there is none; the samples of all ranks come together on all of them.
pub(super) fn measure(
    case: &Case<'_>,
    algorithm: Option<&dyn Algorithm>,
    gradients: &Gradients<'_>,
    job: &mut Job,
    progress: &Progress,
) -> anyhow::Result<Timed> {
    job.barrier()?;
    let samples = match algorithm {
        Some(algorithm) => work(case, algorithm, gradients, &mut job.transport())?,
        None => all_reduce(case, gradients, job)?,
    };
    for (i, sample) in samples.iter().enumerate() {
        progress.note(&format!("iteration {i}: {:.3} ms", sample.wall_ms));
    }
    let all = job.gather(&serde_json::to_vec(&samples)?)?;
    let workers = all
        .iter()
        .map(|samples| serde_json::from_slice(samples))
        .collect::<Result<Vec<Vec<Sample>>, _>>()
        .context("reading another rank's samples")?;
    Ok(summary(&workers))
}

/// The timed loop of MPI's own sum.
fn all_reduce(
    case: &Case<'_>,
    gradients: &Gradients<'_>,
    job: &mut Job,
) -> anyhow::Result<Vec<Sample>> {
    let (world, args) = (job.world(), case.args);
    let mut pulse = Dense::default().collective(world, &Layout::flat(0))?;
    let mut samples = Vec::new();
    let mut values = Vec::new();
    for step in 0..u64::from(args.warmup + args.iterations) {
        values.clear();
        values.extend_from_slice(gradients.of(world.rank().index(), step));
        pulse = all_together(&mut job.transport(), pulse, case, step)?;
        let since = Instant::now();
        job.all_reduce(&mut values)?;
        let wall_ms = since.elapsed().as_secs_f64() * 1e3;
        if step >= u64::from(args.warmup) {
            samples.push(Sample::opaque(wall_ms, &values));
        }
    }
    Ok(samples)
}

/// What has to be the same on all ranks, as name and value.
pub(super) type Settings = Vec<(String, String)>;

/// Compares what all ranks were asked for. Rank 0 says which rank is the odd one out, and all ranks stop.
///
/// # Errors
/// When any rank's request differs or cannot be met; everything was said then.
pub(super) fn agree(job: &mut Job, mine: anyhow::Result<Settings>) -> anyhow::Result<()> {
    let claim: Result<Settings, String> = mine.map_err(|error| format!("{error:#}"));
    let all = job.gather(&serde_json::to_vec(&claim)?)?;
    let claims = all
        .iter()
        .map(|claim| serde_json::from_slice(claim))
        .collect::<Result<Vec<Result<Settings, String>>, _>>();
    let complaint = match claims {
        Ok(claims) => odd_one_out(&claims),
        Err(_) => Some("the ranks run different versions of spardl".to_owned()),
    };
    let Some(complaint) = complaint else {
        return Ok(());
    };
    if job.prints() {
        complain(&bad_request(complaint), "");
    }
    // Nobody leaves before rank 0 has spoken: the launcher ends a job when its first rank ends badly.
    job.barrier()?;
    Err(Said(2).into())
}

/// What is wrong with the claims of the ranks, if anything is.
fn odd_one_out(claims: &[Result<Settings, String>]) -> Option<String> {
    let same = |claim: &Result<Settings, String>| claims.iter().filter(|c| *c == claim).count();
    // The most frequent one; of equally frequent ones, that of the lowest rank.
    let usual = claims.iter().rev().max_by_key(|claim| same(claim))?;
    let odd: Vec<usize> = (0..claims.len()).filter(|&r| claims[r] != *usual).collect();
    let Some(&first) = odd.first() else {
        return usual.as_ref().err().cloned();
    };
    let what = match (&claims[first], usual) {
        (Err(error), _) => error.clone(),
        (Ok(_), Err(error)) => format!("can run, but the others cannot: {error}"),
        (Ok(odd), Ok(usual)) => {
            let pairs = odd.iter().zip(usual).filter(|(a, b)| a != b);
            let words = pairs.map(|((name, a), (_, b))| format!("{name} {a} (the others: {b})"));
            let words: Vec<String> = words.collect();
            format!("runs with {}", words.join(", "))
        }
    };
    let more = match odd.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more differ"),
    };
    Some(format!("rank {first}: {what}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(density: &str) -> Result<Settings, String> {
        let pairs = [("version", "1"), ("density", density)];
        Ok(pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec())
    }

    #[test]
    fn the_rank_that_differs_is_named_with_what_differs() {
        assert_eq!(odd_one_out(&[claim("0.01"), claim("0.01")]), None);
        let two = odd_one_out(&[claim("0.01"), claim("0.02")]);
        assert_eq!(
            two.as_deref(),
            Some("rank 1: runs with density 0.02 (the others: 0.01)")
        );
        let first = odd_one_out(&[claim("1"), claim("2"), claim("2")]);
        assert_eq!(
            first.as_deref(),
            Some("rank 0: runs with density 1 (the others: 2)")
        );
        let refused = Err("no such method".to_owned());
        let all = odd_one_out(&[refused.clone(), refused.clone()]);
        assert_eq!(all.as_deref(), Some("no such method"));
        let one = odd_one_out(&[claim("1"), refused, claim("1")]);
        assert_eq!(one.as_deref(), Some("rank 1: no such method"));
    }
}
