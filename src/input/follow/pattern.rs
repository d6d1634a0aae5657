//! Patterns of paths, looked for on a [`Disk`]: `*`, `?`, `[a-z]` within a name, and `**` for any depth of folders
//! (symbolic links to folders are not gone through there, since they may lead in circles).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Entry, Kind};

/// A path in parts.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Name(String),
    Pattern(glob::Pattern),
    AnyDepth,
}

impl Paths {
    pub fn parse(pattern: &str) -> Result<Paths, glob::PatternError> {
        let root = match pattern {
            _ if pattern.starts_with('/') => "/",
            _ if pattern.starts_with("./") => ".",
            _ => "",
        };
        let part = |part: &str| match part {
            "**" => Ok(Part::AnyDepth),
            name if !name.contains(['*', '?', '[']) => Ok(Part::Name(name.to_string())),
            pattern => glob::Pattern::new(pattern).map(Part::Pattern),
        };
        let names = pattern.split('/').filter(|name| !name.is_empty() && *name != ".");
        let mut parts: Vec<Part> = names.map(part).collect::<Result<_, _>>()?;
        if let Some(Part::AnyDepth) = parts.last() {
            parts.push(Part::Pattern(glob::Pattern::new("*")?));
        }
        Ok(Paths { root: root.into(), parts })
    }
}

/// Patterns of paths from the root on, which are the same wherever the program is started.
pub fn from_root(patterns: &[String]) -> anyhow::Result<Vec<glob::Pattern>> {
    let full = |pattern: &String| {
        let full = std::path::absolute(pattern)?;
        Ok(glob::Pattern::new(&full.to_string_lossy())?)
    };
    patterns.iter().map(full).collect()
}

/// The same of patterns that leave out; a name alone is left out wherever it is.
pub fn excluding(patterns: &[String]) -> anyhow::Result<Vec<glob::Pattern>> {
    let (names, paths): (Vec<String>, Vec<String>) = patterns.iter().cloned().partition(|it| !it.contains('/'));
    let names = names.iter().map(|name| glob::Pattern::new(name));
    let mut all = names.collect::<Result<Vec<_>, _>>()?;
    all.extend(from_root(&paths)?);
    Ok(all)
}

/// The paths that a pattern leads to, sorted by name, and the folders that could not be looked into.
pub fn find(disk: &impl Disk, pattern: &str) -> anyhow::Result<(Vec<PathBuf>, Vec<Unseen>)> {
    let (mut folders, mut found) = (Folders::default(), Vec::new());
    folders.find(disk, &Paths::parse(pattern)?, &mut found);
    found.sort();
    Ok((found, folders.failed))
}

/// Whether one of the patterns leads to a path.
pub fn leads_to(patterns: &[glob::Pattern], path: &Path) -> bool {
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    patterns.iter().any(|pattern| pattern.matches_path_with(path, options))
}

/// What another input reads.
#[derive(Clone, Debug)]
pub struct Other {
    pub input: usize,
    pub patterns: Vec<glob::Pattern>,
    pub exclude: Vec<glob::Pattern>,
}

impl Other {
    pub fn reads(&self, path: &Path) -> bool {
        leads_to(&self.patterns, path) && !leaves_out(&self.exclude, path)
    }
}

/// Whether a pattern leaves the path out; one without a slash is for the file's name alone.
pub fn leaves_out(exclude: &[glob::Pattern], path: &Path) -> bool {
    exclude.iter().any(|pattern| {
        pattern.matches_path(path)
            || !pattern.as_str().contains('/')
                && path.file_name().is_some_and(|name| pattern.matches(&name.to_string_lossy()))
    })
}

/// A folder that could not be looked into, although it is there.
pub type Unseen = (PathBuf, io::Error);

/// The folders looked into, each once.
#[derive(Debug, Default)]
pub struct Folders {
    listed: BTreeMap<PathBuf, Vec<Entry>>,
    /// Folders in which a name matters.
    pub passed: BTreeSet<PathBuf>,
    pub failed: Vec<Unseen>,
}

