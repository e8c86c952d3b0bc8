//! What fits the terminal: tables, lines of words, numbers that can be read.

use console::Term;

/// A space at which no heading is broken: between a number and its unit.
const UNBROKEN: char = '\u{a0}';
/// Between two columns.
const GAP: usize = 2;

/// Columns of the terminal that stdout is; `None` for a file or a pipe, where lines may have any length.
pub(crate) fn stdout_width() -> Option<usize> {
    width(&Term::stdout())
}

/// Columns of the terminal that stderr is.
pub(crate) fn stderr_width() -> Option<usize> {
    width(&Term::stderr())
}

fn width(term: &Term) -> Option<usize> {
    let (_, columns) = term.size_checked().filter(|_| term.is_term())?;
    // Some terminals say that they have none.
    (columns > 0).then_some(columns.into())
}

/// A table of text: columns of words are on the left, those of numbers on the right.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The columns that name the rows.
    keys: Vec<usize>,
    /// Columns of words.
    words: Vec<usize>,
    is_comment: bool,
    /// A heading, and words about each row.
    about: Option<(String, Vec<String>)>,
}

/// Words below a row are indented so far.
const INDENT: usize = 4;

impl Sheet {
    /// A table whose first column names the rows.
    pub(crate) fn new<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().collect(),
            keys: vec![0],
            words: vec![0],
            is_comment: false,
            about: None,
        }
    }

    /// With the column of this number as the one that names the rows.
    pub(crate) fn with_key(self, key: usize) -> Self {
        self.with_keys(vec![key]).with_columns_of_words(vec![key])
    }

    /// With columns that name the rows together.
    pub(crate) fn with_keys(self, keys: Vec<usize>) -> Self {
        Self { keys, ..self }
    }

    /// With these columns on the left.
    pub(crate) fn with_columns_of_words(self, words: Vec<usize>) -> Self {
        Self { words, ..self }
    }

    /// With headings that start with `#`, as comments do.
    pub(crate) fn commented(self) -> Self {
        Self {
            is_comment: true,
            ..self
        }
    }

    /// With words about each row: at the end of its line where all of them find room there, otherwise below it.
    pub(crate) fn with_words(
        self,
        name: &str,
        words: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self {
            about: Some((name.to_owned(), words)),
            ..self
        }
    }

    /// Lines of at most `width` characters, where that can be. Columns of which nothing is known are left out, then headings
    /// are broken, and then the columns that find no room follow below, after the names of the rows. Without a width every
    /// column is there, whatever is in it: programs that read a table count its columns.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let all: Vec<usize> = (0..self.names.len()).collect();
        let plain = |i: usize| self.names[i].chars().count();
        let Some(width) = width else {
            return self.with_words_beside(self.block(&all, plain), usize::MAX);
        };
        let all: Vec<usize> = all.into_iter().filter(|&i| self.is_known(i)).collect();
        if self.total(&all, plain) <= width {
            return self.with_words_beside(self.block(&all, plain), width);
        }
        let broken = |i: usize| longest_word(&self.names[i]);
        if self.total(&all, broken) <= width {
            return self.with_words_beside(self.block_in(&all, width), width);
        }
        let mut blocks: Vec<Vec<usize>> = vec![self.keys.clone()];
        for &i in all.iter().filter(|i| !self.keys.contains(i)) {
            let last = blocks.last_mut().expect("never empty");
            last.push(i);
            if last.len() > self.keys.len() + 1 && self.total(last, broken) > width {
                last.pop();
                let keys = self.keys.iter().copied();
                blocks.push(keys.chain([i]).collect());
            }
        }
        let blocks = blocks.iter().map(|columns| self.block_in(columns, width));
        let mut blocks: Vec<String> = blocks.collect();
        let first = self.with_words_beside(std::mem::take(&mut blocks[0]), width);
        blocks[0] = first;
        blocks.join("\n")
    }

    /// Is there a value in this column, or nothing to judge by?
    fn is_known(&self, column: usize) -> bool {
        self.keys.contains(&column)
            || self.rows.is_empty()
            || self.rows.iter().any(|row| row[column] != "-")
    }

    /// Characters of a column whose heading needs so many; of the `first` one the mark of a comment belongs to the heading.
    fn width(&self, column: usize, heading: usize, first: bool) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(heading + self.mark(first))
    }

    fn mark(&self, first: bool) -> usize {
        if self.is_comment && first { 2 } else { 0 }
    }

    /// Characters of a line with these columns.
    fn total(&self, columns: &[usize], heading: impl Fn(usize) -> usize) -> usize {
        let widths = columns.iter().enumerate();
        let widths = widths.map(|(place, &i)| self.width(i, heading(i), place == 0));
        widths.sum::<usize>() + GAP * (columns.len() - 1)
    }

    /// These columns with as few lines of headings as find room.
    fn block_in(&self, columns: &[usize], width: usize) -> String {
        let words = columns.iter().map(|&i| self.names[i].split(' ').count());
        let most = words.max().unwrap_or(1);
        let heading = |lines: usize| move |i: usize| least_width(&self.names[i], lines);
        let lines = (1..most).find(|&lines| self.total(columns, heading(lines)) <= width);
        self.block(columns, heading(lines.unwrap_or(most)))
    }

    fn block(&self, columns: &[usize], heading: impl Fn(usize) -> usize) -> String {
        let places = || columns.iter().enumerate();
        let widths: Vec<usize> = places()
            .map(|(place, &i)| self.width(i, heading(i), place == 0))
            .collect();
        let headings: Vec<Vec<String>> = places()
            .map(|(place, &i)| wrapped(&self.names[i], widths[place] - self.mark(place == 0)))
            .map(|lines| {
                lines
                    .iter()
                    .map(|line| line.replace(UNBROKEN, " "))
                    .collect()
            })
            .collect();
        let lines = headings.iter().map(Vec::len).max().unwrap_or(1);
        let mut text = String::new();
        for line in 0..lines {
            // The last line of each heading stands right above its column.
            let words = headings.iter().map(|heading| {
                let word = (line + heading.len()).checked_sub(lines);
                word.map_or("", |line| heading[line].as_str())
            });
            let words: Vec<&str> = words.collect();
            let mut shown = self.line(columns, &words, &widths, self.mark(true));
            if self.is_comment {
                shown.insert_str(0, "# ");
            }
            text += &(shown.trim_end().to_owned() + "\n");
        }
        for row in &self.rows {
            let cells: Vec<&str> = columns.iter().map(|&i| row[i].as_str()).collect();
            text += &(self.line(columns, &cells, &widths, 0).trim_end().to_owned() + "\n");
        }
        text
    }

    /// A block, with the words about its rows.
    fn with_words_beside(&self, block: String, width: usize) -> String {
        let Some((name, words)) = &self.about else {
            return block;
        };
        let lines: Vec<&str> = block.lines().collect();
        let heads = lines.len() - self.rows.len();
        let longest = |lines: &[&str]| lines.iter().map(|line| line.chars().count()).max();
        let table = longest(&lines).unwrap_or(0);
        let words_width = words.iter().map(|words| words.chars().count()).max();
        let beside = table.saturating_add(GAP + words_width.unwrap_or(0)) <= width;
        let mut text = String::new();
        for (i, line) in lines.iter().enumerate() {
            let words = match i.checked_sub(heads) {
                Some(row) => words[row].as_str(),
                None if i + 1 == heads && beside => name.as_str(),
                None => "",
            };
            if beside {
                text += format!("{line:0$}{1:2$}{words}", table, "", GAP).trim_end();
                text.push('\n');
                continue;
            }
            text += &format!("{line}\n");
            for words in wrapped(words, width.saturating_sub(INDENT)) {
                if !words.is_empty() {
                    text += &format!("{:INDENT$}{words}\n", "");
                }
            }
        }
        text
    }

    /// Cells in columns of these widths, the first one narrower by so much.
    fn line(&self, columns: &[usize], cells: &[&str], widths: &[usize], less: usize) -> String {
        let cells = cells.iter().enumerate().map(|(place, cell)| {
            let width = widths[place] - if place == 0 { less } else { 0 };
            let column = columns[place];
            match self.words.contains(&column) {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            }
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP))
    }
}

