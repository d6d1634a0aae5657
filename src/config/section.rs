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
