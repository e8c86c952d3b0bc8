//! The commits that pages name, and whether the history has them.

use std::process::Command;

use super::page::root;

/// The commits that a text names: words of 7 to 40 hexadecimal digits. One without a letter could be any number, so it counts only
/// after the word commit.
pub(crate) fn commits(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_list = false;
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        let is_hash = (7..=40).contains(&word.len())
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, 'a'..='f'));
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_mixed = digits > 0 && digits < word.len();
        if is_hash && (is_mixed || is_list) {
            found.push(word);
        } else {
            // `commits A, B and C`, `commits A to B`.
            is_list = matches!(word, "commit" | "commits")
                || is_list && matches!(word, "" | "and" | "to");
        }
    }
    found
}

/// Whether all of the history is here: not where the files came without it, or with its end only.
pub(crate) fn is_whole() -> bool {
    let shallow = git(&["rev-parse", "--is-shallow-repository"]);
    root().join(".git").exists() && shallow.as_deref() == Some("false")
}

/// Whether a commit is in the history of what is checked out.
pub(crate) fn has(commit: &str) -> bool {
    git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_some()
}

/// What git prints, if it is there and is well with the question.
pub(crate) fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
