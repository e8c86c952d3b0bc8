//! What an ablation found, as tables.

use std::collections::BTreeSet;

use serde::Serializer;
use serde::ser::SerializeMap;

use crate::screen::{self, comments};

/// Everything an ablation prints.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Sizes and definitions, one line each.
    setup: Vec<String>,
    sheets: Vec<Sheet>,
}

/// One table.
#[derive(Debug)]
pub(super) struct Sheet {
    caption: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One value of a table.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Text(String),
    Count(u64),
    /// A number and the decimal places shown.
    Number(f64, usize),
    /// Nothing to say here.
    Absent,
}

impl Report {
    /// A report that begins with these lines.
    pub(super) fn new<S: Into<String>>(setup: impl IntoIterator<Item = S>) -> Self {
        Self {
            setup: setup.into_iter().map(Into::into).collect(),
            sheets: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, sheet: Sheet) {
        self.sheets.push(sheet);
    }

    /// For a terminal of that width, or for a file.
    pub(super) fn text(&self, width: Option<usize>) -> String {
        let mut text = comments(self.setup.iter().map(String::as_str), width);
        for sheet in &self.sheets {
            text += &format!("\n{}\n{}", sheet.caption, sheet.text(width));
        }
        text
    }

    /// One object per row, with the names of the ablation and the table.
    pub(super) fn json(&self, ablation: &str) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        for sheet in &self.sheets {
            for row in &sheet.rows {
                let mut json = serde_json::Serializer::new(&mut bytes);
                let mut map = json.serialize_map(None)?;
                map.serialize_entry("ablation", ablation)?;
                map.serialize_entry("table", &sheet.caption)?;
                for (column, cell) in sheet.columns.iter().zip(row) {
                    match cell {
                        Cell::Text(text) => map.serialize_entry(column, text)?,
                        Cell::Count(count) => map.serialize_entry(column, count)?,
                        Cell::Number(number, _) => map.serialize_entry(column, number)?,
                        Cell::Absent => map.serialize_entry(column, &())?,
                    }
                }
                map.end()?;
                bytes.push(b'\n');
            }
        }
        Ok(String::from_utf8(bytes)?)
    }
}

impl Sheet {
    pub(super) fn new(caption: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "{}", self.caption);
        self.rows.push(row);
    }

    fn text(&self, width: Option<usize>) -> String {
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(Cell::text).collect());
        let is_words = |i: &usize| self.rows.iter().all(|row| row[*i].is_words());
        screen::Sheet::new(self.columns.iter().copied(), rows)
            .with_keys(self.keys())
            .with_columns_of_words((0..self.columns.len()).filter(is_words).collect())
            .text(width)
    }

    /// As many columns from the first on as it takes to tell the rows apart.
    fn keys(&self) -> Vec<usize> {
        let names = |row: &[Cell], columns| -> Vec<String> {
            let names = row[..columns].iter().map(Cell::text);
            names.collect()
        };
        let are_apart = |columns: &usize| {
            let all: BTreeSet<_> = self.rows.iter().map(|row| names(row, *columns)).collect();
            all.len() == self.rows.len()
        };
        let columns = (1..self.columns.len()).find(are_apart);
        (0..columns.unwrap_or(1)).collect()
    }
}

impl Cell {
    const fn is_words(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number, places) => format!("{number:.places$}"),
            Self::Absent => "-".to_owned(),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}
