//! Documents: generated ones are current, links lead somewhere, decisions are listed.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a page stands, and who writes it.
type Page = (&'static str, fn() -> Result<String, String>);

const GENERATED: [Page; 5] = [
    ("docs/configuration.md", || {
        Ok(ngit_grasp::config::reference::markdown())
    }),
    ("packaging/ngit-grasp.env", || {
        ngit_grasp::config::file::packaged().map_err(|error| error.to_string())
    }),
    ("docs/reference/bounds.md", || {
        Ok(ngit_grasp::config::bounds::markdown())
    }),
    ("docs/reference/cli.md", || {
        Ok(ngit_grasp::cli::reference::markdown())
    }),
    ("docs/reference/metrics.md", || {
        ngit_grasp::metrics::reference::markdown().map_err(|error| error.to_string())
    }),
];

/// Directories whose documents are looked at.
const DIRECTORIES: [&str; 6] = [
    "",
    "docs",
    "docs/adr",
    "docs/howto",
    "docs/reference",
    "packaging",
];

pub fn generated(root: &Path) -> Vec<String> {
    let current = |(path, page): &Page| {
        let found = fs::read_to_string(root.join(path)).unwrap_or_default();
        page().is_ok_and(|text| text == found)
    };
    GENERATED
        .iter()
        .filter(|page| !current(page))
        .map(|(path, _)| format!("{path} is not what the code says: run `cargo xtask docs`"))
        .collect()
}

pub fn write_generated(root: &Path) -> std::io::Result<()> {
    for (path, page) in GENERATED {
        let path = root.join(path);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(path, page().map_err(std::io::Error::other)?)?;
    }
    Ok(())
}

/// What packages bring beside the binary, where their metadata expects it.
pub fn write_dist(root: &Path) -> std::io::Result<()> {
    use ngit_grasp::cli::reference;

    let dir = root.join("packaging/generated");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("ngit-grasp.1"), reference::man())?;
    for shell in reference::shells() {
        let name = format!("ngit-grasp.{shell}");
        fs::write(dir.join(name), reference::completions(shell))?;
    }
    Ok(())
}

/// Every relative link of every document points to a file that exists.
pub fn links(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for document in documents(root) {
        let text = fs::read_to_string(&document).unwrap_or_default();
        let dir = document.parent().unwrap_or(root);
        if text.contains("PLACEHOLDER") {
            problems.push(format!(
                "{}: something is still to be written",
                document.display()
            ));
        }
        for target in targets(&text) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !dir.join(path).exists() {
                let name = document.strip_prefix(root).unwrap_or(&document);
                problems.push(format!("{}: {target}", name.display()));
            }
        }
    }
    problems
}

/// Every file in docs/adr is named in its index.
pub fn decisions(root: &Path) -> Vec<String> {
    let dir = root.join("docs/adr");
    let index = fs::read_to_string(dir.join("README.md")).unwrap_or_default();
    let listed = |path: &Path| {
        path.file_name()
            .is_some_and(|name| index.contains(&*name.to_string_lossy()))
    };
    let all = markdown_in(&dir);
    let missing = all
        .iter()
        .filter(|path| !path.ends_with("README.md") && !listed(path));
    missing
        .map(|path| format!("{} is not in docs/adr/README.md", path.display()))
        .collect()
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let dirs = DIRECTORIES.iter().map(|dir| root.join(dir));
    dirs.flat_map(|dir| markdown_in(&dir)).collect()
}

fn markdown_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    files
}

/// What stands in `](...)`, without links to other places.
fn targets(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| {
            !target.contains("://") && !target.starts_with('#') && !target.starts_with("mailto:")
        })
        .collect()
}
