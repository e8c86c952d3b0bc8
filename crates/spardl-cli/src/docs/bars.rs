//! The README's pictures: tables of docs/ as bars.
//!
//! One panel for each table, one bar for each method, with words at its end.

use std::fmt::Write;

use anyhow::Context;

/// Of docs/network.md: the heading of a section.
const SPEEDS: [&str; 2] = ["1 Gbit/s", "100 Mbit/s"];
/// Rows of its tables that are shown, with the name a newcomer knows.
const TIMED: [(&str, &str); 5] = [
    ("mpi-allreduce", "MPI_Allreduce, f32"),
    ("dense-bf16", "dense, bf16"),
    ("ok-topk", "Ok-Topk, 1 %"),
    ("exdyna", "ExDyna, 1 %"),
    ("spardl-bf16", "SparDL, 1 %, bf16"),
];
/// Of docs/experiments.md: the heading of a section, and what it is called here.
const TRAINED: [(&str, &str); 2] = [
    (
        "CIFAR-10, ResNet-20",
        "ResNet-20, CIFAR-10: accuracy after 8 epochs",
    ),
    (
        "IMDB, sentiment (an LSTM)",
        "LSTM, IMDB: accuracy after 3 epochs",
    ),
];
/// Rows of its tables.
const COMPARED: [(&str, &str); 6] = [
    ("dense", "dense, f32"),
    ("topk-a", "TopkA, 1 %"),
    ("gtopk", "gTopk, 1 %"),
    ("ok-topk", "Ok-Topk, 1 %"),
    ("exdyna", "ExDyna, 1 %"),
    ("spardl", "SparDL, 1 %"),
];
const WIDTH: f64 = 820.0;
const LEFT: f64 = 150.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
const TOP: f64 = 58.0;

/// What is drawn.
struct Picture<'a> {
    /// For those who cannot see it.
    title: &'a str,
    heading: &'a str,
    /// The names of the bars, the same in every panel.
    names: Vec<&'static str>,
    panels: Vec<Panel>,
    /// Room for the words at the end of a bar.
    words: f64,
}

struct Panel {
    heading: String,
    bars: Vec<Bar>,
}

/// A bar: how long it is, in units of its panel, and the words at its end.
#[derive(Debug, PartialEq)]
struct Bar {
    length: f64,
    words: String,
    is_sparse: bool,
}

/// How long an exchange takes, from docs/network.md.
pub(super) fn step_times(page: &str) -> anyhow::Result<String> {
    let panel = |speed: &&str| {
        let times = times(page, speed)?;
        let bar = |(&(row, _), &ms): (&(&str, &str), &f64)| Bar {
            length: ms,
            words: match times[0] / ms {
                faster if faster >= 1.5 => format!("{}, {faster:.0}x as fast", time(ms)),
                _ => time(ms),
            },
            is_sparse: !row.starts_with("mpi") && !row.starts_with("dense"),
        };
        Ok(Panel {
            heading: format!("links of {speed}"),
            bars: TIMED.iter().zip(&times).map(bar).collect(),
        })
    };
    let picture = Picture {
        title: "Time of one exchange of 14.7 million gradients between 4 workers",
        heading: "One exchange of VGG-16's gradient (14.7 million elements), 4 workers, selection included",
        names: TIMED.map(|(_, name)| name).to_vec(),
        panels: SPEEDS.iter().map(panel).collect::<anyhow::Result<_>>()?,
        words: 110.0,
    };
    picture.svg()
}

/// What training sends and how good it gets, from docs/experiments.md.
pub(super) fn accuracies(page: &str) -> anyhow::Result<String> {
    let panel = |&(section, heading): &(&str, &str)| {
        let trained = trained(page, section)?;
        let dense = trained[0].bytes;
        let bar = |(&(row, _), run): (&(&str, &str), &Trained)| Bar {
            length: run.bytes,
            words: match dense / run.bytes {
                less if less >= 1.5 => {
                    format!("{} %, {} (1/{less:.0})", run.accuracy, run.sent)
                }
                _ => format!("{} %, {}", run.accuracy, run.sent),
            },
            is_sparse: row != "dense",
        };
        Ok(Panel {
            heading: heading.to_owned(),
            bars: COMPARED.iter().zip(&trained).map(bar).collect(),
        })
    };
    let picture = Picture {
        title: "Test accuracy and bytes per worker and step of a short training with 4 workers",
        heading: "Test accuracy, and what a worker sends per step: short runs, 4 workers, one seed",
        names: COMPARED.map(|(_, name)| name).to_vec(),
        panels: TRAINED.iter().map(panel).collect::<anyhow::Result<_>>()?,
        words: 175.0,
    };
    picture.svg()
}

impl Picture<'_> {
    fn svg(&self) -> anyhow::Result<String> {
        let panel = (WIDTH - LEFT) / self.panels.len() as f64;
        let height = TOP + STEP * self.names.len() as f64 + 12.0;
        let Self { title, heading, .. } = self;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"18\" fill=\"#1f2933\" font-weight=\"600\">{heading}</text>\n"
        );
        for (i, name) in self.names.iter().enumerate() {
            let (x, y) = (LEFT - 10.0, TOP + STEP * i as f64 + BAR * 0.75);
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"#1f2933\">{name}</text>"
            )?;
        }
        for (i, Panel { heading, bars }) in self.panels.iter().enumerate() {
            let left = LEFT + panel * i as f64;
            writeln!(
                svg,
                "<text x=\"{left}\" y=\"44\" fill=\"#52606d\">{heading}</text>"
            )?;
            write_bars(&mut svg, bars, left, panel - self.words)?;
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }
}

