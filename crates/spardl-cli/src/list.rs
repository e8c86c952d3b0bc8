//! `spardl list`: the registry with rounds, bytes and laws.

use serde::Serialize;
use spardl_algos::{Options, Sag, registry};
use spardl_core::{Density, Support};
use spardl_sim::gradient::layers;

use crate::output::{bad_request, print};
use crate::screen::{Sheet, comments, grouped, stdout_width};
use crate::simulate::published::{Case, published};

/// What to list the methods for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Workers that rounds and bytes are given for.
    #[arg(long, default_value_t = 8, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Elements of the gradient that bytes are given for.
    #[arg(long, default_value_t = 14_728_266, value_name = "N")]
    elements: u32,
    /// Target density k/n that bytes are given for.
    #[arg(long, default_value_t = 0.01)]
    density: f64,
    /// How to print.
    #[arg(long, default_value = "text")]
    format: Format,
}

/// Lines of words are no longer than this, wherever they go.
const WIDE: usize = 110;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Serialize)]
struct Row {
    method: &'static str,
    summary: &'static str,
    rounds_min: u32,
    rounds_max: u32,
    bytes_max: u64,
    /// On the longest chain of messages of a usual step.
    bytes_typical: u64,
    /// On the longest chain, by the formula of the paper.
    published_bytes_min: Option<u64>,
    published_bytes_max: Option<u64>,
    conserves: bool,
    support: &'static str,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let rows = rows(args)?;
    match args.format {
        Format::Json => rows
            .iter()
            .try_for_each(|row| print(&(serde_json::to_string(row)? + "\n"))),
        Format::Text => print(&text(args, &rows, stdout_width())),
    }
}

fn rows(args: &Args) -> anyhow::Result<Vec<Row>> {
    let density = Density::new(args.density).map_err(bad_request)?;
    let k = density.entries(args.elements as usize);
    let layout = layers(args.elements)?;
    let mut rows = Vec::new();
    for entry in registry::METHODS {
        let algorithm = entry.build(&Options::default())?;
        let cost = algorithm.cost(args.workers, &layout, k, 0);
        let laws = algorithm.laws();
        let case = Case {
            workers: args.workers,
            elements: args.elements.into(),
            k: k as u64,
            teams: 1,
            sag: Sag::Auto,
        };
        let words = published(entry.name, case).map(|published| published.words);
        let bytes = |words: f64| (4.0 * words).round() as u64;
        rows.push(Row {
            method: entry.name,
            summary: entry.summary,
            rounds_min: *cost.rounds.start(),
            rounds_max: *cost.rounds.end(),
            bytes_max: cost.bytes_max,
            bytes_typical: algorithm.estimate(args.workers, &layout, k, 0).bytes,
            published_bytes_min: words.map(|(least, _)| bytes(least)),
            published_bytes_max: words.map(|(_, most)| bytes(most)),
            conserves: laws.conserves,
            support: support_name(laws.support),
        });
    }
    Ok(rows)
}

/// The most entries of an update, as a formula.
pub(crate) const fn support_name(support: Support) -> &'static str {
    match support {
        Support::K => "k",
        Support::KPerWorker => "k P",
        Support::FourK => "4 k",
        Support::FourKPerWorker => "4 k P",
        Support::Any => "n",
    }
}

fn text(args: &Args, rows: &[Row], width: Option<usize>) -> String {
    let names = [
        "method",
        "rounds",
        "typical kB",
        "kB at most",
        "published kB",
        "entries",
        "conserves",
    ];
    let sheet = Sheet::new(names, rows.iter().map(cells));
    let sheet = sheet.with_words("what it does", rows.iter().map(|row| row.summary));
    let mut text = String::new();
    for line in [
        format!(
            "{} workers, {} elements, density {}; per worker and step, with f32 values",
            args.workers,
            grouped(args.elements.into()),
            args.density
        ),
        "typical: on the longest chain of messages of a usual step; at most: sent by the busiest worker in any step; published: \
         on the longest chain by the paper's formula, without headers and coding; entries: the most an update has"
            .to_owned(),
        String::new(),
        "every method also as NAME-bf16, those with a residual as NAME-q8, -q4, -q2, -q1; details: spardl explain NAME"
            .to_owned(),
    ] {
        if line.is_empty() {
            text += &sheet.text(width);
            continue;
        }
        text += &comments([line.as_str()], Some(width.unwrap_or(WIDE).min(WIDE)));
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let rounds = match (row.rounds_min, row.rounds_max) {
        (least, most) if least == most => most.to_string(),
        (least, most) => format!("{least}-{most}"),
    };
    let published = match (row.published_bytes_min, row.published_bytes_max) {
        (Some(least), Some(most)) if least == most => kilobytes(most),
        (Some(least), Some(most)) => format!("{}-{}", kilobytes(least), kilobytes(most)),
        _ => "-".to_owned(),
    };
    vec![
        row.method.to_owned(),
        rounds,
        kilobytes(row.bytes_typical),
        kilobytes(row.bytes_max),
        published,
        row.support.to_owned(),
        if row.conserves { "yes" } else { "no" }.to_owned(),
    ]
}

/// With a decimal where whole ones would say little.
fn kilobytes(bytes: u64) -> String {
    match bytes {
        0..99_950 => format!("{:.1}", bytes as f64 / 1e3),
        _ => grouped((bytes + 500) / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_have_as_many_digits_as_matter() {
        let shown = [0, 4_812, 99_949, 99_950, 103_097_862].map(kilobytes);
        assert_eq!(shown, ["0.0", "4.8", "99.9", "100", "103,098"]);
    }

    #[test]
    fn the_list_fits_terminals() {
        let args = Args {
            workers: 8,
            elements: 14_728_266,
            density: 0.01,
            format: Format::Text,
        };
        let rows = rows(&args).expect("every method has a cost");
        for width in [80, 100, 120, 160] {
            let text = text(&args, &rows, Some(width));
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{width}:\n{text}");
            assert!(rows.iter().all(|row| text.contains(row.method)), "{text}");
        }
        // Ok-Topk's Eq. 3 with P = 8 and k = 147,282: 2k to 6k of 7/8 words.
        let ok_topk = rows.iter().find(|row| row.method == "ok-topk");
        let cells = cells(ok_topk.expect("in the registry"));
        assert_eq!(cells[4], "1,031-3,093", "{cells:?}");
    }
}
