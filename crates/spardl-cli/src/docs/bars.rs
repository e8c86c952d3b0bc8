//! The README's picture: the tables of docs/network.md as bars.
//!
//! One panel for each link speed, one bar for each method, as long as a step takes with four ranks.

use std::fmt::Write;

use anyhow::Context;

/// Panels: the heading of the page's section, and what it is called.
const PANELS: [&str; 2] = ["1 Gbit/s", "100 Mbit/s"];
/// Rows of the tables that are shown, with the name a newcomer knows.
const METHODS: [(&str, &str); 5] = [
    ("mpi-allreduce", "MPI_Allreduce, f32"),
    ("dense-bf16", "dense, bf16"),
    ("ok-topk", "Ok-Topk, 1 %"),
    ("exdyna", "ExDyna, 1 %"),
    ("spardl-bf16", "SparDL, 1 %, bf16"),
];
const WIDTH: f64 = 820.0;
const LEFT: f64 = 150.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
const TOP: f64 = 58.0;

/// A bar: the method's name and its milliseconds.
#[derive(Debug, PartialEq)]
struct Bar {
    name: &'static str,
    ms: f64,
}

/// The picture of the page's tables.
pub(super) fn picture(page: &str) -> anyhow::Result<String> {
    let panel = (WIDTH - LEFT) / PANELS.len() as f64;
    let height = TOP + STEP * METHODS.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>Time of one exchange of 14.7 million gradients between 4 workers</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" fill=\"#1f2933\" font-weight=\"600\">One exchange of VGG-16's gradient \
         (14.7 million elements), 4 workers, selection included</text>\n"
    );
    for (i, (_, name)) in METHODS.iter().enumerate() {
        let (x, y) = (LEFT - 10.0, TOP + STEP * i as f64 + BAR * 0.75);
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"#1f2933\">{name}</text>"
        )?;
    }
    for (i, speed) in PANELS.iter().enumerate() {
        let left = LEFT + panel * i as f64;
        let bars = bars(page, speed)?;
        writeln!(
            svg,
            "<text x=\"{left}\" y=\"44\" fill=\"#52606d\">links of {speed}</text>"
        )?;
        write_bars(&mut svg, &bars, left, panel - 110.0)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The bars of a panel; each has its time, and how many times faster it is than the first.
fn write_bars(svg: &mut String, bars: &[Bar], left: f64, longest: f64) -> anyhow::Result<()> {
    let most = bars.iter().map(|bar| bar.ms).fold(0.0, f64::max);
    for (i, bar) in bars.iter().enumerate() {
        let (y, length) = (TOP + STEP * i as f64, (bar.ms / most * longest).max(1.0));
        let ours = !bar.name.starts_with("MPI") && !bar.name.starts_with("dense");
        let colour = if ours { "#0b7285" } else { "#9aa5b1" };
        let times = bars[0].ms / bar.ms;
        let note = match times {
            times if times >= 1.5 => format!("{}, {times:.0}x faster", time(bar.ms)),
            _ => time(bar.ms),
        };
        writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1f2933\">{note}</text>",
            left + length + 6.0,
            y + BAR * 0.75
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

/// The bars of a section: in its table the first column is the method, the second the time, which begins with the median in ms.
fn bars(page: &str, section: &str) -> anyhow::Result<Vec<Bar>> {
    let start = page.split_once(&format!("\n## {section}\n"));
    let (_, text) = start.with_context(|| format!("the page has no section '{section}'"))?;
    let text = text.split("\n## ").next().unwrap_or(text);
    let bar = |&(row, name): &(&str, &'static str)| {
        let cells = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| {row} | ")));
        let ms = cells.and_then(|cells| cells.split_whitespace().next()?.parse().ok());
        let ms = ms.with_context(|| format!("section '{section}' has no time of {row}"))?;
        Ok(Bar { name, ms })
    };
    METHODS.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_read_from_the_section_they_belong_to() {
        let rows = |ms: f64| {
            METHODS
                .map(|(row, _)| format!("| {row} | {ms} ms (1 - 2) | 3.0x |\n"))
                .concat()
        };
        let page = format!(
            "# A\n\n## 1 Gbit/s\n\n{}\n## 100 Mbit/s\n\n{}",
            rows(7.5),
            rows(80.0)
        );
        assert_eq!(
            bars(&page, "1 Gbit/s").expect("a table")[0],
            Bar {
                name: METHODS[0].1,
                ms: 7.5
            }
        );
        assert_eq!(bars(&page, "100 Mbit/s").expect("a table")[4].ms, 80.0);
        assert!(picture(&page).expect("a picture").ends_with("</svg>\n"));
        let complaint = bars("## 1 Gbit/s\n", "10 Gbit/s")
            .expect_err("no such section")
            .to_string();
        assert!(complaint.contains("10 Gbit/s"), "{complaint}");
    }
}
