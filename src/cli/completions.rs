//! `mortise completions`: what a shell needs to complete commands, flags and values.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;

/// Write completions for a shell
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 written, 1 standard output cannot be written.\n\nExamples:\n  mortise completions bash > /etc/bash_completion.d/mortise\n  source <(mortise completions zsh)"
)]
pub(super) struct CompletionsArgs {
    /// Shell that they are for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// # Errors
/// Standard output cannot be written.
pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(&script(args.shell))
        .context("standard output")
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mortise", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_learns_every_command() {
        let commands = Cli::command();
        let names: Vec<_> = commands
            .get_subcommands()
            .map(|each| each.get_name())
            .collect();
        assert!(names.contains(&"simulate"), "{names:?}");
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for name in &names {
                assert!(script.contains(name), "{shell} does not know {name}");
            }
        }
    }
}