impl Folders {
    pub fn list(&mut self, disk: &impl Disk, folder: &Path) -> &[Entry] {
        if !self.listed.contains_key(folder) {
            let entries = disk.list(folder).unwrap_or_else(|error| {
                let quiet = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                if !quiet {
                    self.failed.push((folder.to_path_buf(), error));
                }
                Vec::new()
            });
            self.listed.insert(folder.to_path_buf(), entries);
        }
        self.listed.get(folder).map_or(&[], Vec::as_slice)
    }

    /// Adds the paths that a pattern leads to; a plain name whether or not it is there.
    pub fn find(&mut self, disk: &impl Disk, paths: &Paths, found: &mut Vec<PathBuf>) {
        self.walk(disk, &paths.root, &paths.parts, found);
    }

    fn walk(&mut self, disk: &impl Disk, folder: &Path, parts: &[Part], found: &mut Vec<PathBuf>) {
        let Some((part, rest)) = parts.split_first() else { return };
        let last = rest.is_empty();
        let mut below: Vec<PathBuf> = Vec::new();
        match part {
            Part::Name(name) if last => {
                self.passed.insert(folder.to_path_buf());
                found.push(folder.join(name));
            }
            Part::Name(name) => below.push(folder.join(name)),
            Part::AnyDepth => {
                self.passed.insert(folder.to_path_buf());
                self.walk(disk, folder, rest, found);
                let folders = self.list(disk, folder).iter().filter(|entry| entry.kind == Kind::Folder);
                let folders: Vec<PathBuf> = folders.map(|entry| folder.join(&entry.name)).collect();
                for inner in folders {
                    self.walk(disk, &inner, parts, found);
                }
            }
            Part::Pattern(pattern) => {
                self.passed.insert(folder.to_path_buf());
                let matches = |entry: &Entry| pattern.matches(&entry.name.to_string_lossy());
                let wanted = |kind: Kind| kind == Kind::Link || (kind == Kind::Folder) != last;
                let entries = self.list(disk, folder).iter().filter(|entry| wanted(entry.kind) && matches(entry));
                let paths = entries.map(|entry| folder.join(&entry.name));
                if last { found.extend(paths) } else { below.extend(paths) }
            }
        }
        for inner in below {
            self.walk(disk, &inner, rest, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::Real;
    use super::*;

    #[test]
    fn patterns_find_files() {
        let top = tempfile::tempdir().unwrap();
        for path in ["a.log", "b.txt", "x/a.log", "x/y/c.log", "x/y/.d.log"] {
            let path = top.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("x", top.path().join("link")).unwrap();
        std::os::unix::fs::symlink("..", top.path().join("x/circle")).unwrap();
        // several ways to each folder, and no end to them
        std::os::unix::fs::symlink(".", top.path().join("x/y/again")).unwrap();
        let check = |pattern: &str, want: &[&str]| {
            let pattern = format!("{}/{pattern}", top.path().display());
            let (found, failed) = find(&Real, &pattern).unwrap();
            assert!(failed.is_empty(), "{failed:?}");
            let want: Vec<PathBuf> = want.iter().map(|path| top.path().join(path)).collect();
            assert_eq!(found, want, "{pattern}");
        };
        check("*.log", &["a.log"]);
        check("a.log", &["a.log"]);
        check("none", &["none"]);
        check("none/*.log", &[]);
        check("*/*.log", &["link/a.log", "x/a.log"]);
        check("link/y/c.log", &["link/y/c.log"]);
        check("?.[lt]*", &["a.log", "b.txt"]);
        check("**/*.log", &["a.log", "x/a.log", "x/y/.d.log", "x/y/c.log"]);
        check("x/**", &["x/a.log", "x/circle", "x/y/.d.log", "x/y/again", "x/y/c.log"]);
        assert_eq!(find(&Real, "./Cargo.*l").unwrap().0, [Path::new("./Cargo.toml")]);
        assert_eq!(find(&Real, "Cargo.*l").unwrap().0, [Path::new("Cargo.toml")]);
    }

    #[test]
    fn a_name_alone_leaves_out_in_every_folder() {
        let exclude = |pattern: &str| [glob::Pattern::new(pattern).unwrap()];
        for (pattern, left_out) in [("*.gz", true), ("/var/log/a*", true), ("a", false), ("/var/*.log", false)] {
            assert_eq!(leaves_out(&exclude(pattern), Path::new("/var/log/a.gz")), left_out, "{pattern}");
        }
    }
}
