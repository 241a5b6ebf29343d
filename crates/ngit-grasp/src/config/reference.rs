//! Writes `docs/configuration.md` from the table of settings, so that the page cannot differ
//! from the program.

use super::settings::specs;
use super::spec::Spec;
use super::value::Shape;

const INTRO: &str = "\
# Configuration

<!-- Generated from the table of settings in the code; edits here are overwritten. -->

Every setting has a default, so the server starts with nothing set. A value is taken from the
first of these places that has one:

1. the flag on the command line, such as `--domain git.example.com`,
2. the environment variable, such as `NGIT_DOMAIN=git.example.com`,
3. the same variable in a file named `.env` in the working directory, or in the file that
   `--env-file` names,
4. the default.

An empty value counts as not set, in every place and for every setting. Wrong values stop the
start, with one line for each. A variable that starts with `NGIT_` but is no setting of this
version is ignored with a warning. `ngit-grasp config` prints the values in effect and where each
came from; `ngit-grasp init` writes a file with all of them, as comments but for those that were
chosen.

In `.env`, lines are `KEY=VALUE`, with an optional `export` in front; `#` starts a comment at the
start of a line or after a space. Values may stand in single quotes, where everything is literal,
or in double quotes, where `\\\"`, `\\\\`, `\\$` and `\\n` are escapes. Nothing is expanded.

Switches are `true` or `false`; `1`, `yes`, `on`, `0`, `no` and `off` work too, and the flag alone
means `true`. Sizes are a number of bytes or carry a unit: `KiB`, `MiB`, `GiB` and `TiB` are powers
of 1024, `kB`, `MB`, `GB` and `TB` powers of 1000. Lists are separated by commas, and their flag
may be given several times.
";

/// The whole page.
pub fn markdown() -> String {
    let mut page = INTRO.to_owned();
    let mut group = "";
    for spec in specs() {
        if spec.group != group {
            group = spec.group;
            page.push_str(&format!("\n## {group}\n"));
        }
        page.push_str(&entry(spec));
    }
    page
}

fn entry(spec: &Spec) -> String {
    let flag = match (spec.secret, spec.shape) {
        (true, _) => "none, because other users of the machine can read the command line".into(),
        (false, Shape::Switch) => format!("`--{flag}`, `--{flag}=false`", flag = spec.flag),
        (false, _) => format!("`--{} <VALUE>`", spec.flag),
    };
    let default = match spec.default {
        "" => "not set".into(),
        default => format!("`{default}`"),
    };
    let (env, help, expects) = (spec.env, &spec.help, &spec.expects);
    format!("\n### `{env}`\n\n{help}\n\n- Value: {expects}\n- Default: {default}\n- Flag: {flag}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_entry_under_its_group() {
        let page = markdown();
        let mut rest = page.as_str();
        for spec in specs() {
            let heading = format!("\n### `{}`\n", spec.env);
            let (before, after) = rest.split_once(&heading).unwrap();
            assert!(page.contains(&format!("\n## {}\n", spec.group)), "{before}");
            rest = after;
        }
        assert_eq!(page.matches("\n## ").count(), 10);
    }

    #[test]
    fn an_entry_says_value_default_flag_and_meaning() {
        let expected = "\n### `NGIT_SYNC_ENABLED`\n\nFetch from other relays what belongs to the repositories here.\n\n\
            - Value: true or false\n- Default: `true`\n- Flag: `--sync-enabled`, `--sync-enabled=false`\n";
        assert!(markdown().contains(expected));
    }

    #[test]
    fn a_secret_has_no_flag() {
        assert!(!markdown().contains("--relay-owner-nsec"));
    }
}
