//! A chart or a map as a picture of its own: an SVG file with title and legend, in the reader's colour scheme.

use std::fmt::{self, Formatter, Write as _};

use super::Escaped;

/// Colours in the style sheet; after that many they come again.
pub(super) const COLOURS: usize = 7;

const MARGIN: f64 = 16.0;
const TITLE: f64 = 30.0;
const LEGEND_LINE: f64 = 20.0;
const MARK: f64 = 32.0;
const LETTER: f64 = 7.2;

/// What a picture shows.
pub(super) trait Picture {
    fn title(&self) -> &str;
    fn conclusion(&self) -> &str;
    /// What the legend names, with the number that its mark goes by.
    fn names(&self) -> Vec<(usize, &str)>;
    /// The mark of a name in the legend: 26 wide, 10 high.
    fn mark(&self, i: usize) -> String;
    /// Width and height, without the legend.
    fn size(&self) -> (f64, f64);
    /// Everything but the legend.
    fn write_inside(&self, f: &mut String) -> fmt::Result;
}

pub(super) fn colour(i: usize) -> String {
    format!("var(--c{})", i % COLOURS)
}

pub(super) fn write_conclusion(f: &mut Formatter<'_>, picture: &impl Picture) -> fmt::Result {
    if picture.conclusion().is_empty() {
        return Ok(());
    }
    let conclusion = Escaped(picture.conclusion());
    writeln!(f, "<p class=\"conclusion\">{conclusion}</p>")
}

/// The picture as an SVG file.
pub(super) fn svg(picture: &impl Picture) -> String {
    let (mut legend, mut inside) = (String::new(), String::new());
    let (whole, below) = picture.size();
    let (mut right, mut down) = (MARGIN, TITLE + 8.0);
    for (i, name) in picture.names() {
        let width = MARK + LETTER * name.chars().count() as f64 + 14.0;
        if right + width > whole && right > MARGIN {
            (right, down) = (MARGIN, down + LEGEND_LINE);
        }
        let text = right + MARK;
        let (mark, base) = (picture.mark(i), down + 10.0);
        // Writing to a text cannot fail.
        let _ = writeln!(
            legend,
            "<g transform=\"translate({right:.1} {down})\">{mark}</g><text x=\"{text:.1}\" y=\"{base}\">{}</text>",
            Escaped(name)
        );
        right += width;
    }
    let _ = picture.write_inside(&mut inside);
    let top = down + LEGEND_LINE + 4.0;
    let (height, title) = (top + below, Escaped(picture.title()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>\n{}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n\
         <text class=\"name\" x=\"{MARGIN}\" y=\"22\" style=\"font-size: 14px\">{title}</text>\n{legend}\
         <g transform=\"translate(0 {top})\">\n{inside}</g>\n</svg>\n",
        super::COLOURS_STYLE
    )
}
