//! The file of --config.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

use super::config::Config;
use crate::output::bad_request;

/// More than any configuration has.
const MAX_BYTES: u64 = 1 << 20;

/// The options of a file.
pub(super) fn read(path: &Path) -> anyhow::Result<toml::Table> {
    let text = text(path).map_err(|error| in_file(path, &error))?;
    parse(&text).map_err(|error| in_file(path, &error))
}

/// The options of a text; the complaint is one line.
pub(super) fn parse(text: &str) -> Result<toml::Table, String> {
    let mut file: toml::Table = toml::from_str(text).map_err(|error| one_line(&error))?;
    as_published(&mut file)?;
    // Checked alone first, so that a complaint is about the file.
    Config::deserialize(file.clone()).map_err(|error| one_line(&error))?;
    Ok(file)
}

/// The text of a file, of at most [`MAX_BYTES`]: some files never end.
fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("longer than {MAX_BYTES} bytes, which no configuration is");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Other names of options, as flags have them, and what they are here.
const SPELLINGS: [(&str, &str); 5] = [
    ("nworkers", "workers"),
    ("epochs", "max-epochs"),
    ("optimizer", "optimiser"),
    ("learning-rate", "lr"),
    ("model", "dnn"),
];

/// Takes the published names of options, and the usual ones.
fn as_published(file: &mut toml::Table) -> Result<(), &'static str> {
    use toml::Value::{Boolean, String};
    for (spelling, name) in SPELLINGS {
        if let Some(value) = file.remove(spelling) {
            file.entry(name).or_insert(value);
        }
    }
    let compression = match file.remove("compression") {
        None => None,
        Some(Boolean(on)) => Some(on),
        Some(_) => return Err("compression is true or false"),
    };
    let compressor = match file.remove("compressor") {
        None => None,
        Some(String(name)) => Some(name),
        Some(_) => return Err("compressor is the name of a method, in quotes"),
    };
    let method = match (compression, compressor) {
        (None, None) => None,
        (Some(true), name) => Some(name.unwrap_or_else(|| "spardl".to_owned())),
        (None | Some(false), _) => Some("dense".to_owned()),
    };
    if let Some(method) = method {
        file.entry("method").or_insert(String(method));
    }
    Ok(())
}

fn in_file(path: &Path, error: &impl std::fmt::Display) -> anyhow::Error {
    bad_request(format!("--config {}: {}", path.display(), one_line(error)))
}

/// The parser's complaint without its drawing of the place.
pub(super) fn one_line(error: &impl std::fmt::Display) -> String {
    // "3 | lr = x", "  |", "  |      ^"
    let is_drawing = |line: &&str| {
        let margin = line.split_once('|').map(|(margin, _)| margin.trim());
        margin.is_some_and(|margin| margin.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let words = lines.filter(|line| !line.is_empty() && !is_drawing(line));
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::args::TrainArgs;
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_read_up_to_a_limit() {
        let error = read(Path::new("/dev/zero")).expect_err("too long");
        let text = error.to_string();
        assert!(text.contains("longer than 1048576 bytes"), "{text}");
    }

    #[test]
    fn a_complaint_about_a_file_is_one_line_that_says_what_is_wrong() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let refuse = |text: &str| {
            std::fs::write(file.path(), text).expect("written");
            let path = file.path().to_str().expect("text");
            let args = TrainArgs::parse(&["--config", path]);
            let error = args.resolve().expect_err(text).to_string();
            assert!(!error.contains('\n') && !error.contains('^'), "{error}");
            error
        };
        assert!(refuse("lr = \"a|b\"").contains("\"a|b\", expected f64; in `lr`"));
        let syntax = refuse("seed = 1\nlr = = 2 | 3");
        assert!(
            syntax.contains("at line 2") && !syntax.contains("2 | lr"),
            "{syntax}"
        );
        assert!(refuse("compression = 3").contains("compression is true or false"));
        let both = refuse("compression = 3\ncompressor = \"gtopk\"");
        assert!(both.contains("compression is true or false"), "{both}");
        assert!(refuse("workers = 5000").contains("--workers 5000: at most 4096"));
        assert!(refuse("threads-per-worker = 2000").contains("at most 1024"));
        assert!(refuse("compressor = 3").contains("compressor is the name"));
    }
}
