//! The page of tables and charts: well-formed whatever the names and numbers are.

use proptest::prelude::*;
use spardl_chart::{Cell, Chart, Map, Page, Series, Table, Tile};

/// Elements that have no end tag.
const VOID: [&str; 1] = ["meta"];

/// Checks that every tag is closed in order and no attribute is left open; gives the text between the tags.
fn text(html: &str) -> String {
    let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
    // Style and script are ours, not data: their content is not markup.
    let (body, script) = body.split_once("<script>").unwrap();
    let after = script.split_once("</script>").unwrap().1;
    let (head, style) = body.split_once("<style>").unwrap();
    let body = [head, style.split_once("</style>").unwrap().1, after].concat();
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    let mut rest = body.as_str();
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        let (tag, after) = tag.split_once('>').expect("a tag without an end");
        assert!(!before.contains('>'), "a loose > in {before:?}");
        assert!(
            tag.matches('"').count() % 2 == 0,
            "an open quote in <{tag}>"
        );
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            let name = tag.split_whitespace().next().unwrap();
            if !VOID.contains(&name) {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    text + rest
}

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        title: "loss against step".to_owned(),
        x_label: "step".to_owned(),
        y_label: "loss".to_owned(),
        series,
        ..Chart::default()
    }
}

fn map(name: &str) -> Map {
    let cell = |choice| Cell {
        choice,
        text: name.to_owned(),
        detail: name.to_owned(),
    };
    Map {
        title: name.to_owned(),
        x_label: name.to_owned(),
        y_label: name.to_owned(),
        columns: vec![name.to_owned(); 2],
        rows: vec![name.to_owned(); 2],
        choices: vec![name.to_owned(), "nowhere".to_owned(), "second".to_owned()],
        cells: vec![vec![cell(0), cell(2)], vec![cell(2), cell(2)]],
        conclusion: name.to_owned(),
    }
}

fn page(charts: Vec<Chart>) -> String {
    let title = "dense against spardl".to_owned();
    let page = Page {
        title,
        charts,
        ..Page::default()
    };
    page.to_string()
}

/// The commands of all strong lines.
fn lines(html: &str) -> Vec<&str> {
    let paths = html.split("<path class=\"line\" d=\"").skip(1);
    let data = paths.filter(|path| path.contains("data-name"));
    data.map(|path| path.split_once('"').unwrap().0)
        .filter(|path| *path != "M1 5L25 5")
        .collect()
}

#[test]
fn tables_and_charts_are_on_the_page_and_nothing_is_loaded() {
    let html = Page {
        title: "compare".to_owned(),
        subtitle: "spardl compare --methods dense,spardl".to_owned(),
        tables: vec![Table {
            title: "result".to_owned(),
            columns: vec!["method".to_owned(), "accuracy".to_owned()],
            rows: vec![vec!["spardl".to_owned(), "91.3".to_owned()]],
            is_text: false,
        }],
        charts: vec![chart(vec![Series::new("dense", [(0.0, 2.0), (1.0, 1.0)])])],
        tiles: vec![Tile {
            name: "sent per step".to_owned(),
            value: "4.81 kB".to_owned(),
            note: "1.3 % of all".to_owned(),
        }],
        appendix: vec![Table {
            title: "configuration".to_owned(),
            is_text: true,
            ..Table::default()
        }],
        stamp: vec!["spardl 0.1.0, two cores".to_owned()],
        maps: vec![map("where")],
    }
    .to_string();
    let text = text(&html);
    let words = [
        "compare",
        "dense,spardl",
        "result",
        "accuracy",
        "91.3",
        "step",
        "loss",
        "4.81 kB",
        "1.3 % of all",
        "configuration",
        "two cores",
    ];
    for word in words {
        assert!(text.contains(word), "{word}");
    }
    for loads in ["http", "src=", "href", "@import", "url("] {
        assert!(!html.contains(loads), "{loads}");
    }
}

