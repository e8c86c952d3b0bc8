//! What came out of tuning, with the reason.

use std::fmt;

use spardl_core::{ConfigError, Density, Gamma, Layout, Line, Model, Predicted};

use super::{Choice, Gammas, Kind, Measurement, Ranked, Space, rank};
use crate::Error;

/// A decision with everything that led to it.
#[derive(Clone, Debug)]
pub struct Tuning {
    measured: Measurement,
    ranked: Vec<Ranked>,
    elements: u64,
    density: Density,
    is_cached: bool,
    note: Option<String>,
    /// What would be faster, by less than a change must bring.
    passed_over: Option<String>,
}

impl Tuning {
    pub(super) fn new(
        space: &Space,
        (layouts, density): (&[Layout], Density),
        measured: Measurement,
        is_cached: bool,
    ) -> Result<Self, Error> {
        let workers = measured.conditions().workers;
        let (known, unknown): (Vec<Choice>, Vec<Choice>) = space
            .choices(workers)?
            .into_iter()
            .partition(|choice| measured.gamma(choice).is_some());
        let at = (workers, layouts, density);
        let mut ranked = rank(known, at, measured.line(), &measured.gammas());
        // What was not measured takes at least its time on the network, which is longer than all of the best.
        let nothing = Gammas::alike(Gamma::default());
        let rest = rank(unknown, at, measured.line(), &nothing);
        ranked.extend(rest.into_iter().map(|ranked| Ranked {
            is_whole: false,
            ..ranked
        }));
        if ranked.is_empty() {
            return Err(ConfigError::BadOption {
                method: "auto".to_owned(),
                option: "value types".to_owned(),
                value: measured.conditions().values.join(","),
                expected: "with these no method is left: add f32 or bf16".to_owned(),
            }
            .into());
        }
        Ok(Self {
            elements: layouts.iter().map(|layout| u64::from(layout.len())).sum(),
            density,
            measured,
            ranked,
            is_cached,
            note: None,
            passed_over: None,
        })
    }

    pub(super) fn with_note(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }

    /// The same with `current` as the choice, unless that takes longer than the fastest by more than this part of its time.
    pub(super) fn staying_with(mut self, current: &Choice, margin: f64) -> Self {
        let (name, best) = (current.to_string(), &self.ranked[0]);
        let is_current = |ranked: &Ranked| ranked.choice.to_string() == name;
        let Some(at) = self.ranked.iter().position(is_current) else {
            return self;
        };
        let fastest = best.predicted.exchange() as f64;
        let now = self.ranked[at].predicted.exchange() as f64;
        if at == 0 || now > fastest * (1.0 + margin) {
            return self;
        }
        self.passed_over = Some(best.choice.to_string());
        self.ranked[..=at].rotate_right(1);
        self
    }

    /// What to use.
    pub fn best(&self) -> &Choice {
        &self.ranked[0].choice
    }

    /// What a step of it takes.
    pub fn predicted(&self) -> Predicted {
        self.ranked[0].predicted
    }

    /// All choices, the fastest first (but for one that is in use and slower by less than a change must bring); those last whose network time alone is longer than all of the best.
    pub fn ranked(&self) -> &[Ranked] {
        &self.ranked
    }

    /// What was measured.
    pub const fn measured(&self) -> &Measurement {
        &self.measured
    }

    /// Was it measured before, under the same conditions?
    pub const fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// What went wrong with the cache, if anything did.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What an exchange of the choice takes with this density, in nanoseconds.
    pub fn exchange_at(&self, layouts: &[Layout], density: Density) -> u64 {
        exchange_at(&self.measured, self.best(), layouts, density)
    }

    fn first(&self, kind: Kind) -> Option<&Ranked> {
        let mut of_kind = self.ranked.iter();
        of_kind.find(|ranked| ranked.choice.kind() == kind)
    }

