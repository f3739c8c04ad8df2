//! `mortise man`: manual pages, one for each command.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, line};

/// Write manual pages
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 written, 1 a file cannot be written.\n\nExamples:\n  mortise man | man -l -\n  mortise man --out /usr/local/share/man/man1"
)]
pub(super) struct ManArgs {
    /// Directory for one page of each command; without it, the first page goes to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// # Errors
/// A page cannot be written.
pub(super) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let Some(directory) = &args.out else {
        let mut page = Vec::new();
        Man::new(commands())
            .render(&mut page)
            .context("the manual page")?;
        return std::io::stdout()
            .write_all(&page)
            .context("standard output");
    };
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let count = write_pages(&commands(), directory)?;
    line(&format!("{count} pages in {}", directory.display()));
    Ok(())
}

/// All commands, with the names that their pages have: `mortise-manifests-crds`.
fn commands() -> clap::Command {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    all
}

/// Writes the page of a command and those of its subcommands. Returns how many.
fn write_pages(command: &clap::Command, directory: &Path) -> anyhow::Result<usize> {
    let page = Man::new(command.clone());
    let path = directory.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).context("a manual page")?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    let below = command.get_subcommands().filter(|each| !each.is_hide_set());
    below
        .map(|each| write_pages(each, directory))
        .try_fold(1, |count, pages| Ok(count + pages?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let directory = std::env::temp_dir().join(format!("mortise-man-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let count = write_pages(&commands(), &directory).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let page = read("mortise-manifests-crds.1");
        assert!(page.contains("provider"), "{page}");
        assert!(read("mortise.1").contains("simulate"));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), count);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
