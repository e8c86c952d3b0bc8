//! Plain text and wikitext, for language models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{self, Place};
use super::language::{FIRST_WORD, Windows};
use super::words::{self, END, Tokeniser, UNKNOWN, Vocabulary};
use super::{Data, DataError, Dataset, Level, Objective, Request, Task};

/// The usual size of the vocabulary of a small text, and of wikitext.
const PLAIN_VOCABULARY: usize = 10_000;
const WIKI_VOCABULARY: usize = 50_000;

/// Reads a text: a file, or all files of a folder that end in `.txt`, in the order of their names. The last tenth is the test set.
pub(crate) fn open(request: &Request) -> Result<Data, DataError> {
    let tokeniser = match request.level {
        Level::Words => Tokeniser::Prose,
        Level::Characters => Tokeniser::Characters,
    };
    let mut text = String::new();
    for path in plain_files(request)? {
        text.push_str(&tokeniser.clean(disk::text(&path)?));
    }
    let (train, test) = text.split_at(nine_tenths(&text));
    windows("text", request, tokeniser, PLAIN_VOCABULARY, train, test)
}

/// Reads wikitext: the training and the test text, which come cut into tokens.
pub(crate) fn open_wiki(request: &Request) -> Result<Data, DataError> {
    const FOLDERS: [&str; 4] = [
        "wikitext-2",
        "wikitext-2-raw",
        "wikitext-103",
        "wikitext-103-raw",
    ];
    const TRAIN: [&str; 2] = ["wiki.train.tokens", "wiki.train.raw"];
    const TEST: [&str; 2] = ["wiki.test.tokens", "wiki.test.raw"];
    let place = Place::find("wikitext", request, &FOLDERS, &TRAIN)?;
    let train = disk::text(&place.file(&TRAIN)?)?;
    let test = disk::text(&place.file(&TEST)?)?;
    let tokeniser = match request.level {
        Level::Words => Tokeniser::Spaced,
        Level::Characters => Tokeniser::Characters,
    };
    windows(
        "wikitext",
        request,
        tokeniser,
        WIKI_VOCABULARY,
        &train,
        &test,
    )
}

/// The usual length of a window.
pub(crate) fn usual_length(objective: Objective) -> usize {
    match objective {
        Objective::Next => 35,
        Objective::Masked => 128,
    }
}

fn windows(
    name: &str,
    request: &Request,
    tokeniser: Tokeniser,
    vocabulary: usize,
    train: &str,
    test: &str,
) -> Result<Data, DataError> {
    let limit = words::limit(request.vocabulary, vocabulary, FIRST_WORD as usize + 1)?;
    let length = words::length(request.length, usual_length(request.objective))?;
    let special = [("<unk>", UNKNOWN), ("\n", END)];
    let vocabulary = Vocabulary::new([train].into_iter(), tokeniser, &special, limit);
    let encode = |text: &str| {
        let mut tokens = Vec::new();
        vocabulary.encode(text, tokeniser, &mut tokens);
        let found = tokens.len();
        let windows = Windows::new(tokens, length, vocabulary.len(), request.objective);
        if windows.is_empty() || vocabulary.len() <= FIRST_WORD as usize {
            return Err(DataError::Request(format!(
                "a part of {name} has only {found} tokens: expected at least one sequence of {length}; use a longer text or a \
                 shorter length"
            )));
        }
        Ok(Arc::new(windows))
    };
    Ok(Data {
        task: Task::Language {
            length,
            vocabulary: vocabulary.len(),
        },
        train: encode(train)?,
        test: encode(test)?,
        floor: None,
    })
}

/// The files of a plain text, which may be given as a file or a folder.
fn plain_files(request: &Request) -> Result<Vec<PathBuf>, DataError> {
    if let Some(file) = request.dir.as_deref().filter(|dir| dir.is_file()) {
        return Ok(vec![file.to_owned()]);
    }
    let place = Place::find("text", request, &[], &[])?;
    let named = place.folder().join("text");
    let below = disk::folders(&named)?
        .into_iter()
        .map(|name| named.join(name));
    let mut found = Vec::new();
    for folder in [place.folder().to_owned(), named.clone()]
        .into_iter()
        .chain(below)
    {
        found.extend(text_files(&folder)?);
        // What lies side by side in folders below belongs together; what lies above comes alone.
        if !found.is_empty() && folder.parent() != Some(&named) {
            return Ok(found);
        }
    }
    if found.is_empty() {
        Err(place.missing("*.txt"))
    } else {
        Ok(found)
    }
}

fn text_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let names = disk::names(folder)?;
    let files = names
        .iter()
        .filter(|name| name.ends_with(".txt"))
        .map(|name| folder.join(name));
    Ok(files.filter(|path| path.is_file()).collect())
}

/// Where the last tenth of a text begins: after the end of a line if there is one, else between two characters.
fn nine_tenths(text: &str) -> usize {
    let at = text.floor_char_boundary(text.len() / 10 * 9);
    if text[..at].ends_with('\n') {
        return at;
    }
    match text[at..].find('\n') {
        // A text of a few long lines would lose its last tenth to the line that it is in.
        Some(end) if end < text.len() / 20 => at + end + 1,
        _ => at,
    }
}
