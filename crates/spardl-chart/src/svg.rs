//! A chart as a figure: legend, picture, notes.

use std::fmt::{self, Formatter, Write as _};

use super::curve::{self, Piece};
use super::picture::{COLOURS, Picture, write_conclusion};
use super::scale::Scale;
use super::{Chart, Escaped, Series};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
const PLOT_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;

/// Of the curves that have the same colour.
const DASHES: [&str; 4] = ["none", "7 4", "2 4", "9 3 2 3"];
/// Curves with at most so many points have their points marked.
const MARKED: usize = 40;

pub(super) fn write_chart(f: &mut Formatter<'_>, chart: &Chart) -> fmt::Result {
    let curves: Vec<Curve> = chart.series.iter().map(|s| Curve::of(s, chart)).collect();
    writeln!(
        f,
        "<figure>\n<figcaption>{}</figcaption>",
        Escaped(&chart.title)
    )?;
    write_legend(f, chart)?;
    match plot(chart, &curves) {
        None => write_empty(f)?,
        Some(plot) => {
            open_svg(f, chart, &plot)?;
            write_plot(f, chart, &curves, &plot)?;
            writeln!(f, "</svg>")?;
        }
    }
    writeln!(f, "<div class=\"tip\"></div>")?;
    for curve in curves.iter().filter(|curve| curve.hidden > 0) {
        let (name, hidden) = (Escaped(curve.name), curve.hidden);
        let log = if chart.log_x || chart.log_y {
            " or not above zero"
        } else {
            ""
        };
        let points = if hidden == 1 { "point" } else { "points" };
        writeln!(
            f,
            "<p class=\"note\">{name}: {hidden} {points} not drawn (not finite{log})</p>"
        )?;
    }
    write_conclusion(f, chart)?;
    writeln!(f, "</figure>")
}

/// The axes over all curves, if there is anything to draw.
fn plot(chart: &Chart, curves: &[Curve<'_>]) -> Option<Plot> {
    let values = |of: fn(&(f64, f64)) -> f64| {
        let pieces = curves.iter().flat_map(|curve| &curve.pieces);
        let bands = curves
            .iter()
            .flat_map(|curve| &curve.bands)
            .flat_map(|(low, high)| low.iter().chain(high));
        pieces.flatten().chain(bands).map(of)
    };
    let x = Scale::over(values(|point| point.0), chart.log_x);
    let y = Scale::over(values(|point| point.1), chart.log_y).map(Scale::padded);
    x.zip(y).map(|(x, y)| Plot::new(x, y))
}

fn write_plot(
    f: &mut impl fmt::Write,
    chart: &Chart,
    curves: &[Curve<'_>],
    plot: &Plot,
) -> fmt::Result {
    write_axes(f, chart, plot)?;
    for (i, curve) in curves.iter().enumerate() {
        write_bands(f, i, curve, plot)?;
    }
    let (guides, others): (Vec<_>, Vec<_>) = curves
        .iter()
        .enumerate()
        .partition(|(_, curve)| curve.is_guide);
    for (i, curve) in guides.into_iter().chain(others) {
        write_curve(f, i, curve, plot)?;
    }
    let bottom = TOP + PLOT_HEIGHT;
    writeln!(
        f,
        "<line class=\"cross\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
    )
}

impl Picture for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    fn conclusion(&self) -> &str {
        &self.conclusion
    }

    fn names(&self) -> Vec<(usize, &str)> {
        let names = self.series.iter().map(|series| series.name.as_str());
        names.enumerate().collect()
    }

    fn mark(&self, i: usize) -> String {
        let stroke = stroke(i, self.series[i].is_guide);
        format!("<path class=\"line\" d=\"M1 5L25 5\" {stroke}/>")
    }

    fn size(&self) -> (f64, f64) {
        (WIDTH, HEIGHT)
    }

    fn write_inside(&self, f: &mut String) -> fmt::Result {
        let curves: Vec<Curve<'_>> = self.series.iter().map(|s| Curve::of(s, self)).collect();
        match plot(self, &curves) {
            None => Ok(()),
            Some(plot) => write_plot(f, self, &curves, &plot),
        }
    }
}

/// The axes and where they are on the page.
struct Plot {
    x: Scale,
    y: Scale,
    left: f64,
}

impl Plot {
    /// Leaves room for the longest name on the y axis.
    fn new(x: Scale, y: Scale) -> Self {
        let names = y.ticks().into_iter().map(|(_, name)| name.len());
        let left = 38.0 + 7.4 * names.max().unwrap_or(0) as f64;
        Self { x, y, left }
    }

    fn width(&self) -> f64 {
        WIDTH - RIGHT - self.left
    }

    fn right_of(&self, place: f64) -> f64 {
        self.left + place * self.width()
    }

    fn down_to(place: f64) -> f64 {
        TOP + (1.0 - place) * PLOT_HEIGHT
    }

    /// A piece of a curve on the page, with as many points as can be seen.
    fn place(&self, piece: &Piece) -> Piece {
        let on_page = piece.iter().map(|&(x, y)| {
            let right = self.right_of(self.x.place(x));
            (right, Self::down_to(self.y.place(y)))
        });
        curve::thinned(&on_page.collect::<Piece>(), WIDTH)
    }
}

/// What is drawn of a series, in its own units.
struct Curve<'a> {
    name: &'a str,
    pieces: Vec<Piece>,
    /// The lower and the upper edge of what is shaded.
    bands: Vec<(Piece, Piece)>,
    hidden: usize,
    smooth: bool,
    is_guide: bool,
}

