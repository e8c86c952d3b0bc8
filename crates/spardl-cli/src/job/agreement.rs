//! Have all ranks of a job been asked for the same?

use std::{env, fs};

use super::Job;
use crate::output::{AlreadyReported, bad_request, complain};

/// What has to be the same on all ranks, as name and value.
pub(crate) type Settings = Vec<(String, String)>;

/// The setting that says which build a rank runs, and its value where the file cannot be read.
const BUILD: &str = "build";
const UNKNOWN: &str = "unknown";

/// A hash of the executable: two builds of the same version may differ.
fn build() -> String {
    let file = env::current_exe().and_then(fs::read);
    file.map_or_else(
        |_| UNKNOWN.to_owned(),
        |bytes| blake3::hash(&bytes).to_hex()[..16].to_owned(),
    )
}

/// A rank that does not know its build may well have the one of the others: then none is compared.
fn forgive_unknown_builds(claims: &mut [Result<Settings, String>]) {
    let builds = claims.iter_mut().flatten().flatten();
    let mut builds: Vec<_> = builds.filter(|(name, _)| name == BUILD).collect();
    if builds.iter().any(|(_, value)| value == UNKNOWN) {
        for (_, value) in &mut builds {
            UNKNOWN.clone_into(value);
        }
    }
}

/// Compares what all ranks were asked for. Rank 0 says which rank is the odd one out, and all ranks stop.
///
/// # Errors
/// When any rank's request differs or cannot be met; everything was said then.
pub(crate) fn agree(job: &mut Job, mine: anyhow::Result<Settings>) -> anyhow::Result<()> {
    let mut claim: Result<Settings, String> = mine.map_err(|error| format!("{error:#}"));
    if let Ok(settings) = &mut claim {
        settings.insert(0, (BUILD.to_owned(), build()));
    }
    let all = job.gather(&serde_json::to_vec(&claim)?)?;
    let claims = all
        .iter()
        .map(|claim| serde_json::from_slice(claim))
        .collect::<Result<Vec<Result<Settings, String>>, _>>();
    let complaint = match claims {
        Ok(mut claims) => {
            forgive_unknown_builds(&mut claims);
            odd_one_out(&claims)
        }
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
    Err(AlreadyReported(2).into())
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
    fn builds_are_compared_where_all_ranks_know_theirs() {
        let claim = |value: &str| Ok(vec![(BUILD.to_owned(), value.to_owned())]);
        let mut known = [claim("a"), claim("b")];
        forgive_unknown_builds(&mut known);
        assert_eq!(
            odd_one_out(&known).as_deref(),
            Some("rank 1: runs with build b (the others: a)")
        );
        let mut one_unknown = [claim("a"), claim(UNKNOWN), claim("b")];
        forgive_unknown_builds(&mut one_unknown);
        assert_eq!(odd_one_out(&one_unknown), None);
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
