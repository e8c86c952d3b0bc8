//! Key figures, tables, maps and line charts as one HTML page that needs nothing else: no network, no scripts (a little one
//! adds values under the pointer), light and dark. Maps and charts also as SVG files.
//!
//! The charts are SVG of our own making: plotting crates write colours and sizes into the picture, where a style sheet cannot
//! follow the reader's colour scheme.

#![forbid(unsafe_code)]

mod curve;
mod map;
mod picture;
mod scale;
mod svg;

use std::fmt::{self, Display, Write as _};

/// A page of key figures, tables and charts. [`Display`] gives the HTML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Below the heading, as code: the command line, for example.
    pub subtitle: String,
    /// Shown first.
    pub tiles: Vec<Tile>,
    /// Shown after the key figures.
    pub tables: Vec<Table>,
    /// Shown after the tables.
    pub maps: Vec<Map>,
    /// Shown after the maps.
    pub charts: Vec<Chart>,
    /// Shown last: what must be known of all this, but is no result.
    pub appendix: Vec<Table>,
    /// At the end of the page, a line each: with what, where and when the numbers were made.
    pub stamp: Vec<String>,
}

/// A key figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tile {
    /// What it is.
    pub name: String,
    /// The figure, with its unit.
    pub value: String,
    /// What it is to be compared with.
    pub note: String,
}

/// A map: which of several choices holds where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    /// The heading.
    pub title: String,
    /// What the columns stand for, with the unit.
    pub x_label: String,
    /// What the rows stand for, with the unit.
    pub y_label: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of the rows, from the top.
    pub rows: Vec<String>,
    /// What the colours mean.
    pub choices: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Vec<Cell>>,
    /// A sentence under the map: what it shows.
    pub conclusion: String,
}

/// A cell of a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Which choice holds here, by its number.
    pub choice: usize,
    /// Shown below the choice's name.
    pub text: String,
    /// Shown under the pointer.
    pub detail: String,
}

/// A table: the first column names the row, the others are aligned for numbers, or for text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The heading; none when empty.
    pub title: String,
    /// Are the cells text of any length?
    pub is_text: bool,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without the columns in which every row has a dash: nothing is known there.
    #[must_use]
    pub fn without_dashes(mut self) -> Self {
        let is_known = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column));
            self.rows.is_empty() || cells.any(|cell| cell != "-")
        };
        let known: Vec<bool> = (0..self.columns.len()).map(is_known).collect();
        for row in self.rows.iter_mut().chain([&mut self.columns]) {
            let mut known = known.iter();
            row.retain(|_| known.next() != Some(&false));
        }
        self
    }
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
    /// A sentence under the chart: what it shows.
    pub conclusion: String,
}

/// One curve of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in order. The curve is broken where one is not finite, or not positive on a logarithmic axis.
    pub points: Vec<(f64, f64)>,
    /// What lies around the curve, shaded: x, the lowest and the highest y. Often empty.
    pub band: Vec<(f64, f64, f64)>,
    /// Is it a line for the eye? Then it is grey and dashed, behind the others and without marks.
    pub is_guide: bool,
}

impl Series {
    /// A curve through `points`.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        Self {
            name: name.into(),
            points: points.into(),
            ..Self::default()
        }
    }

    /// A line for the eye through `points`.
    #[must_use]
    pub fn guide(name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        Self {
            is_guide: true,
            ..Self::new(name, points)
        }
    }

    /// The mean of curves point by point, as far as the shortest goes, with a band from the lowest to the highest.
    #[must_use]
    pub fn mean(name: impl Into<String>, curves: &[Vec<(f64, f64)>]) -> Self {
        if let [curve] = curves {
            return Self::new(name, curve.clone());
        }
        let length = curves.iter().map(Vec::len).min().unwrap_or(0);
        let points = (0..length).map(|i| {
            let (mut x, mut y) = (0.0, 0.0);
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for curve in curves {
                x += curve[i].0 / curves.len() as f64;
                y += curve[i].1 / curves.len() as f64;
                low = low.min(curve[i].1);
                high = high.max(curve[i].1);
            }
            (x, y, low, high)
        });
        let (points, band) = points
            .map(|(x, y, low, high)| ((x, y), (x, low, high)))
            .unzip();
        Self {
            name: name.into(),
            points,
            band,
            is_guide: false,
        }
    }
}

impl Chart {
    /// The chart as an SVG file, with its title and its legend.
    pub fn to_svg(&self) -> String {
        picture::svg(self)
    }
}

impl Map {
    /// The map as an SVG file, with its title and its legend.
    pub fn to_svg(&self) -> String {
        picture::svg(self)
    }
}

impl Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = Escaped(&self.title);
        write!(
            f,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{COLOURS_STYLE}{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        )?;
        if !self.subtitle.is_empty() {
            writeln!(f, "<p><code>{}</code></p>", Escaped(&self.subtitle))?;
        }
        write_tiles(f, &self.tiles)?;
        for table in &self.tables {
            write_table(f, table)?;
        }
        if !self.maps.is_empty() {
            writeln!(f, "<div class=\"maps\">")?;
            for map in &self.maps {
                map::write_map(f, map)?;
            }
            writeln!(f, "</div>")?;
        }
        if !self.charts.is_empty() {
            writeln!(f, "<div class=\"charts\">")?;
            for chart in &self.charts {
                svg::write_chart(f, chart)?;
            }
            writeln!(f, "</div>")?;
        }
        for table in &self.appendix {
            write_table(f, table)?;
        }
        if !self.stamp.is_empty() {
            writeln!(f, "<footer>")?;
            for line in &self.stamp {
                writeln!(f, "<p>{}</p>", Escaped(line))?;
            }
            writeln!(f, "</footer>")?;
        }
        write!(
            f,
            "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

fn write_tiles(f: &mut fmt::Formatter<'_>, tiles: &[Tile]) -> fmt::Result {
    if tiles.is_empty() {
        return Ok(());
    }
    writeln!(f, "<ul class=\"tiles\">")?;
    for Tile { name, value, note } in tiles {
        let (name, value, note) = (Escaped(name), Escaped(value), Escaped(note));
        writeln!(
            f,
            "<li><span class=\"name\">{name}</span><strong>{value}</strong><span class=\"note\">{note}</span></li>"
        )?;
    }
    writeln!(f, "</ul>")
}

fn write_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    if !table.title.is_empty() {
        writeln!(f, "<h2>{}</h2>", Escaped(&table.title))?;
    }
    let class = if table.is_text { "text" } else { "numbers" };
    writeln!(
        f,
        "<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>"
    )?;
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

const COLOURS_STYLE: &str = include_str!("colours.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
