//! Have all ranks of a job been asked for the same, and can all of them do it?

use serde::{Deserialize, Serialize};

use super::Job;
use crate::output::{self, AlreadyReported, complain};

/// What has to be the same on all ranks, as name and value.
pub(crate) type Settings = Vec<(String, String)>;

/// The setting that comes first: where it differs nothing else can be compared.
const COMMAND: &str = "command";

/// What a rank says: what it was asked for, or why it cannot.
type Claim = Result<Settings, Refusal>;

/// Why a rank cannot go on, and the exit code for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    fn of(error: &anyhow::Error) -> Self {
        Self {
            code: output::code(error),
            text: format!("{error:#}"),
        }
    }

    /// The ranks were asked for different things.
    const fn differ(text: String) -> Self {
        Self { code: 2, text }
    }
}

/// The command that a rank runs.
pub(crate) fn command(name: &str) -> Settings {
    vec![(COMMAND.to_owned(), name.to_owned())]
}

/// The command that a rank runs, and its build: two builds of the same version may differ.
pub(crate) fn identity(command: &str) -> Settings {
    let build = option_env!("SPARDL_BUILD").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    let more = [("version", version), ("build", build)];
    let more = more.map(|(name, value)| (name.to_owned(), value.to_owned()));
    self::command(command).into_iter().chain(more).collect()
}

/// Compares what all ranks were asked for. Rank 0 says which rank is the odd one out, and all ranks stop with the same exit code.
///
/// # Errors
/// When any rank's request differs or cannot be met; everything was said then.
pub(crate) fn agree(job: &mut Job, mine: anyhow::Result<Settings>) -> anyhow::Result<()> {
    compare(job, &mine.map_err(|error| Refusal::of(&error)))
}

/// Goes on when all ranks could do their part; otherwise all of them stop with the same exit code, and the cause is said once.
///
/// # Errors
/// When some rank could not; everything was said then.
pub(crate) fn all_ready<T>(job: Option<&mut Job>, mine: anyhow::Result<T>) -> anyhow::Result<T> {
    if let Some(job) = job {
        let claim = mine.as_ref().map(|_| Settings::new());
        compare(job, &claim.map_err(Refusal::of))?;
    }
    mine
}

fn compare(job: &mut Job, claim: &Claim) -> anyhow::Result<()> {
    let all = job.gather(&serde_json::to_vec(claim)?)?;
    let claims = all
        .iter()
        .map(|claim| serde_json::from_slice(claim))
        .collect::<Result<Vec<Claim>, _>>();
    let complaint = match claims {
        Ok(claims) => odd_one_out(&claims),
        Err(_) => {
            let text = "the ranks run different versions of spardl";
            Some(Refusal::differ(text.to_owned()))
        }
    };
    let Some(Refusal { code, text }) = complaint else {
        return Ok(());
    };
    if job.prints() {
        complain(&anyhow::Error::msg(text), "");
    }
    // Nobody leaves before rank 0 has spoken: the launcher ends a job when its first rank ends badly.
    job.barrier()?;
    Err(AlreadyReported(code).into())
}

/// What is wrong with the claims of the ranks, if anything is.
fn odd_one_out(claims: &[Claim]) -> Option<Refusal> {
    let same = |claim: &Claim| claims.iter().filter(|c| *c == claim).count();
    // The most frequent one; of equally frequent ones, that of the lowest rank.
    let usual = claims.iter().rev().max_by_key(|claim| same(claim))?;
    let odd: Vec<usize> = (0..claims.len()).filter(|&r| claims[r] != *usual).collect();
    let Some(&first) = odd.first() else {
        return usual.as_ref().err().cloned();
    };
    let Refusal { code, text } = match (&claims[first], usual) {
        (Err(refusal), _) => refusal.clone(),
        (Ok(_), Err(Refusal { code, text })) => Refusal {
            code: *code,
            text: format!("can run, but the others cannot: {text}"),
        },
        (Ok(odd), Ok(usual)) => {
            let words = differences(odd, usual).join(", ");
            Refusal::differ(format!("runs with {words}"))
        }
    };
    let more = match odd.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more differ"),
    };
    let text = format!("rank {first}: {text}{more}");
    Some(Refusal { code, text })
}