    /// The choice and its reason in a sentence.
    pub fn in_words(&self) -> String {
        if let Some(other) = &self.passed_over {
            let best = &self.ranked[0];
            return format!(
                "{} is still used: {}, and {other} is not so much faster that a change would be worth it",
                best.choice,
                Time(best.predicted.exchange())
            );
        }
        let (best, other) = (&self.ranked[0], &self.ranked[0].choice);
        let time = |ranked: &Ranked| {
            let least = if ranked.is_whole { "" } else { "at least " };
            format!("{least}{}", Time(ranked.predicted.exchange()))
        };
        let times = |slow: &Ranked| {
            let fast = best.predicted.exchange().max(1);
            slow.predicted.exchange() as f64 / fast as f64
        };
        match other.kind() {
            Kind::Dense => {
                let sparse = self.first(Kind::Sparse).map_or_else(String::new, |sparse| {
                    format!(
                        ": the best sparse one, {}, takes {}",
                        sparse.choice,
                        time(sparse)
                    )
                });
                format!(
                    "{} is used: nothing sparse is faster than its {} here{sparse}",
                    best.choice,
                    time(best)
                )
            }
            Kind::Sparse => {
                let dense = self.first(Kind::Dense).map_or_else(String::new, |dense| {
                    format!(
                        ", {:.1} times as fast as the best dense exchange ({}, {})",
                        times(dense),
                        dense.choice,
                        time(dense)
                    )
                });
                format!("{} is used: {}{dense}", best.choice, time(best))
            }
        }
    }

    /// Measurement, table of the first `rows` choices, and the pick in words.
    pub fn text(&self, rows: usize) -> String {
        format!(
            "# {}\n{}{}\n",
            self.conditions_in_words(),
            self.table(rows),
            self.in_words(),
        )
    }

    /// What it was chosen for, and what was measured.
    pub fn conditions_in_words(&self) -> String {
        let Line { latency, bandwidth } = self.measured.line();
        let again = match self.is_cached {
            true => " (measured before, under the same conditions)",
            false => "",
        };
        format!(
            "{} workers, {} elements, density {}: {} a message, {}{again}",
            self.measured.conditions().workers,
            self.elements,
            self.density,
            Time(latency),
            Rate(bandwidth),
        )
    }

    /// The table of the first `rows` choices, with the best dense one.
    pub fn table(&self, rows: usize) -> String {
        aligned(&self.cells(rows))
    }

    /// The cells of that table, its headings first.
    pub fn cells(&self, rows: usize) -> Vec<[String; 6]> {
        let mut lines = vec![
            [
                "choice", "exchange", "latency", "transfer", "select", "merge",
            ]
            .map(str::to_owned),
        ];
        let first = self.ranked.iter().take(rows);
        let dense = self.ranked.iter().skip(rows);
        let dense = dense.filter(|ranked| ranked.choice.kind() == Kind::Dense);
        let has_dense = first.clone().any(|r| r.choice.kind() == Kind::Dense);
        for ranked in first.chain(dense.take(usize::from(!has_dense))) {
            let predicted = &ranked.predicted;
            let local = |nanos: u64| match ranked.is_whole {
                true => Time(nanos).to_string(),
                false => "-".to_owned(),
            };
            lines.push([
                ranked.choice.to_string(),
                match ranked.is_whole {
                    true => Time(predicted.exchange()).to_string(),
                    false => format!("> {}", Time(predicted.exchange())),
                },
                Time(predicted.latency).to_string(),
                Time(predicted.transfer).to_string(),
                local(predicted.select),
                local(predicted.merge),
            ]);
        }
        lines
    }
}

/// As [`Tuning::text`], with a few rows.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(8))
    }
}

/// What an exchange of a choice takes by a measurement, in nanoseconds.
pub(crate) fn exchange_at(
    measured: &Measurement,
    choice: &Choice,
    layouts: &[Layout],
    density: Density,
) -> u64 {
    let estimates = choice.estimates(measured.conditions().workers, layouts, density);
    let model = Model::of_exchange(measured.line(), measured.gammas().of(choice));
    model.predict_from(&estimates).exchange()
}

/// Cells in columns: the first to the left, numbers to the right.
fn aligned(lines: &[[String; 6]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            text += &match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

/// Nanoseconds for people.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
        let unit = units.iter().find(|(size, _)| nanos >= *size);
        let &(size, name) = unit.unwrap_or(&(1.0, "ns"));
        let number = nanos / size;
        let digits = usize::from(number < 100.0) + usize::from(number < 10.0);
        write!(f, "{number:.digits$} {name}")
    }
}

/// Bits per second for people.
struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Threads hand over the memory itself.
            rate if rate >= 1_000_000_000_000 => f.write_str("no limit to the bytes"),
            rate if rate >= 1_000_000_000 => write!(f, "{:.1} Gbit/s", rate as f64 / 1e9),
            rate => write!(f, "{:.1} Mbit/s", rate as f64 / 1e6),
        }
    }
}