/// The bars of a panel.
fn write_bars(svg: &mut String, bars: &[Bar], left: f64, longest: f64) -> anyhow::Result<()> {
    let most = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
    for (i, bar) in bars.iter().enumerate() {
        let (y, length) = (
            TOP + STEP * i as f64,
            (bar.length / most * longest).max(1.0),
        );
        let colour = if bar.is_sparse { "#0b7285" } else { "#9aa5b1" };
        writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1f2933\">{}</text>",
            left + length + 6.0,
            y + BAR * 0.75,
            bar.words
        )?;
    }
    Ok(())
}

fn time(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else {
        format!("{ms:.0} ms")
    }
}

/// The times of a section in ms: in its table the first column is the method, the second the time, which begins with the median.
fn times(page: &str, section: &str) -> anyhow::Result<Vec<f64>> {
    let text = find(page, section)?;
    let time = |&(row, _): &(&str, &str)| {
        let cells = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| {row} | ")));
        let ms = cells.and_then(|cells| cells.split_whitespace().next()?.parse().ok());
        ms.with_context(|| format!("section '{section}' has no time of {row}"))
    };
    TIMED.iter().map(time).collect()
}

/// What training with a method came to.
#[derive(Clone, Debug, PartialEq)]
struct Trained {
    accuracy: String,
    sent: String,
    bytes: f64,
}

/// The results of a section: of the table whose columns begin with `method` and `test accuracy %`, with `sent/step` among them.
fn trained(page: &str, section: &str) -> anyhow::Result<Vec<Trained>> {
    let text = find(page, section)?;
    let start = text.find("\n| method | test accuracy % |");
    let table = start.map(|start| text[start + 1..].split("\n\n").next().unwrap_or_default());
    let table = table.with_context(|| format!("section '{section}' has no table of methods"))?;
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = table.lines().map(cells);
    let names = lines.next().unwrap_or_default();
    let sent = names.iter().position(|name| name.starts_with("sent/step"));
    let sent = sent.with_context(|| format!("section '{section}' does not say what was sent"))?;
    let rows: Vec<Vec<String>> = lines.collect();
    let trained = |&(method, _): &(&str, &str)| {
        let row = rows.iter().find(|row| row[0] == method)?;
        let (number, unit) = row.get(sent)?.split_once(' ')?;
        let unit = [("B", 1.0), ("kB", 1e3), ("MB", 1e6)]
            .iter()
            .find_map(|(name, size)| (*name == unit).then_some(size))?;
        Some(Trained {
            accuracy: row.get(1)?.clone(),
            sent: row[sent].clone(),
            bytes: number.parse::<f64>().ok()? * unit,
        })
    };
    COMPARED
        .iter()
        .map(|row| trained(row).with_context(|| format!("section '{section}' lacks {}", row.0)))
        .collect()
}

/// The text of a section.
fn find<'a>(page: &'a str, section: &str) -> anyhow::Result<&'a str> {
    let start = page.split_once(&format!("\n## {section}\n"));
    let (_, text) = start.with_context(|| format!("the page has no section '{section}'"))?;
    Ok(text.split("\n## ").next().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_section_they_belong_to() {
        let rows = |ms: f64| {
            TIMED
                .map(|(row, _)| format!("| {row} | {ms} ms (1 - 2) | 3.0x |\n"))
                .concat()
        };
        let page = format!(
            "# A\n\n## 1 Gbit/s\n\n{}\n## 100 Mbit/s\n\n{}",
            rows(7.5),
            rows(80.0)
        );
        assert_eq!(times(&page, "1 Gbit/s").expect("a table")[0], 7.5);
        assert_eq!(times(&page, "100 Mbit/s").expect("a table")[4], 80.0);
        assert!(step_times(&page).expect("a picture").ends_with("</svg>\n"));
        let complaint = times("## 1 Gbit/s\n", "10 Gbit/s")
            .expect_err("no such section")
            .to_string();
        assert!(complaint.contains("10 Gbit/s"), "{complaint}");
    }

    #[test]
    fn results_are_read_by_the_names_of_their_columns() {
        let rows = COMPARED.map(|(row, _)| format!("| {row} | 64.71 | 1.0 | 27.4 kB |\n"));
        let table = "| method | test accuracy % | test loss | sent/step then |\n| --- | ---: | ---: | ---: |\n";
        let section = |name: &str| {
            format!(
                "\n## {name}\n\n| batch | method |\n| --- | --- |\n| 4 | dense |\n\n{table}{}\nWords.\n",
                rows.concat()
            )
        };
        let page = TRAINED.map(|(name, _)| section(name)).concat();
        let found = trained(&page, TRAINED[1].0).expect("a table");
        let expected = Trained {
            accuracy: "64.71".to_owned(),
            sent: "27.4 kB".to_owned(),
            bytes: 27_400.0,
        };
        assert_eq!(found, vec![expected; COMPARED.len()]);
        assert!(accuracies(&page).expect("a picture").contains("64.71 %"));
        let without = page.replace("exdyna", "another");
        let complaint = trained(&without, TRAINED[0].0).expect_err("a row is missing");
        assert!(complaint.to_string().contains("lacks exdyna"));
    }
}