/// The settings that differ, by name: an option may be set on one side only.
///
/// METHOD.OPTION is left out where only one side has the method: the list of methods says that already.
fn differences(odd: &Settings, usual: &Settings) -> Vec<String> {
    let find = |settings: &Settings, name: &str| {
        let found = settings.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone())
    };
    let has_method = |settings: &Settings, name: &str| match name.split_once('.') {
        Some((method, _)) => settings.iter().any(|(other, _)| {
            let other = other.split_once('.');
            other.is_some_and(|(other, _)| other == method)
        }),
        None => true,
    };
    let is_new = |name: &&String| odd.iter().all(|(other, _)| other != *name);
    let more = usual.iter().map(|(name, _)| name).filter(is_new);
    let names = odd.iter().map(|(name, _)| name).chain(more);
    let differs = names.filter_map(|name| {
        let values = [odd, usual].map(|side| find(side, name));
        if values[0] == values[1] || !(has_method(odd, name) && has_method(usual, name)) {
            return None;
        }
        let [odd, usual] = values.map(|value| value.unwrap_or_else(|| "unset".to_owned()));
        Some((name, format!("{name} {odd} (the others: {usual})")))
    });
    let differs: Vec<(&String, String)> = differs.collect();
    let most = match differs.first() {
        Some((name, _)) if *name == COMMAND => 1,
        _ => differs.len(),
    };
    let said = differs.into_iter().map(|(_, words)| words);
    said.take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(density: &str) -> Claim {
        Ok(settings(&[("version", "1"), ("density", density)]))
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    fn says(claims: &[Claim]) -> Option<(u8, String)> {
        odd_one_out(claims).map(|refusal| (refusal.code, refusal.text))
    }

    fn refused(code: u8, text: &str) -> Option<(u8, String)> {
        Some((code, text.to_owned()))
    }

    #[test]
    fn another_command_is_named() {
        let train = Ok(identity("train"));
        assert_eq!(says(&[train.clone(), train.clone()]), None);
        assert_eq!(
            says(&[train.clone(), Ok(identity("bench")), train]),
            refused(2, "rank 1: runs with command bench (the others: train)")
        );
        // The doctor does not say which build it is: that it differs would be a finding.
        let bench = Ok(identity("bench"));
        assert_eq!(
            says(&[bench.clone(), Ok(command("doctor")), bench]),
            refused(2, "rank 1: runs with command doctor (the others: bench)")
        );
    }

    #[test]
    fn the_rank_that_differs_is_named_with_what_differs() {
        assert_eq!(says(&[claim("0.01"), claim("0.01")]), None);
        assert_eq!(
            says(&[claim("0.01"), claim("0.02")]),
            refused(2, "rank 1: runs with density 0.02 (the others: 0.01)")
        );
        assert_eq!(
            says(&[claim("1"), claim("2"), claim("2")]),
            refused(2, "rank 0: runs with density 1 (the others: 2)")
        );
    }

    #[test]
    fn an_option_that_is_set_on_one_rank_only_is_unset_on_the_others() {
        let plain = Ok(settings(&[("dataset", "synthetic"), ("density", "0.01")]));
        let clipped = Ok(settings(&[
            ("clip", "1.0"),
            ("dataset", "synthetic"),
            ("density", "0.01"),
        ]));
        assert_eq!(
            says(&[plain.clone(), plain.clone(), clipped.clone()]),
            refused(2, "rank 2: runs with clip 1.0 (the others: unset)")
        );
        assert_eq!(
            says(&[plain, clipped.clone(), clipped]),
            refused(2, "rank 0: runs with clip unset (the others: 1.0)")
        );
    }

    #[test]
    fn options_are_named_where_both_sides_have_the_method() {
        let bench = |methods: &str, options: &[(&str, &str)]| -> Claim {
            Ok(settings(&[&[("methods", methods)], options].concat()))
        };
        let plain = bench("spardl", &[("spardl.teams", "1"), ("spardl.values", "f32")]);
        let teams = bench("spardl", &[("spardl.teams", "2"), ("spardl.values", "f32")]);
        assert_eq!(
            says(&[plain.clone(), teams]),
            refused(2, "rank 1: runs with spardl.teams 2 (the others: 1)")
        );
        let raw = bench(
            "spardl",
            &[
                ("spardl.teams", "1"),
                ("spardl.values", "f32"),
                ("spardl.indices", "raw"),
            ],
        );
        assert_eq!(
            says(&[plain.clone(), raw]),
            refused(
                2,
                "rank 1: runs with spardl.indices raw (the others: unset)"
            )
        );
        let other = bench("gtopk", &[("gtopk.values", "f32")]);
        assert_eq!(
            says(&[plain, other]),
            refused(2, "rank 1: runs with methods gtopk (the others: spardl)")
        );
    }

    #[test]
    fn all_ranks_end_with_the_exit_code_of_the_one_that_cannot() {
        let refusal = |code, text: &str| -> Claim {
            let text = text.to_owned();
            Err(Refusal { code, text })
        };
        let unknown = refusal(2, "no such method");
        assert_eq!(
            says(&[unknown.clone(), unknown.clone()]),
            refused(2, "no such method")
        );
        assert_eq!(
            says(&[claim("1"), unknown, claim("1")]),
            refused(2, "rank 1: no such method")
        );
        let full = refusal(1, "the disk is full");
        assert_eq!(
            says(&[claim("1"), full.clone(), claim("1")]),
            refused(1, "rank 1: the disk is full")
        );
        assert_eq!(
            says(&[full.clone(), full, claim("1")]),
            refused(
                1,
                "rank 2: can run, but the others cannot: the disk is full"
            )
        );
    }
}