impl<'a> Curve<'a> {
    fn of(series: &'a Series, chart: &Chart) -> Self {
        let shown =
            |&(x, y): &(f64, f64)| Scale::shows(chart.log_x, x) && Scale::shows(chart.log_y, y);
        let (mut pieces, hidden) = curve::pieces(&series.points, shown);
        let bands = bands(series, chart.smooth, shown);
        // Where there is a band it shows the noise, and only the mean is drawn.
        let smooth = chart.smooth && bands.is_empty();
        if chart.smooth && !smooth {
            pieces = pieces.iter().map(|piece| curve::smoothed(piece)).collect();
        }
        Self {
            name: &series.name,
            pieces,
            bands,
            hidden,
            smooth,
            is_guide: series.is_guide,
        }
    }
}

/// The edges of what is shaded, between points that cannot be shown.
fn bands(
    series: &Series,
    smooth: bool,
    shown: impl Fn(&(f64, f64)) -> bool,
) -> Vec<(Piece, Piece)> {
    let is_shown = |&(x, low, high): &(f64, f64, f64)| shown(&(x, low)) && shown(&(x, high));
    let pieces = series.band.split(|point| !is_shown(point));
    let edges = pieces.filter(|piece| !piece.is_empty()).map(|piece| {
        let low: Piece = piece.iter().map(|&(x, low, _)| (x, low)).collect();
        let high: Piece = piece.iter().map(|&(x, _, high)| (x, high)).collect();
        match smooth {
            true => (curve::smoothed(&low), curve::smoothed(&high)),
            false => (low, high),
        }
    });
    edges.collect()
}

fn write_legend(f: &mut Formatter<'_>, chart: &Chart) -> fmt::Result {
    writeln!(f, "<ul class=\"legend\">")?;
    for (i, series) in chart.series.iter().enumerate() {
        let (stroke, name) = (stroke(i, series.is_guide), Escaped(&series.name));
        writeln!(
            f,
            "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"line\" d=\"M1 5L25 5\" {stroke}/></svg>{name}</li>"
        )?;
    }
    writeln!(f, "</ul>")
}

fn stroke(i: usize, is_guide: bool) -> String {
    if is_guide {
        return "stroke=\"var(--frame)\" stroke-dasharray=\"4 4\"".to_owned();
    }
    let colour = i % COLOURS;
    let dash = DASHES[i / COLOURS % DASHES.len()];
    format!("stroke=\"var(--c{colour})\" stroke-dasharray=\"{dash}\"")
}

fn write_empty(f: &mut Formatter<'_>) -> fmt::Result {
    let middle = WIDTH / 2.0;
    writeln!(
        f,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} 80\" role=\"img\"><text x=\"{middle}\" y=\"44\" text-anchor=\"middle\">\
         nothing to draw</text></svg>"
    )
}