fn longest_word(text: &str) -> usize {
    let words = text.split(' ').map(|word| word.chars().count());
    words.max().unwrap_or(0)
}

/// The fewest characters in which a text has no more than so many lines.
fn least_width(text: &str, lines: usize) -> usize {
    let longest = longest_word(text);
    let mut widths = longest..=text.chars().count();
    let found = widths.find(|&width| wrapped(text, width).len() <= lines);
    found.unwrap_or(longest)
}

/// Words on lines of at most `width` characters, but for a word that is longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Each of these lines as a comment, on as many lines of at most `width` characters as it takes.
pub(crate) fn comments<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    width: Option<usize>,
) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(2));
    let lines = lines.into_iter().flat_map(|line| wrapped(line, room));
    lines.map(|line| format!("# {line}\n")).collect()
}

/// A text whose lines have at most `width` characters, where its words allow that. What a line goes on with stands below its
/// words: behind the mark of a comment, and behind a name that is set apart.
pub(crate) fn fitted(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let lines = text.split('\n').map(|line| fitted_line(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

fn fitted_line(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let (head, words) = line.split_at(head(line, width / 2));
    let (mark, behind) = match head.starts_with('#') {
        true => ("# ", head.chars().count() - 2),
        false => ("", head.chars().count()),
    };
    let lines = wrapped(words, width.saturating_sub(mark.len() + behind));
    let between = format!("\n{mark}{:behind$}", "");
    head.to_owned() + &lines.join(&between)
}

/// Bytes of a line before its words; of a name only up to so many.
fn head(line: &str, most: usize) -> usize {
    let after_spaces = |from: usize| line.len() - line[from..].trim_start_matches(' ').len();
    let marked = line.starts_with("# ") || line.starts_with("- ");
    let start = after_spaces(if marked { 2 } else { 0 });
    let name = line[start..].find(' ').map_or(start, |at| start + at);
    let words = after_spaces(name);
    match words > name + 1 && words <= most {
        true => words,
        false => start,
    }
}

/// What belongs together, two spaces apart, on lines of at most `width` characters; those after the first are indented.
pub(crate) fn items(items: &[String], width: Option<usize>, indent: usize) -> String {
    let mut lines = vec![String::new()];
    let width = width.unwrap_or(usize::MAX);
    for item in items.iter().filter(|item| !item.is_empty()) {
        let last = lines.last_mut().expect("never empty");
        if last.trim().is_empty() {
            last.push_str(item);
        } else if last.chars().count() + GAP + item.chars().count() <= width {
            *last += &format!("  {item}");
        } else {
            lines.push(" ".repeat(indent) + item);
        }
    }
    lines.join("\n")
}

/// Groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["dense", "98.53 (98.15..98.81)", "-", "1.00"]),
            row(["spardl", "98.31", "-", "2.10"]),
        ];
        let names = [
            "method",
            "test acc %",
            "to target s",
            "speed-up at 1 Gbit/s",
        ];
        Sheet::new(names, rows)
    }

    #[test]
    fn a_comment_fits_the_terminal_and_is_one_line_without_one() {
        let lines = ["what was run and where", "when"];
        let narrow = "# what was\n# run and\n# where\n# when\n";
        assert_eq!(comments(lines, Some(10)), narrow);
        assert_eq!(comments(lines, None), "# what was run and where\n# when\n");
    }

    #[test]
    fn a_line_that_is_too_long_goes_on_below_its_words() {
        let text = "a short one\n# what was run and where\nMPI   a library of some name\n  two words and more of them\n";
        let expected = "\
a short one
# what was run
# and where
MPI   a library
      of some
      name
  two words and
  more of them
";
        assert_eq!(fitted(text, Some(15)), expected);
        assert_eq!(fitted(text, Some(30)), text);
        assert_eq!(fitted(text, None), text);
    }

    #[test]
    fn a_table_that_fits_is_one_table_without_columns_of_dashes() {
        let expected = "\
method            test acc %  speed-up at 1 Gbit/s
dense   98.53 (98.15..98.81)                  1.00
spardl                 98.31                  2.10
";
        assert_eq!(sheet().text(Some(50)), expected);
        assert_eq!(sheet().text(Some(500)), expected);
        let everything = sheet().text(None);
        assert!(everything.contains("to target s"), "{everything}");
    }

    #[test]
    fn headings_are_broken_before_columns_are_moved() {
        let two_lines = [
            "                              speed-up at",
            "method            test acc %     1 Gbit/s",
            "dense   98.53 (98.15..98.81)         1.00",
            "spardl                 98.31         2.10\n",
        ]
        .join("\n");
        assert_eq!(sheet().text(Some(49)), two_lines);
        let three_lines = [
            "                              speed-up",
            "                                  at 1",
            "method            test acc %    Gbit/s",
            "dense   98.53 (98.15..98.81)      1.00",
            "spardl                 98.31      2.10\n",
        ]
        .join("\n");
        assert_eq!(sheet().text(Some(38)), three_lines);
        let moved = [
            "method            test acc %",
            "dense   98.53 (98.15..98.81)",
            "spardl                 98.31",
            "",
            "method  speed-up at 1 Gbit/s",
            "dense                   1.00",
            "spardl                  2.10\n",
        ]
        .join("\n");
        assert_eq!(sheet().text(Some(37)), moved);
        // Narrower than any column: nothing is lost.
        let narrow = sheet().text(Some(3));
        for words in ["98.53 (98.15..98.81)", "speed-up", "2.10"] {
            assert!(narrow.contains(words), "{narrow}");
        }
    }

    #[test]
    fn a_comment_begins_every_line_of_headings() {
        let row = ["58913064", "spardl", "3.25"].map(str::to_owned).to_vec();
        let sheet = Sheet::new(["size", "method", "time in ms"], [row]);
        let sheet = sheet.with_key(1).commented();
        let expected = "#   size  method  time in ms\n58913064  spardl        3.25\n";
        assert_eq!(sheet.text(None), expected);
        let text = sheet.text(Some(25));
        let comments = text.lines().filter(|line| line.starts_with('#')).count();
        assert_eq!(comments, 2, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 25),
            "{text}"
        );
    }

    #[test]
    fn columns_that_name_the_rows_together_stand_in_every_block() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["2", "r", "1000000", "7"]),
            row(["2", "b", "900", "8000000"]),
        ];
        let sheet = Sheet::new(["teams", "sag", "bytes", "time"], rows);
        let text = sheet
            .with_keys(vec![0, 1])
            .with_columns_of_words(vec![1])
            .text(Some(20));
        let expected = [
            "teams  sag    bytes",
            "    2  r    1000000",
            "    2  b        900",
            "",
            "teams  sag     time",
            "    2  r          7",
            "    2  b    8000000\n",
        ];
        assert_eq!(text, expected.join("\n"));
    }

    #[test]
    fn words_about_a_row_stand_beside_or_below_it() {
        let row = |name: &str| vec![name.to_owned(), "7".to_owned()];
        let sheet = Sheet::new(["method", "rounds"], [row("dense"), row("gtopk")]);
        let sheet = sheet.with_words("what it does", ["everything", "a tree of merges"]);
        let beside = "\
method  rounds  what it does
dense        7  everything
gtopk        7  a tree of merges
";
        assert_eq!(sheet.text(None), beside);
        assert_eq!(sheet.text(Some(32)), beside);
        let below = "\
method  rounds
dense        7
    everything
gtopk        7
    a tree of
    merges
";
        assert_eq!(sheet.text(Some(16)), below);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for columns in 1..12 {
            for width in 20..100 {
                let names = (0..columns).map(|i| "some words ".repeat(i % 3 + 1).trim().to_owned());
                let cells = (0..columns).map(|i| "7".repeat(i + 1)).collect();
                let text = Sheet::new(names, [cells]).text(Some(width));
                let longest = text.lines().map(|line| line.chars().count()).max();
                assert!(longest <= Some(width), "{columns} {width}:\n{text}");
            }
        }
    }

    #[cfg(feature = "train")]
    #[test]
    fn items_that_do_not_fit_go_to_the_next_line() {
        let all = ["epoch 1/3", "loss 0.5", "", "sent 4 kB"].map(str::to_owned);
        assert_eq!(items(&all, None, 2), "epoch 1/3  loss 0.5  sent 4 kB");
        assert_eq!(items(&all, Some(20), 2), "epoch 1/3  loss 0.5\n  sent 4 kB");
    }

    #[test]
    fn digits_are_grouped() {
        let shown = [7, 999, 1000, 14_728_266].map(grouped);
        assert_eq!(shown, ["7", "999", "1,000", "14,728,266"]);
    }
}
