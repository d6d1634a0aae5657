//! A table being read: typed getters, and at the end an error for each key that nobody asked for.

use std::cell::{Cell, RefCell};
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use super::item::{Fault, Item, Keyed};
use super::report::{Help, Problem};
use super::tree::{Kind, Node, Place, Table};
use super::{File, Secret};

/// One table of a file. When it goes out of scope it checks itself as [`Section::finish`] does, unless something in
/// it was wrong: reading may then have stopped early.
pub struct Section<'a> {
    file: &'a File,
    source: Source<'a>,
    /// Where what is missing is missed: the table's header.
    head: Place,
    /// `filter 2 (date)`; empty where the file's line says enough.
    label: String,
    /// `output.tls`, from the nearest label or the file's top; empty there.
    path: String,
    asked: RefCell<Vec<&'static str>>,
    closed: Cell<bool>,
    problems_before: usize,
}

enum Source<'a> {
    Table(&'a Table),
    /// `codec = "plain"` for `codec = { type = "plain" }`.
    Type(&'a Node),
    Absent,
    /// Something else than a table, already reported: nothing more is missed in it.
    Wrong,
}

/// What a getter found, until it is said what absence means. With an error noted, all ways give what absence gives.
#[must_use = "say `required`, `optional` or `or`"]
pub struct Read<'s, 'a, T> {
    section: &'s Section<'a>,
    missing: String,
    help: Help,
    found: Found<T>,
}

enum Found<T> {
    Absent,
    Wrong,
    Value(T),
}

impl<T> Read<'_, '_, T> {
    /// An error at the table's header if the key is absent.
    pub fn required(self) -> Option<T> {
        match self.found {
            Found::Value(value) => Some(value),
            Found::Wrong => None,
            Found::Absent => {
                self.section.fail_place(&self.section.head, self.missing, self.help);
                None
            }
        }
    }

    pub fn optional(self) -> Option<T> {
        match self.found {
            Found::Value(value) => Some(value),
            Found::Wrong | Found::Absent => None,
        }
    }

    pub fn or(self, default: T) -> T {
        self.optional().unwrap_or(default)
    }

    pub fn or_default(self) -> T
    where
        T: Default,
    {
        self.optional().unwrap_or_default()
    }
}

impl<'a> Section<'a> {
    pub(super) fn root(file: &'a File) -> Section<'a> {
        let end = file.text.trim_end().len();
        let head = Place { span: end..end, ..Place::default() };
        Section::of(file, &file.root, String::new(), String::new(), head)
    }

    /// `node` is a table, or a text that stands for its `type`; anything else reads as an empty table.
    pub(super) fn of(file: &'a File, node: &'a Node, label: String, path: String, head: Place) -> Section<'a> {
        let source = match &node.kind {
            Kind::Table(table) => Source::Table(table),
            Kind::Text(_) => Source::Type(node),
            _ => Source::Wrong,
        };
        Section::new(file, source, label, path, head)
    }

    fn new(file: &'a File, source: Source<'a>, label: String, path: String, head: Place) -> Section<'a> {
        let problems_before = file.problem_count();
        Section {
            file,
            source,
            head,
            label,
            path,
            asked: RefCell::default(),
            closed: Cell::new(false),
            problems_before,
        }
    }

    /// Ends the reading: each key that nobody asked for is an error, with the nearest of those asked for.
    pub fn finish(self) {
        self.check_keys();
    }

    /// Says that nothing is known about the keys not asked for (the `type` that would tell is wrong).
    pub fn skip_rest(&self) {
        self.closed.set(true);
    }

    fn check_keys(&self) {
        let (false, Source::Table(table)) = (self.closed.replace(true), &self.source) else { return };
        let asked = self.asked.borrow();
        for entry in table.entries.iter().filter(|entry| !asked.contains(&entry.key.as_str())) {
            if asked.iter().any(|key| super::is_secret_name(key) && super::nearest(&entry.key, &[key]).is_some()) {
                // a secret under a slip of the fingers is one all the same
                self.file.hide(&entry.value.place);
            }
            let message = format!("unknown key `{}`{}", entry.key, self.in_path());
            self.fail_place(&entry.place, message, Help::names(&entry.key, &asked));
        }
    }

    fn in_path(&self) -> String {
        match (self.path.is_empty(), self.label.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!(" in `[{}]`", self.path),
            (false, false) => format!(" in `{}`", self.path),
        }
    }

    /// The table's header (or the file's end): where to point when there is no key to point at.
    pub fn head(&self) -> Place {
        self.head.clone()
    }

    /// Where the key's value is, or the table's header: kept for checks that come later.
    pub fn place(&self, key: &str) -> Place {
        self.lookup(key).map_or_else(|| self.head(), |node| node.place.clone())
    }

    /// Notes an error at the key's value, or at the table's header when the key is absent.
    pub fn fail_at(&self, key: &str, message: impl Into<String>, help: impl Into<Help>) {
        self.fail_place(&self.place(key), message, help);
    }

    pub fn warn_at(&self, key: &str, message: impl Into<String>, help: impl Into<Help>) {
        self.file.push(Problem::warning(self.place(key), self.labelled(message)).help(help));
    }

    /// Notes an error at a place kept from reading.
    pub fn fail_place(&self, place: &Place, message: impl Into<String>, help: impl Into<Help>) {
        self.file.fail(place, self.labelled(message), help);
    }

    fn labelled(&self, message: impl Into<String>) -> String {
        match self.label.as_str() {
            "" => message.into(),
            label => format!("{label}: {}", message.into()),
        }
    }

    /// `filter 2 (date)`, for messages and logs; empty for a table that there is one of.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether the key is there at all.
    pub fn has(&self, key: &'static str) -> bool {
        self.ask(key);
        self.lookup(key).is_some()
    }

    fn ask(&self, key: &'static str) {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
    }

    fn lookup(&self, key: &str) -> Option<&'a Node> {
        match &self.source {
            Source::Table(table) => table.get(key).map(|entry| &entry.value),
            Source::Type(node) => (key == "type").then_some(*node),
            Source::Absent | Source::Wrong => None,
        }
    }

    fn child_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get<'s, T>(
        &'s self,
        key: &'static str,
        help: impl Into<Help>,
        get: impl FnOnce(Item<'a>) -> Option<T>,
    ) -> Read<'s, 'a, T> {
        self.ask(key);
        let found = match self.lookup(key) {
            None if matches!(self.source, Source::Wrong) => Found::Wrong,
            None => Found::Absent,
            Some(node) => {
                let item = Item::new(self.file, node, key.to_owned(), self.label.clone(), self.child_path(key));
                get(item).map_or(Found::Wrong, Found::Value)
            }
        };
        Read { section: self, missing: format!("missing key `{key}`{}", self.in_path()), help: help.into(), found }
    }

    /// The value unread, for what the other getters cannot express; read it with [`Item`]'s own.
    pub fn item(&self, key: &'static str) -> Read<'_, 'a, Item<'a>> {
        self.get(key, (), Some)
    }

    pub fn text(&self, key: &'static str) -> Read<'_, 'a, String> {
        self.get(key, "wanted: a string", |item| item.text())
    }

    /// A string, or an array of strings.
    pub fn texts(&self, key: &'static str) -> Read<'_, 'a, Vec<String>> {
        self.get(key, "wanted: a string or an array of strings", |item| item.texts())
    }

    /// A table of strings, in the order written.
    pub fn pairs(&self, key: &'static str) -> Read<'_, 'a, Vec<(String, String)>> {
        self.get(key, "wanted: a table of strings", |item| item.pairs())
    }

    /// A table whose keys are the user's own, in the order written.
    pub fn entries(&self, key: &'static str) -> Read<'_, 'a, Vec<Keyed<'a>>> {
        self.get(key, "wanted: a table", |item| item.entries())
    }

    /// An array of anything.
    pub fn items(&self, key: &'static str) -> Read<'_, 'a, Vec<Item<'a>>> {
        self.get(key, "wanted: an array", |item| item.items())
    }

    pub fn path(&self, key: &'static str) -> Read<'_, 'a, PathBuf> {
        self.get(key, "wanted: a path", |item| item.path())
    }

    /// A text that is shown nowhere, not even in the line that an error shows.
    pub fn secret(&self, key: &'static str) -> Read<'_, 'a, Secret> {
        self.get(key, "wanted: a string", |item| item.secret())
    }

    pub fn bool(&self, key: &'static str) -> Read<'_, 'a, bool> {
        self.get(key, "wanted: true or false", |item| item.bool())
    }

    /// A whole number within `range`, which should fit `T`.
    pub fn integer<T: TryFrom<i64>>(&self, key: &'static str, range: impl RangeBounds<i64>) -> Read<'_, 'a, T> {
        self.get(key, "wanted: an integer", |item| item.integer(range))
    }

    /// A number within `range`; an integer will do.
    pub fn float(&self, key: &'static str, range: impl RangeBounds<f64>) -> Read<'_, 'a, f64> {
        self.get(key, "wanted: a number", |item| item.float(range))
    }

    /// `"90s"`, `"10m"`, `"60d"`, `"500ms"`.
    pub fn duration(&self, key: &'static str, range: impl RangeBounds<Duration>) -> Read<'_, 'a, Duration> {
        self.get(key, "wanted: a duration, as in \"90s\"", |item| item.duration(range))
    }

    /// `"1MiB"`, `"64kB"`, or an integer of bytes.
    pub fn bytes(&self, key: &'static str, range: impl RangeBounds<u64>) -> Read<'_, 'a, u64> {
        self.get(key, "wanted: a size, as in \"1MiB\"", |item| item.bytes(range))
    }

    /// One of a few names, each with what it stands for.
    pub fn one_of<T: Clone>(&self, key: &'static str, choices: &[(&str, T)]) -> Read<'_, 'a, T> {
        self.get(key, Help::allowed(choices.iter().map(|(name, _)| *name)), |item| item.one_of(choices))
    }

    /// A text in a form of its own; `parse` says what is wrong with it, and where if it knows ([`Fault`]).
    pub fn parsed<T, E: Into<Fault>>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Read<'_, 'a, T> {
        self.get(key, "wanted: a string", |item| item.parsed(parse))
    }

    /// The same for a string or an array of strings.
    pub fn parsed_each<T, E: Into<Fault>>(
        &self,
        key: &'static str,
        parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Read<'_, 'a, Vec<T>> {
        self.get(key, "wanted: a string or an array of strings", |item| item.parsed_each(parse))
    }

    pub fn table(&self, key: &'static str) -> Read<'_, 'a, Section<'a>> {
        let mut read = self.get(key, (), |item| item.table());
        if self.label.is_empty() {
            read.missing = format!("missing table `[{}]`", self.child_path(key));
        }
        read
    }

    /// The table, or an empty one in its place: all its defaults, and its required keys missed.
    pub fn table_or_empty(&self, key: &'static str) -> Section<'a> {
        let read = self.table(key);
        let source = match read.found {
            Found::Value(section) => return section,
            Found::Absent => Source::Absent,
            Found::Wrong => Source::Wrong,
        };
        Section::new(self.file, source, self.label.clone(), self.child_path(key), self.head())
    }

    /// An array of tables (`[[filter]]`), each labelled with its number and `type`; an empty one counts as absent.
    pub fn tables(&self, key: &'static str) -> Read<'_, 'a, Vec<Section<'a>>> {
        let mut read = self.get(key, (), |item| item.tables());
        read.missing = format!("missing `[[{}]]`", self.child_path(key));
        if matches!(&read.found, Found::Value(tables) if tables.is_empty()) {
            read.found = Found::Absent;
        }
        read
    }

    /// A table with a `type`, or just the name of the type (`codec = "plain"`).
    pub fn component(&self, key: &'static str) -> Read<'_, 'a, Section<'a>> {
        self.get(key, "wanted: a name, or a table with a `type`", |item| item.component())
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.file.problem_count() == self.problems_before {
            self.check_keys();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Report;

    /// Reads `text` and compares the messages, each with its line and column.
    fn check(text: &str, expected: &[&str], read: impl FnOnce(&Section<'_>)) {
        let env = |name: &str| matches!(name, "N").then(|| "7".to_owned());
        let file = File::parse("a", text.as_bytes(), &[], &env);
        read(&file.root());
        let report: Report = file.report();
        let shown = report.render(false);
        let heads: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("a:")).collect();
        assert_eq!(heads, expected, "{text}");
    }

    #[test]
    fn values_come_as_written() {
        let text = "a = 'x'\nb = ['x', 'y']\nc = true\nd = 5\ne = 5\nf = '90s'\ng = '64kB'\nh = 12\ni = '${N}'\nj = { z = '1', a = '2' }\nk = 'two'\n";
        check(text, &[], |t| {
            assert_eq!(t.text("a").required().as_deref(), Some("x"));
            assert_eq!(t.texts("a").required(), Some(vec!["x".to_owned()]));
            assert_eq!(t.texts("b").required(), Some(vec!["x".to_owned(), "y".to_owned()]));
            assert!(t.bool("c").or(false));
            assert_eq!(t.integer::<u8>("d", ..).required(), Some(5));
            assert_eq!(t.float("e", ..).required(), Some(5.0));
            assert_eq!(t.duration("f", ..).required(), Some(Duration::from_secs(90)));
            assert_eq!(t.bytes("g", ..).required(), Some(64_000));
            assert_eq!(t.bytes("h", ..).required(), Some(12));
            assert_eq!(t.integer("i", ..).or(0), 7);
            let pairs = t.pairs("j").required().unwrap_or_default();
            assert_eq!(pairs, [("z".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
            assert_eq!(t.one_of("k", &[("one", 1), ("two", 2)]).required(), Some(2));
            assert_eq!(t.text("absent").optional(), None);
            assert_eq!(t.integer("absent", ..).or(3), 3);
            assert!(t.has("a") && !t.has("absent"));
            assert_eq!(t.item("j").required().and_then(|j| j.json()), Some(serde_json::json!({"z": "1", "a": "2"})));
        });
    }

    #[test]
    fn numbers_fit_their_type() {
        check("a = 300\nb = -1", &["1:5: `a` is out of range", "2:5: `b` is out of range"], |t| {
            assert_eq!(t.integer::<u8>("a", ..).optional(), None);
            assert_eq!(t.integer::<u64>("b", ..).optional(), None);
        });
    }

    #[test]
    fn a_section_checks_its_keys_when_it_ends() {
        check("[a]\nb = 1", &["2:1: unknown key `b` in `[a]`"], |t| drop(t.table("a").required()));
        check("[a]\nb = 1", &["1:2: unknown key `a`"], |_| {});
        check("[a]\nb = 1", &[], |t| t.table("a").required().iter().for_each(Section::skip_rest));
        // Reading that stopped at an error is not blamed for what it did not ask for.
        check("[a]\nb = 1", &["1:1: missing key `c` in `[a]`"], |t| {
            let a = t.table("a").required();
            a.and_then(|a| a.text("c").required());
        });
        check("[a]\nb = 1", &["1:1: missing key `c` in `[a]`", "2:1: unknown key `b` in `[a]`"], |t| {
            let a = t.table("a").required();
            a.iter().for_each(|a| drop(a.text("c").required()));
            a.into_iter().for_each(Section::finish);
        });
    }

    #[test]
    fn places_and_warnings() {
        check("[a]\nb = 1", &["1:1: second", "2:5: third", "2:5: warning: first"], |t| {
            let a = t.table_or_empty("a");
            a.warn_at("b", "first", ());
            a.fail_at("c", "second", "a note");
            let place = a.place("b");
            a.fail_place(&place, "third", ());
            assert_eq!(a.label(), "");
            assert_eq!(a.integer("b", ..).or(0), 1);
        });
    }

    #[test]
    fn a_component_is_a_name_or_a_table() {
        for text in ["codec = 'json'", "codec = { type = 'json' }", "[codec]\ntype = 'json'"] {
            check(text, &[], |t| {
                let codec = t.component("codec").required();
                assert_eq!(codec.as_ref().map(Section::label), Some("codec (json)"));
                assert_eq!(codec.and_then(|codec| codec.text("type").required()).as_deref(), Some("json"));
            });
        }
    }

    #[test]
    fn components_are_a_list_of_functions() {
        type Build = fn(&Section<'_>) -> Option<u32>;
        const KINDS: &[(&str, Build)] = &[("one", |t| t.integer("x", ..).required()), ("two", |_| Some(2))];
        let text = "[[f]]\ntype = 'two'\n[[f]]\ntype = 'thre'\nx = 1\n[[f]]\ntype = 'one'\ny = 1\n";
        let expected = [
            "4:8: f 2 (thre): `type`: unknown value \"thre\"",
            "6:1: f 3 (one): missing key `x`",
            "8:1: f 3 (one): unknown key `y`",
        ];
        check(text, &expected, |root| {
            for t in root.tables("f").or_default() {
                match t.one_of("type", KINDS).required() {
                    Some(build) => drop(build(&t)),
                    None => t.skip_rest(),
                }
                t.finish();
            }
        });
    }
}
