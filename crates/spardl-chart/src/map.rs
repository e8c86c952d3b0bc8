//! A map as a figure: legend, cells, conclusion.

use std::fmt::{self, Formatter, Write as _};

use super::picture::{COLOURS, Picture, colour};
use super::{Escaped, Map};

const WIDTH: f64 = 820.0;
const TOP: f64 = 8.0;
const CELL_HEIGHT: f64 = 40.0;
const BOTTOM: f64 = 48.0;
const RIGHT: f64 = 12.0;
/// About what a letter of a name takes.
const LETTER: f64 = 7.4;

impl Picture for Map {
    fn title(&self) -> &str {
        &self.title
    }

    fn conclusion(&self) -> &str {
        &self.conclusion
    }

    fn names(&self) -> Vec<(usize, &str)> {
        // What is nowhere on the map has no place in its legend.
        let is_there = |choice: &usize| {
            let mut cells = self.cells.iter().flatten();
            cells.any(|cell| cell.choice == *choice)
        };
        let choices = self.choices.iter().map(String::as_str).enumerate();
        choices.filter(|(choice, _)| is_there(choice)).collect()
    }

    fn mark(&self, i: usize) -> String {
        let colour = colour(i);
        format!(
            "<rect class=\"cell\" x=\"4\" y=\"-2\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{colour}\"/>"
        )
    }

    fn size(&self) -> (f64, f64) {
        (WIDTH, TOP + CELL_HEIGHT * self.rows.len() as f64 + BOTTOM)
    }

    fn write_inside(&self, f: &mut String) -> fmt::Result {
        let longest = self.rows.iter().map(|name| name.chars().count()).max();
        let left = 36.0 + LETTER * longest.unwrap_or(0) as f64;
        let width = (WIDTH - RIGHT - left) / self.columns.len().max(1) as f64;
        for (row, name) in self.rows.iter().enumerate() {
            let top = TOP + CELL_HEIGHT * row as f64;
            let (beside, base) = (left - 8.0, top + CELL_HEIGHT / 2.0 + 4.0);
            writeln!(
                f,
                "<text x=\"{beside:.2}\" y=\"{base:.2}\" text-anchor=\"end\">{}</text>",
                Escaped(name)
            )?;
            let cells = self.cells.get(row).into_iter().flatten();
            for (column, cell) in cells.take(self.columns.len()).enumerate() {
                let at = left + width * column as f64;
                write_cell(f, self, (at, top, width), cell)?;
            }
        }
        let bottom = TOP + CELL_HEIGHT * self.rows.len() as f64;
        for (column, name) in self.columns.iter().enumerate() {
            let middle = left + width * (column as f64 + 0.5);
            let below = bottom + 18.0;
            writeln!(
                f,
                "<text x=\"{middle:.2}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
                Escaped(name)
            )?;
        }
        self.write_labels(f, left, bottom)
    }
}

impl Map {
    fn write_labels(&self, f: &mut String, left: f64, bottom: f64) -> fmt::Result {
        let middle_x = f64::midpoint(left, WIDTH - RIGHT);
        let middle_y = f64::midpoint(TOP, bottom);
        let base = bottom + BOTTOM - 8.0;
        let (x_label, y_label) = (Escaped(&self.x_label), Escaped(&self.y_label));
        writeln!(
            f,
            "<text x=\"{middle_x:.2}\" y=\"{base}\" text-anchor=\"middle\">{x_label}</text>\n\
             <text x=\"14\" y=\"{middle_y}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle_y})\">{y_label}</text>"
        )
    }
}

fn write_cell(
    f: &mut String,
    map: &Map,
    (at, top, width): (f64, f64, f64),
    cell: &super::Cell,
) -> fmt::Result {
    let fill = colour(cell.choice);
    let (middle, name_base, value_base) = (at + width / 2.0, top + 17.0, top + 32.0);
    let (inner_width, inner_height) = (width - 2.0, CELL_HEIGHT - 2.0);
    let name = map.choices.get(cell.choice).map_or("", String::as_str);
    // In black and white, and for those who see colours alike, every cell says what it is.
    let dashes = cell.choice / COLOURS % 2 == 1;
    let dashes = if dashes {
        " stroke=\"var(--frame)\""
    } else {
        ""
    };
    writeln!(
        f,
        "<rect class=\"cell\" x=\"{at:.2}\" y=\"{top:.2}\" width=\"{inner_width:.2}\" height=\"{inner_height}\" rx=\"2\" \
         fill=\"{fill}\"{dashes}><title>{}</title></rect>\
         <text class=\"name\" x=\"{middle:.2}\" y=\"{name_base:.2}\" text-anchor=\"middle\">{}</text>\
         <text class=\"value\" x=\"{middle:.2}\" y=\"{value_base:.2}\" text-anchor=\"middle\">{}</text>",
        Escaped(&cell.detail),
        Escaped(name),
        Escaped(&cell.text),
    )
}

pub(super) fn write_map(f: &mut Formatter<'_>, map: &Map) -> fmt::Result {
    writeln!(
        f,
        "<figure>\n<figcaption>{}</figcaption>\n<ul class=\"legend\">",
        Escaped(&map.title)
    )?;
    for (choice, name) in map.names() {
        let (colour, name) = (colour(choice), Escaped(name));
        writeln!(
            f,
            "<li><span class=\"swatch\" style=\"background:{colour}\"></span>{name}</li>"
        )?;
    }
    let mut inside = String::new();
    map.write_inside(&mut inside)?;
    let (title, height) = (Escaped(&map.title), map.size().1);
    writeln!(
        f,
        "</ul>\n<div class=\"wide\"><svg class=\"map\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         {inside}</svg></div>"
    )?;
    super::picture::write_conclusion(f, map)?;
    writeln!(f, "</figure>")
}
