//! Reading pages as a reader does: paragraphs, spans of code, commands, links.

use std::path::{Path, PathBuf};

/// A page, by its path from the root of the project.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every page of the project, wherever it lies.
pub(crate) fn pages() -> Vec<Page> {
    let paths = files(&["md"]);
    let page = |path: PathBuf| Page {
        name: path
            .strip_prefix(root())
            .expect("below the root")
            .display()
            .to_string(),
        text: std::fs::read_to_string(&path).expect("text"),
        path,
    };
    let pages: Vec<Page> = paths.into_iter().map(page).collect();
    for name in ["README.md", "DESIGN.md", "docs/README.md", "docs/papers.md"] {
        assert!(pages.iter().any(|page| page.name == name), "no {name}");
    }
    pages
}

/// The pages that tell how things are. The changelog tells how they were.
pub(crate) fn current_pages() -> impl Iterator<Item = Page> {
    pages()
        .into_iter()
        .filter(|page| page.name != "CHANGELOG.md")
}

/// The files of the project that end so, sorted.
pub(crate) fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    find(&root(), extensions, &mut paths);
    paths.sort();
    paths
}

fn find(folder: &Path, extensions: &[&str], paths: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().expect("a folder of the project") {
        let entry = entry.expect("a file");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // What is built, downloaded or hidden is not of the project. Links are not followed.
        let is_ours = !name.starts_with('.') && !matches!(&*name, "target" | "build" | "dist");
        let extension = path.extension().unwrap_or_default();
        if entry.file_type().expect("a type").is_dir() {
            if is_ours {
                find(&path, extensions, paths);
            }
        } else if extensions.iter().any(|wanted| extension == *wanted) {
            paths.push(path);
        }
    }
}

/// The text between two marks, wherever it occurs.
pub(crate) fn between<'a>(
    text: &'a str,
    open: &'a str,
    close: char,
) -> impl Iterator<Item = &'a str> {
    text.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split(close).next())
}

/// What a page is made of.
pub(crate) enum Part {
    /// A paragraph, a heading, a point of a list or a row of a table, as one line.
    Words(String),
    /// A line of code, and the language of its block; none for a block that is set in by spaces.
    Code(String, Option<String>),
}

/// The parts of a page in order.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut words = String::new();
    let mut fence = None;
    let mut before_is_empty = true;
    let mut is_set_in = false;
    for line in text.lines() {
        let start = line.trim_start();
        let is_fence = start.starts_with("```");
        is_set_in = fence.is_none()
            && line.starts_with("    ")
            && (before_is_empty || is_set_in)
            && !start.is_empty();
        let begins_anew = is_fence || is_set_in || start.is_empty() || starts_a_part(start);
        if begins_anew && !words.is_empty() && fence.is_none() {
            parts.push(Part::Words(std::mem::take(&mut words)));
        }
        match (is_fence, &fence) {
            (true, Some(_)) => fence = None,
            (true, None) => fence = Some(start.trim_start_matches('`').to_owned()),
            (false, Some(language)) => {
                parts.push(Part::Code(start.to_owned(), Some(language.clone())));
            }
            (false, None) if is_set_in => parts.push(Part::Code(start.to_owned(), None)),
            (false, None) => {
                words += start;
                words.push(' ');
            }
        }
        before_is_empty = start.is_empty();
    }
    parts.push(Part::Words(words));
    parts
}

/// Rows of tables, headings and points of lists.
fn starts_a_part(line: &str) -> bool {
    ["|", "#", "- "].iter().any(|mark| line.starts_with(mark))
}

/// The paragraphs and other words of a page.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    parts(text).into_iter().filter_map(|part| match part {
        Part::Words(words) => Some(words),
        Part::Code(..) => None,
    })
}

/// The spans of code within words.
pub(crate) fn spans(text: &str) -> Vec<String> {
    let of = |words: String| -> Vec<String> {
        let spans = words.split('`').skip(1).step_by(2);
        spans.map(str::to_owned).collect()
    };
    words(text).flat_map(of).collect()
}

/// The commands of blocks of `sh`, of transcripts (`$ ..`) and of blocks that are set in; a continued one as one line, comments
/// gone.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = String::new();
    for part in parts(text) {
        let Part::Code(line, language) = part else {
            open.clear();
            continue;
        };
        let line = match language.as_deref() {
            Some("text") => line.strip_prefix("$ ").map(str::to_owned),
            Some(language) if !language.starts_with("sh") => None,
            _ if line.starts_with('#') => None,
            _ => line.split(" #").next().map(str::to_owned),
        };
        let Some(line) = line else { continue };
        match line.trim_end().strip_suffix('\\') {
            Some(start) => open.push_str(start),
            None => found.push(std::mem::take(&mut open) + line.trim_end()),
        }
    }
    found.retain(|command| !command.is_empty());
    found
}

/// The targets of links that do not lead elsewhere.
pub(crate) fn links(words: &str) -> impl Iterator<Item = &str> {
    between(words, "](", ')').filter(|target| !target.contains("://"))
}

/// A heading's name in a link.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

pub(crate) fn has_heading(path: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(path).expect("text");
    words(&text)
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}