fn open_svg(f: &mut Formatter<'_>, chart: &Chart, plot: &Plot) -> fmt::Result {
    let data = |scale: &Scale| format!("{} {} {}", scale.low, scale.high, u8::from(scale.log));
    let (x, y) = (data(&plot.x), data(&plot.y));
    let (left, width) = (plot.left, plot.width());
    let title = Escaped(&chart.title);
    writeln!(
        f,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         data-plot=\"{left:.1} {TOP} {width:.1} {PLOT_HEIGHT}\" data-x=\"{x}\" data-y=\"{y}\">"
    )
}

fn write_axes(f: &mut impl fmt::Write, chart: &Chart, plot: &Plot) -> fmt::Result {
    let (left, right, bottom) = (plot.left, plot.right_of(1.0), TOP + PLOT_HEIGHT);
    for (place, name) in plot.x.ticks() {
        let at = plot.right_of(place);
        let below = bottom + 18.0;
        writeln!(
            f,
            "<line class=\"grid\" x1=\"{at:.2}\" x2=\"{at:.2}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.2}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"
        )?;
    }
    for (place, name) in plot.y.ticks() {
        let at = Plot::down_to(place);
        let (beside, base) = (left - 8.0, at + 4.0);
        writeln!(
            f,
            "<line class=\"grid\" x1=\"{left:.2}\" x2=\"{right:.2}\" y1=\"{at:.2}\" y2=\"{at:.2}\"/>\
             <text x=\"{beside:.2}\" y=\"{base:.2}\" text-anchor=\"end\">{name}</text>"
        )?;
    }
    let (middle_x, middle_y) = (plot.right_of(0.5), Plot::down_to(0.5));
    let base = HEIGHT - 8.0;
    let (x_label, y_label) = (Escaped(&chart.x_label), Escaped(&chart.y_label));
    writeln!(
        f,
        "<path class=\"frame\" d=\"M{left:.2} {TOP}V{bottom}H{right:.2}\"/>\n\
         <text x=\"{middle_x:.2}\" y=\"{base}\" text-anchor=\"middle\">{x_label}</text>\n\
         <text x=\"14\" y=\"{middle_y}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle_y})\">{y_label}</text>"
    )
}

fn write_bands(f: &mut impl fmt::Write, i: usize, curve: &Curve<'_>, plot: &Plot) -> fmt::Result {
    let colour = i % COLOURS;
    for (low, high) in &curve.bands {
        let mut edge = plot.place(high);
        edge.extend(plot.place(low).into_iter().rev());
        writeln!(
            f,
            "<path class=\"band\" d=\"{}Z\" fill=\"var(--c{colour})\"/>",
            path(&[edge])
        )?;
    }
    Ok(())
}

fn write_curve(f: &mut impl fmt::Write, i: usize, curve: &Curve<'_>, plot: &Plot) -> fmt::Result {
    let place = |piece: &Piece| plot.place(piece);
    let (stroke, name) = (stroke(i, curve.is_guide), Escaped(curve.name));
    let mut line: Vec<Piece> = curve.pieces.iter().map(place).collect();
    if curve.smooth {
        writeln!(f, "<path class=\"raw\" d=\"{}\" {stroke}/>", path(&line))?;
        let smooth = |piece: &Piece| place(&curve::smoothed(piece));
        line = curve.pieces.iter().map(smooth).collect();
    }
    writeln!(
        f,
        "<path class=\"line\" d=\"{}\" data-name=\"{name}\" {stroke}><title>{name}</title></path>",
        path(&line)
    )?;
    if curve.is_guide {
        return Ok(());
    }
    let few = line.iter().map(Vec::len).sum::<usize>() <= MARKED;
    let colour = i % COLOURS;
    // A piece of one point is no line: only a mark shows it.
    for piece in line.iter().filter(|piece| few || piece.len() == 1) {
        for (right, down) in piece {
            writeln!(
                f,
                "<circle cx=\"{right:.2}\" cy=\"{down:.2}\" r=\"3\" fill=\"var(--c{colour})\"/>"
            )?;
        }
    }
    Ok(())
}

fn path(pieces: &[Piece]) -> String {
    let mut path = String::new();
    for piece in pieces {
        for (i, (right, down)) in piece.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            // Writing to a text cannot fail.
            let _ = write!(path, "{command}{right:.2} {down:.2}");
        }
    }
    path
}