#[test]
fn names_cannot_become_markup() {
    let nasty = "</title><script>alert('&')</script>\" onload=\"x\0";
    let html = Page {
        title: nasty.to_owned(),
        subtitle: nasty.to_owned(),
        tables: vec![Table {
            title: nasty.to_owned(),
            columns: vec![nasty.to_owned()],
            rows: vec![vec![nasty.to_owned()]],
            is_text: true,
        }],
        tiles: vec![Tile {
            name: nasty.to_owned(),
            value: nasty.to_owned(),
            note: nasty.to_owned(),
        }],
        stamp: vec![nasty.to_owned()],
        maps: vec![map(nasty)],
        charts: vec![Chart {
            title: nasty.to_owned(),
            x_label: nasty.to_owned(),
            y_label: nasty.to_owned(),
            ..chart(vec![Series::new(nasty, [(0.0, f64::NAN), (1.0, 1.0)])])
        }],
        ..Page::default()
    }
    .to_string();
    assert_eq!(html.matches("<script>").count(), 1);
    assert!(!html.contains("onload=\"x"));
    assert!(!html.contains('\0'));
    text(&html);
}

#[test]
fn columns_of_dashes_are_left_out() {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    let table = Table {
        columns: row(["method", "to target", "speed-up"]),
        rows: vec![row(["dense", "-", "-"]), row(["spardl", "-", "2.1"])],
        ..Table::default()
    };
    let shown = table.without_dashes();
    assert_eq!(shown.columns, ["method", "speed-up"]);
    assert_eq!(shown.rows, [["dense", "-"], ["spardl", "2.1"]]);
}

#[test]
fn a_map_names_what_holds_in_every_cell_and_nothing_that_holds_nowhere() {
    let html = Page {
        maps: vec![map("first")],
        ..Page::default()
    }
    .to_string();
    let text = text(&html);
    // The legend and the three cells; the name of the choice of a cell beyond the legend.
    assert_eq!(text.matches("second").count(), 4);
    assert!(!text.contains("nowhere"));
    assert_eq!(html.matches("<rect class=\"cell\"").count(), 4);
}

#[test]
fn pictures_of_their_own_are_whole_and_follow_the_colour_scheme() {
    let nasty = "a<b & \"c\"";
    let mut line = chart(vec![Series::new(nasty, [(1.0, 2.0), (2.0, 1.0)])]);
    line.title = nasty.to_owned();
    for svg in [map(nasty).to_svg(), line.to_svg()] {
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains(nasty) && svg.contains("a&lt;b &amp; &quot;c&quot;"));
        // Well-formed: the checker of pages takes it as a body.
        text(&format!("<!DOCTYPE html>{svg}<script></script>"));
    }
}

#[test]
fn a_chart_without_points_says_so() {
    for series in [
        vec![],
        vec![Series::new("empty", [])],
        vec![Series::new("nan", [(f64::NAN, 1.0)])],
    ] {
        let html = page(vec![chart(series)]);
        assert!(text(&html).contains("nothing to draw"));
    }
}

#[test]
fn one_point_is_a_mark() {
    let html = page(vec![chart(vec![Series::new("one", [(3.0, 4.0)])])]);
    text(&html);
    assert_eq!(html.matches("<circle").count(), 1);
    let lone = Series::new(
        "gap",
        (0..100)
            .map(|i| (f64::from(i), if i == 1 { f64::NAN } else { 1.0 }))
            .collect::<Vec<_>>(),
    );
    let html = page(vec![chart(vec![lone])]);
    assert_eq!(html.matches("<circle").count(), 1);
}

#[test]
fn a_constant_is_a_level_line_inside_the_frame() {
    for value in [0.0, 1.0, -5.0, 1e-12, 1e12] {
        let points: Vec<_> = (0..100).map(|i| (f64::from(i), value)).collect();
        let html = page(vec![chart(vec![Series::new("level", points)])]);
        text(&html);
        let line = lines(&html)[0];
        let heights: Vec<f64> = line[1..]
            .split('L')
            .map(|p| p.split_once(' ').unwrap().1.parse().unwrap())
            .collect();
        assert!(
            heights
                .iter()
                .all(|&down| down == heights[0] && (12.0..312.0).contains(&down)),
            "{value}: {line}"
        );
    }
}

#[test]
fn values_that_are_not_numbers_break_the_line_and_are_counted() {
    let points = [
        (0.0, 1.0),
        (1.0, 2.0),
        (2.0, f64::NAN),
        (3.0, 1.0),
        (4.0, f64::INFINITY),
        (5.0, 1.0),
    ];
    let html = page(vec![chart(vec![Series::new("spardl", points)])]);
    assert!(text(&html).contains("spardl: 2 points not drawn (not finite)"));
    assert_eq!(lines(&html)[0].matches('M').count(), 3);
    assert!(!html.contains("NaN") && !html.contains("inf "));
}

