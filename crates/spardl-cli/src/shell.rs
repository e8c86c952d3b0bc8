//! What the command line gives to the shell around it: completions, a manual page; and what a build without training says.

use clap_complete::Shell;

/// Arguments of `spardl completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell they are for.
    shell: Shell,
}

/// The completions of a shell, to stdout.
pub(crate) fn completions(args: &Completions, mut command: clap::Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "spardl", &mut text);
    crate::output::print(&String::from_utf8_lossy(&text))
}

/// The manual page, to stdout: the command, then every subcommand that is not hidden.
pub(crate) fn man(command: &clap::Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in shown {
        let name = format!("spardl {}", sub.get_name());
        let page = clap_mangen::Man::new(sub.clone().display_name(&name).bin_name(name.clone()));
        text.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
    }
    crate::output::print(&String::from_utf8_lossy(&text))
}

/// Whatever follows a subcommand that is not in this build.
#[cfg(not(feature = "train"))]
#[derive(Debug, clap::Args)]
pub(crate) struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<std::ffi::OsString>,
}

/// The subcommand is known and was left out.
#[cfg(not(feature = "train"))]
pub(crate) fn not_built_in() -> anyhow::Error {
    crate::output::bad_request(
        "training is not in this build: build without --no-default-features (cargo build --release -p spardl-cli)",
    )
}
