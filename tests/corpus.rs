//! The corpora of the fuzz targets, and what these have found, through the properties that they fuzz.

mod properties;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return BTreeSet::new() };
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect()
}

/// Replays what is kept of a target, at least `least` files.
fn replay(target: &str, least: usize) {
    let (_, property) = properties::ALL.iter().find(|(name, _)| *name == target).expect("a property of this name");
    let mut count = 0;
    for kept in ["corpus", "found"] {
        let folder = folder(kept).join(target);
        for name in names(&folder) {
            // the last one said is the one that fails
            println!("fuzz/{kept}/{target}/{name}");
            property(&std::fs::read(folder.join(&name)).expect("a file"));
            count += 1;
        }
    }
    assert!(count >= least, "only {count} files of {target}");
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), 5);
            }
        )*

        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

targets!(
    bulk_answers,
    codecs,
    conditions,
    date_patterns,
    dead_letters,
    json_text,
    pipeline_file,
    positions,
    regexps,
    spool,
    templates,
);

#[test]
fn every_target_has_its_property_and_is_replayed() {
    let of = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    let wanted = of(&properties::ALL.map(|(name, _)| name));
    assert_eq!(of(REPLAYED), wanted);
    assert_eq!(names(&folder("corpus")), wanted);
    assert!(names(&folder("found")).is_subset(&wanted));
    let targets = names(&folder("fuzz_targets"));
    assert_eq!(targets.iter().map(|name| name.trim_end_matches(".rs").to_string()).collect::<BTreeSet<_>>(), wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Lines put together by a rule, however they come, with lines that are too long among them.
    #[test]
    fn records_of_several_lines(
        codec in 11..17_usize,
        line_bytes_max in prop_oneof![Just(8_usize), Just(40), Just(1 << 20)],
        sizes in prop::collection::vec(1..20_usize, 1..4),
        lines in prop::collection::vec(("( |\t|\u{feff})?[ab{}\"é]{0,9}", prop_oneof!["", "", "\\\\", "\r", "}"]), 0..24),
        has_end in any::<bool>(),
    ) {
        let lines: Vec<String> = lines.into_iter().map(|(line, end)| line + &end).collect();
        let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
        let end = if has_end { "\n" } else { "" };
        let text = format!("{codec} {line_bytes_max} {}\n{}{end}", sizes.join(" "), lines.join("\n"));
        properties::codecs::check(text.as_bytes());
    }
}

/// The targets are built with the nightly toolchain and by `./prove` alone: what the properties use must be there too.
#[test]
fn the_targets_have_what_the_properties_use() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = |path: &str, tables: &[&str]| -> BTreeSet<String> {
        let manifest: toml::Table = std::fs::read_to_string(top.join(path)).unwrap().parse().unwrap();
        let tables = tables.iter().filter_map(|table| manifest.get(*table)?.as_table());
        tables.flat_map(|table| table.keys().map(|name| name.replace('-', "_"))).collect()
    };
    let ours = packages("Cargo.toml", &["dependencies", "dev-dependencies"]);
    let theirs = packages("fuzz/Cargo.toml", &["dependencies"]);
    for file in names(&top.join("tests/properties")) {
        let text = std::fs::read_to_string(top.join("tests/properties").join(&file)).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
        let named: BTreeSet<&str> = words.filter_map(|word| Some(word.split_once("::")?.0)).collect();
        let missing: Vec<&&str> =
            named.iter().filter(|name| ours.contains(**name) && !theirs.contains(**name)).collect();
        assert!(missing.is_empty(), "{file} uses {missing:?}, which fuzz/Cargo.toml does not name");
    }
}
