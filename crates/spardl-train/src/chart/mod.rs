//! Tables and line charts as one HTML page that needs nothing else: no network, no scripts (a little one adds values under the
//! pointer), light and dark.
//!
//! The charts are SVG of our own making: plotting crates write colours and sizes into the picture, where a style sheet cannot
//! follow the reader's colour scheme.

mod curve;
mod scale;
mod svg;

use std::fmt::{self, Display, Write as _};

/// A page of tables and charts. [`Display`] gives the HTML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Below the heading, as code: the command line, for example.
    pub subtitle: String,
    /// Shown first.
    pub tables: Vec<Table>,
    /// Shown after the tables.
    pub charts: Vec<Chart>,
}

/// A table: the first column names the row, the others are aligned for numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The heading; none when empty.
    pub title: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

/// A line chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// What is on the x axis, with its unit.
    pub x_label: String,
    /// What is on the y axis, with its unit.
    pub y_label: String,
    /// Is the x axis logarithmic?
    pub log_x: bool,
    /// Is the y axis logarithmic?
    pub log_y: bool,
    /// For noisy curves: draws the points faintly, and a moving mean over them.
    pub smooth: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in order. The curve is broken where one is not finite, or not positive on a logarithmic axis.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A curve through `points`.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        Self {
            name: name.into(),
            points: points.into(),
        }
    }
}

impl Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = Escaped(&self.title);
        write!(
            f,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        )?;
        if !self.subtitle.is_empty() {
            writeln!(f, "<p><code>{}</code></p>", Escaped(&self.subtitle))?;
        }
        for table in &self.tables {
            write_table(f, table)?;
        }
        for chart in &self.charts {
            svg::write_chart(f, chart)?;
        }
        write!(
            f,
            "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    if !table.title.is_empty() {
        writeln!(f, "<h2>{}</h2>", Escaped(&table.title))?;
    }
    writeln!(f, "<div class=\"wide\"><table>\n<thead><tr>")?;
    for column in &table.columns {
        write!(f, "<th scope=\"col\">{}</th>", Escaped(column))?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")?;
    for row in &table.rows {
        write!(f, "<tr>")?;
        for cell in row {
            write!(f, "<td>{}</td>", Escaped(cell))?;
        }
        writeln!(f, "</tr>")?;
    }
    writeln!(f, "</tbody>\n</table></div>")
}

/// Text that HTML takes for text.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\n' | '\t' => f.write_char(c),
            c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER),
            c => f.write_char(c),
        })
    }
}

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
