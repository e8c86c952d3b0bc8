//! What a method is worth against dense, as tables.

use spardl_chart::Table;

use super::super::link::Link;
use super::against::{Against, GBITS, PARTS, Paired};

/// Methods beside dense, as tables: accuracies, then times on every network; nothing with a method alone, or without a dense one.
pub(super) fn tables(methods: &[(&str, &Against)], link: Link) -> Vec<Table> {
    let Some((_, first)) = methods.first().filter(|_| methods.len() > 1) else {
        return Vec::new();
    };
    let points = format!("points against {}", first.baseline);
    let mut accuracies = vec!["method".to_owned(), points, "at equal bytes".to_owned()];
    accuracies.extend(GBITS.map(|gbits| format!("in equal time at {gbits}\u{a0}Gbit/s")));
    let mut times = vec![
        "method".to_owned(),
        "step ms".to_owned(),
        format!("times as fast as {}", first.fast_dense),
    ];
    times.extend(PARTS.map(|part| format!("s to {:.0} %", 100.0 * part)));
    let table = |title, columns: &[String], cells: &dyn Fn(&Against) -> Vec<String>| Table {
        title,
        columns: columns.to_vec(),
        rows: methods
            .iter()
            .map(|(name, against)| {
                let name = [(*name).to_owned()].into_iter();
                name.chain(cells(against)).collect()
            })
            .collect(),
        is_text: false,
    };
    let title = "Test accuracy in %, beside dense and over the same seeds".to_owned();
    let mut all = vec![table(title, &accuracies, &Against::accuracies)];
    for (i, gbits) in GBITS.into_iter().enumerate() {
        let title = format!(
            "Predicted for {gbits} Gbit/s, {:.0} % of the computing to hide messages behind; seconds to a part of {}'s accuracy",
            100.0 * link.overlap,
            first.baseline
        );
        all.push(table(title, &times, &|against| against.times(i)));
    }
    all
}

impl Against {
    fn accuracies(&self) -> Vec<String> {
        let percent = |value: Option<f64>| or_dash(value.map(|x| format!("{:.2}", 100.0 * x)));
        let mut cells = vec![
            or_dash(self.at_equal_steps.map(|paired| paired.to_string())),
            percent(self.accuracy_at_equal_bytes),
        ];
        cells.extend(self.accuracy_at_equal_time.map(percent));
        cells
    }

    /// On the network of that number.
    fn times(&self, network: usize) -> Vec<String> {
        let mut cells = vec![
            format!("{:.2}", self.step_ms[network]),
            format!("{:.2}", self.times_as_fast[network]),
        ];
        let seconds = |value: Option<f64>| or_dash(value.map(|x| format!("{x:.1}")));
        cells.extend(self.seconds_to[network].map(seconds));
        cells
    }
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

/// In points: hundredths of all samples.
impl std::fmt::Display for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.2}", 100.0 * self.mean)?;
        match self.standard_error {
            Some(error) => write!(f, " ± {:.2}", 100.0 * error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Sheet;

    #[test]
    fn every_table_is_one_block_on_a_narrow_terminal() {
        let percent = Some(0.9876);
        let against = Against {
            baseline: "dense-bf16".to_owned(),
            at_equal_steps: Some(Paired {
                mean: -0.1234,
                standard_error: Some(0.0123),
                pairs: 3,
            }),
            accuracy_at_equal_bytes: percent,
            accuracy_at_equal_time: [percent; GBITS.len()],
            seconds_to: [[Some(12345.6); PARTS.len()]; GBITS.len()],
            fast_dense: "dense-bf16".to_owned(),
            step_ms: [1234.56; GBITS.len()],
            times_as_fast: [12.34; GBITS.len()],
        };
        let methods = [("dense-bf16", &against), ("hard-threshold-bf16", &against)];
        let all = tables(&methods, Link::default());
        assert_eq!(all.len(), 1 + GBITS.len());
        for Table { columns, rows, .. } in all {
            let text = Sheet::new(columns, rows).text(Some(80));
            assert!(!text.contains("\n\n"), "{text}");
        }
        assert_eq!(
            tables(&methods[..1], Link::default()),
            [],
            "nothing beside it"
        );
    }
}