#[test]
fn a_logarithmic_axis_leaves_out_what_it_cannot_show() {
    let points = [(0.0, 1.0), (1.0, 0.1), (10.0, 0.0), (100.0, 0.001)];
    let html = page(vec![Chart {
        log_x: true,
        log_y: true,
        ..chart(vec![Series::new("spardl", points)])
    }]);
    assert!(text(&html).contains("2 points not drawn (not finite or not above zero)"));
}

#[test]
fn smoothing_draws_both_the_points_and_their_mean() {
    let points: Vec<_> = (0..5000)
        .map(|i| (f64::from(i), f64::from(i % 7)))
        .collect();
    let html = page(vec![Chart {
        smooth: true,
        ..chart(vec![Series::new("noisy", points)])
    }]);
    text(&html);
    assert_eq!(html.matches("class=\"raw\"").count(), 1);
    assert_eq!(lines(&html).len(), 1);
    assert!(html.len() < 60_000, "{} bytes", html.len());
}

#[test]
fn several_curves_are_a_mean_with_a_band() {
    let curves = [
        vec![(0.0, 1.0), (2.0, 4.0), (4.0, 9.0)],
        vec![(0.0, 3.0), (4.0, 2.0)],
    ];
    let mean = Series::mean("spardl", &curves);
    assert_eq!(mean.points, [(0.0, 2.0), (3.0, 3.0)]);
    assert_eq!(mean.band, [(0.0, 1.0, 3.0), (3.0, 2.0, 4.0)]);
    let alone = Series::mean("spardl", &curves[..1]);
    assert_eq!(alone, Series::new("spardl", curves[0].clone()));
    assert_eq!(Series::mean("none", &[]), Series::new("none", []));

    let html = page(vec![chart(vec![mean])]);
    text(&html);
    let (_, band) = html.split_once("class=\"band\" d=\"").expect("a band");
    let (edge, _) = band.split_once('"').expect("its end");
    assert_eq!(edge.matches(['M', 'L', 'Z']).count(), 5, "{edge}");
    // The axis has room for all of the band.
    let (_, axis) = html.split_once("data-y=\"").expect("an axis");
    let ends: Vec<f64> = axis
        .split(['"', ' '])
        .take(2)
        .map(|end| end.parse().expect("a number"))
        .collect();
    assert!(ends[0] <= 1.0 && ends[1] >= 4.0, "{ends:?}");
}

#[test]
fn the_noise_of_several_curves_is_their_band() {
    let noisy = |seed: i32| -> Vec<(f64, f64)> {
        let height = |i: i32| f64::from((i * seed) % 7);
        (0..3000).map(|i| (f64::from(i), height(i))).collect()
    };
    let mean = Series::mean("noisy", &[noisy(3), noisy(5)]);
    let html = page(vec![Chart {
        smooth: true,
        ..chart(vec![mean])
    }]);
    text(&html);
    assert_eq!(html.matches("class=\"band\"").count(), 1);
    assert_eq!(html.matches("class=\"raw\"").count(), 0);
    assert!(html.len() < 90_000, "{} bytes", html.len());
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -10.0..10.0,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(0.0)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_data_gives_a_well_formed_page_with_finite_places(
        series in prop::collection::vec((".{0,12}", prop::collection::vec((number(), number()), 0..60)), 0..12),
        log_x: bool,
        log_y: bool,
        smooth: bool,
    ) {
        let series = series.into_iter().map(|(name, points)| {
            let other: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (y, x)).collect();
            // Some with a band.
            match points.len() % 2 {
                0 => Series::mean(name, &[points, other]),
                _ => Series::new(name, points),
            }
        }).collect();
        let html = page(vec![Chart { log_x, log_y, smooth, ..chart(series) }]);
        text(&html);
        for line in lines(&html) {
            let places = line.split(['M', 'L', ' ']).filter(|place| !place.is_empty());
            for place in places {
                let place: f64 = place.parse().unwrap();
                prop_assert!((0.0..=640.0).contains(&place), "{}", line);
            }
        }
    }
}
