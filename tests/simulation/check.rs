//! What must hold: at each save, at the end of each life, and at the very end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceline::ack::Summary;
use serde_json::Value;

use crate::engine::Doc;
use crate::life::LETTERS;
use crate::logs::Text;
use crate::pipe::{PIPE, Piece};
use crate::scenario::{APPS, End, LETTERS_BYTES_MAX, Shape, Trouble};
use crate::session::Places;
use crate::world::{World, lock};
use crate::writer::{Kind, Line, Lines};
use onceline::input::identity::Position;

/// How a session stands when it was not cut off.
pub struct Outcome {
    /// How often each line was handed over, by its number; how many lines in all.
    pub handed: BTreeMap<u64, u64>,
    pub count: u64,
    pub summary: Summary,
    pub open: usize,
    pub is_abandoned: bool,
}

/// The letters in one file, as far as it was read.
#[derive(Default)]
struct Read {
    bytes: usize,
    letters: Vec<(u64, Of)>,
    /// Of records that are pieces of lines, as they were read.
    pieces: Vec<String>,
}

/// What was read of files of letters before, by their numbers.
#[derive(Default)]
pub struct Known(BTreeMap<u64, Read>);

/// Dead letters that are sure to stay: by the line's number, its reason and places.
pub fn letters(world: &World) -> Letters {
    letters_and_pieces(world).0
}

fn letters_and_pieces(world: &World) -> (Letters, Vec<String>) {
    let (mut letters, mut pieces) = (Letters::new(), Vec::new());
    let mut known = lock(&world.letters);
    let mut before = std::mem::take(&mut known.0);
    for (file, text) in world.disk.synced(LETTERS) {
        let read = before.remove(&file).filter(|read| read.bytes <= text.len()).unwrap_or_default();
        let read = known.0.entry(file).or_insert(read);
        read.go_on(world, &text);
        pieces.extend_from_slice(&read.pieces);
        for (n, of) in &read.letters {
            letters.entry(*n).or_default().add(of);
        }
    }
    (letters, pieces)
}

impl Of {
    /// One more of the same line.
    fn add(&mut self, other: &Of) {
        if !self.reason.is_empty() && self.reason != other.reason {
            self.reason = format!("{} and {}", self.reason, other.reason);
        } else {
            self.reason.clone_from(&other.reason);
        }
        self.places.extend(&other.places);
        self.attempts = self.attempts.max(other.attempts);
        self.is_cut |= other.is_cut;
    }
}

impl Read {
    /// Half a letter at the end is taken away before the next is written.
    fn go_on(&mut self, world: &World, text: &[u8]) {
        for line in text[self.bytes..].split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            self.bytes += line.len();
            match letter(line) {
                Some(Named::Line(n, of)) => self.letters.push((n, of)),
                Some(Named::Piece(text)) => self.pieces.push(text),
                None => {
                    world.clock.wrong(format!("a dead letter that cannot be read: {}", String::from_utf8_lossy(line)))
                }
            }
        }
    }
}

/// What a letter is of.
enum Named {
    Line(u64, Of),
    /// A piece of a line without its beginning.
    Piece(String),
}

fn letter(line: &[u8]) -> Option<Named> {
    let letter: Value = serde_json::from_slice(line).ok()?;
    let n = match &letter["event"] {
        Value::String(raw) => match number(raw) {
            Some(n) => n,
            None => return Some(Named::Piece(raw.clone())),
        },
        event => event["n"].as_u64()?,
    };
    let reason = letter["reason"].as_str()?.to_string();
    let places = [letter["source"]["offset"].as_u64()?].into();
    let (attempts, is_cut) = (letter["attempts"].as_u64()?, letter["cut"] == true);
    Some(Named::Line(n, Of { reason, places, attempts, is_cut }))
}

/// No position may pass a line that has no fate that lasts.
pub fn positions(world: &World, positions: &[Position], when: &str) {
    let lines = lock(&world.lines);
    let mut known = None;
    for position in positions {
        let texts = world.logs.texts_of(position);
        let offset = position.mark.offset;
        // of several that are alike so far, one that it is right for is enough
        let wrong = texts.iter().map(|text| wrong_place(world, &lines, *text, offset, &mut known));
        let wrong: Option<Vec<String>> = wrong.collect();
        match wrong {
            Some(wrong) if texts.is_empty() || !wrong.is_empty() => {
                let why = wrong.first().cloned().unwrap_or_else(|| "it fits no text".to_string());
                world.clock.wrong(format!("the position {offset} of {:?} {when}: {why}", position.path));
                return;
            }
            _ => {}
        }
    }
}

/// A line is handed over, of this place: of no place twice in a session, nor of a copy what was read of the original.
pub fn place(world: &World, lines: &Lines, places: &mut Places, line: &Line) {
    let Line { n, text, start, .. } = *line;
    if !places.read.insert((text, start, n)) {
        world.clock.wrong(format!("line {n} at {start} of {text:?} was read twice"));
    }
    let Some(copy) = lines.copies.get(&text).filter(|copy| copy.is_promised(world.clock.now())) else { return };
    let is_known = places.known.get(&copy.of).is_some_and(|since| *since <= copy.began);
    // an original that cannot be opened cannot be compared with
    let troubled = world.clock.faults(Trouble::OpenFails).iter().any(|time| time.end > copy.began);
    if is_known && !troubled && places.read.contains(&(copy.of, start, n)) {
        world.clock.wrong(format!("line {n} at {start} of {:?} was read again of its copy {text:?}", copy.of));
    }
}

/// The letters of one line.
#[derive(Clone, Debug, Default)]
pub struct Of {
    pub reason: String,
    places: BTreeSet<u64>,
    /// The most that one of them has.
    attempts: u64,
    is_cut: bool,
}

pub type Letters = BTreeMap<u64, Of>;

/// The reason of a line's letter, as the engine is now.
fn reason(world: &World, kind: Kind) -> Option<&'static str> {
    kind.reason().filter(|_| kind != Kind::Mapping || !world.engine.is_mended())
}

fn wrong_place(world: &World, lines: &Lines, text: Text, offset: u64, known: &mut Option<Letters>) -> Option<String> {
    for line in lines.of(text).take_while(|line| line.start < offset) {
        if line.end > offset {
            return Some(format!("it is inside line {}", line.n));
        }
        if !has_fate(world, lines, line, known.get_or_insert_with(|| letters(world))) {
            return Some(format!("it passes line {}, {:?}", line.n, line.kind));
        }
    }
    None
}

/// A fate that lasts.
fn has_fate(world: &World, lines: &Lines, line: &Line, letters: &Letters) -> bool {
    match line.kind {
        Kind::Debug => true,
        Kind::Good => is_stored(world, lines, line),
        Kind::Mapping if world.engine.is_stored(line.n) => true,
        _ => letters.contains_key(&line.n) || line.kind == Kind::Mapping && is_overtaken(world, lines, line),
    }
}

/// Every line that can be read has its fate.
pub fn is_done(world: &World) -> bool {
    let lines = lock(&world.lines);
    let letters = letters(world);
    let is_done = |line: &Line| is_free(world, &lines, line) || has_fate(world, &lines, line, &letters);
    lines.is_over && (world.pipe.is_done() || !world.scenario.has_stdin) && lines.all.iter().all(is_done)
}

/// The line may have no fate: it was destroyed, or read by a process that was killed, or by two, half and half.
fn is_free(world: &World, lines: &Lines, line: &Line) -> bool {
    lines.lost.contains(&line.n) || line.text == PIPE && world.pipe.is_cut(line.start..line.end)
}

/// The line is a document, or was, or a newer one of its key is.
fn is_stored(world: &World, lines: &Lines, line: &Line) -> bool {
    world.engine.is_stored(line.n) || is_overtaken(world, lines, line)
}

/// A newer line of its key is a document, so that this one may be stale: put off once, it is not sent again.
fn is_overtaken(world: &World, lines: &Lines, line: &Line) -> bool {
    let is_newer = |other: &Line| {
        other.key == line.key
            && (other.start, other.n) > (line.start, line.n)
            && other.kind == Kind::Good
            && world.engine.is_stored(other.n)
    };
    world.scenario.shape == Shape::Key && lines.of(line.text).any(is_newer)
}

/// Counts add up at any time: nothing has two fates.
pub fn counts(world: &World, summary: &Summary) {
    let fates = summary.tally.fates() + summary.dead_lettered;
    if fates > summary.tally.events_in {
        world.clock.wrong(format!("{fates} fates of {} events", summary.tally.events_in));
    }
}

pub fn end_of_session(world: &World, outcome: &Outcome) {
    let Outcome { handed, count, summary, open, is_abandoned } = outcome;
    counts(world, summary);
    if summary.tally.events_in != *count {
        world.clock.wrong(format!("{count} lines were handed over, {} events counted", summary.tally.events_in));
    }
    if !is_abandoned && (summary.unsettled() > 0 || *open > 0) {
        world.clock.wrong(format!("it ended with {} events and {open} batches unsettled", summary.unsettled()));
    }
    if summary.unsettled() == 0 && *open > 0 {
        world.clock.wrong(format!("all events have their fate, but {open} batches are open"));
    }
    for (n, told) in world.engine.told() {
        let times = handed.get(&n).copied().unwrap_or_default();
        if told > times {
            world.clock.wrong(format!("line {n} was read {times} times and answered for {told} times: sent again"));
        }
    }
}

/// When all is done: every complete line has exactly one fate.
pub fn fates(world: &World) {
    let lines = lock(&world.lines);
    let (letters, pieces) = letters_and_pieces(world);
    let is_cut = |line: &&Line| world.pipe.is_cut(line.start..line.end);
    let cut: BTreeSet<u64> = lines.of(PIPE).filter(is_cut).map(|line| line.n).collect();
    let free: BTreeSet<u64> = lines.lost.union(&cut).copied().collect();
    let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in &lines.all {
        let letter = letters.get(&line.n);
        let is_stale = line.kind == Kind::Mapping && is_overtaken(world, &lines, line);
        let may_be_none = is_stale || is_free(world, &lines, line);
        if cut.contains(&line.n) {
            // what became of its pieces is looked at below
        } else if letter.map(|letter| letter.reason.as_str()) != reason(world, line.kind)
            && !(letter.is_none() && may_be_none)
        {
            world.clock.wrong(format!("line {}, {:?}, has the letter {letter:?}", line.n, line.kind));
        }
        if reason(world, line.kind).is_none() && line.kind != Kind::Debug {
            let name = match world.scenario.shape {
                Shape::Key => format!("{}/{}", APPS[line.app], line.key),
                Shape::Line { .. } => format!("{}/{}", APPS[line.app], line.n),
            };
            wanted.entry(name).or_default().insert(line.n);
        }
    }
    let docs = world.engine.docs();
    let mut found: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for ((index, _), doc) in &docs {
        *found.entry((index.trim_start_matches("logs-"), doc.n)).or_default() += 1;
    }
    for (name, numbers) in &wanted {
        let app = name.split('/').next().unwrap_or_default();
        // of a key the newest counts, or the newest of those that must have a fate
        let numbers: Vec<u64> = numbers.iter().copied().collect();
        let sure = numbers.iter().rposition(|n| !free.contains(n));
        let good = &numbers[sure.unwrap_or(0)..];
        let counts: Vec<u64> = good.iter().filter_map(|n| found.remove(&(app, *n))).collect();
        if counts != [1] && !(counts.is_empty() && sure.is_none()) {
            world.clock.wrong(format!("{name}: {counts:?} documents of the lines {good:?}"));
        }
    }
    for ((app, n), _) in found {
        world.clock.wrong(format!("a document of line {n} in {app}, which is not wanted"));
    }
    let known: BTreeSet<u64> = lines.all.iter().map(|line| line.n).collect();
    for n in letters.keys().filter(|n| !known.contains(n)) {
        world.clock.wrong(format!("a dead letter of line {n}, which was never complete"));
    }
    pieces_of_lines(world, &letters, pieces);
}

/// A line that is read again, since no position passes what is held, has no second letter, where it is known by then
/// which file it is of: positions could be saved, and were not lost.
pub fn one_letter_each(world: &World) {
    let scenario = &world.scenario;
    let is_full = |kind: Trouble| matches!(kind, Trouble::Full | Trouble::WriteFails);
    let is_lost = |end: &End| matches!(end, End::PowerLoss { .. });
    // nor is a letter known that somebody moved away
    if scenario.faults.iter().any(|fault| is_full(fault.kind))
        || scenario.ends.iter().any(is_lost)
        || scenario.letters_bytes_max < LETTERS_BYTES_MAX
    {
        return;
    }
    letters(world);
    let lines = lock(&world.lines);
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let known = lock(&world.letters);
    known.0.values().flat_map(|read| &read.letters).for_each(|(n, _)| *counts.entry(*n).or_default() += 1);
    // a copy may have been read as a file of its own, and so may a compressed file of whose text a process that ended
    // had settled nothing
    let is_one_process = scenario.ends.is_empty() && scenario.plans.len() == 1;
    let packed = lines.packed.iter().filter(|_| !is_one_process);
    let copies = lines.copies.iter().flat_map(|(to, copy)| [to, &copy.of]).chain(packed);
    let copied: BTreeSet<u64> = copies.flat_map(|text| lines.of(*text)).map(|line| line.n).collect();
    for line in lines.all.iter().filter(|line| line.text != PIPE && !copied.contains(&line.n)) {
        match counts.get(&line.n) {
            Some(1) | None => {}
            Some(count) => world.clock.wrong(format!("line {} of {:?} has {count} dead letters", line.n, line.text)),
        }
    }
}

/// While letters are sent again, each line is still a document or a letter.
pub fn letters_have_fates(world: &World) {
    let lines = lock(&world.lines);
    let letters = letters(world);
    for line in lines.all.iter().filter(|line| !is_free(world, &lines, line)) {
        if !has_fate(world, &lines, line, &letters) {
            return world.clock.wrong(format!("line {}, {:?}, was lost by a replay", line.n, line.kind));
        }
    }
}

/// After a replay that came to its end: what failed again has its count raised, and nothing else became a letter.
pub fn sent_again(world: &World, before: &Letters) {
    let lines = lock(&world.lines);
    let after = letters(world);
    // a letter brings back the others of its line, had they a fate or not
    let is_free = |n: u64| lines.all.iter().any(|line| line.n == n && is_free(world, &lines, line));
    for (n, of) in &after {
        let Some(was) = before.get(n) else {
            if is_free(*n) {
                continue;
            }
            world.clock.wrong(format!("line {n} became a letter by a replay"));
            continue;
        };
        // of a line that is too long nothing can be sent
        if of.attempts <= was.attempts && !of.is_cut {
            world.clock.wrong(format!("the letter of line {n} was tried {} times, then {}", was.attempts, of.attempts));
        }
    }
}

/// Pieces of lines that several processes read are events of their own, and each is there.
fn pieces_of_lines(world: &World, letters: &Letters, found: Vec<String>) {
    let pieces = world.pipe.pieces();
    // of a line that is too long the letter holds the beginning
    let is_of = |letter: &str, piece: &Piece| !letter.is_empty() && piece.text.starts_with(letter);
    for piece in &pieces {
        let Piece { text, is_lost } = piece;
        let is_found =
            found.iter().any(|letter| is_of(letter, piece)) || number(text).is_some_and(|n| letters.contains_key(&n));
        // it is whole but for its line feed
        let has_another_fate = *is_lost || text.is_empty() || text.ends_with(['}', ']']);
        if !is_found && !has_another_fate {
            world.clock.wrong(format!("no dead letter of the piece {text:?} of standard input"));
        }
    }
    if let Some(letter) = found.iter().find(|letter| !pieces.iter().any(|piece| is_of(letter, piece))) {
        world.clock.wrong(format!("a dead letter of {letter:?}, which was not written"));
    }
}

/// The number of a line, the first of several, if its text is known so far.
pub fn number(text: &str) -> Option<u64> {
    let object = text.strip_prefix('[').unwrap_or(text);
    object.strip_prefix("{\"n\":")?.trim_start_matches('[').split_once([',', ']'])?.0.parse().ok()
}

/// The numbers of a line's events, as far as its text is known.
pub fn numbers(text: &str) -> Vec<Option<u64>> {
    let several = (text.starts_with('[') || text.starts_with("{\"n\":[")).then(|| serde_json::from_str(text).ok());
    match several.flatten() {
        Some(Value::Array(objects)) => objects.iter().map(|object| object["n"].as_u64()).collect(),
        Some(object @ Value::Object(_)) => object["n"].as_array().into_iter().flatten().map(Value::as_u64).collect(),
        _ => vec![number(text)],
    }
}

/// After all is done the positions are at the last lines' ends.
pub fn places_at_the_end(world: &World, positions: &[Position]) {
    let lines = lock(&world.lines);
    for (text, inode) in world.logs.all() {
        let end = lines.of(text).last().map_or(0, |line| line.end);
        let place = positions.iter().filter(|position| position.identity.inode == inode);
        let place = place.filter(|position| world.logs.texts_of(position).contains(&text));
        let place = place.map(|position| position.mark.offset).max().unwrap_or_default();
        // a file without lines has nothing to claim
        if place != end && end > 0 {
            let known: Vec<String> =
                positions.iter().map(|p| format!("{:?} {} at {}", p.path, p.identity.inode, p.mark.offset)).collect();
            let known = known.join(", ");
            world.clock.wrong(format!(
                "all is done, but the position of {text:?} with inode {inode} is {place}, not {end}: {known}"
            ));
        }
    }
}

/// Reading everything again changed nothing.
pub fn replay(world: &World, before: &BTreeMap<(String, String), Doc>) {
    let content = |docs: &BTreeMap<(String, String), Doc>| -> BTreeMap<(String, String), u64> {
        docs.iter().map(|(key, doc)| (key.clone(), doc.n)).collect()
    };
    if content(before) != content(&world.engine.docs()) {
        world.clock.wrong("reading everything again changed the documents".to_string());
    }
    fates(world);
}

/// While one index took nothing and nothing else was wrong, lines of the others became documents.
pub fn others_went_on(world: &World, crashes: &[Duration]) -> u64 {
    let scenario = &world.scenario;
    let stored = world.engine.stored();
    let lines = lock(&world.lines);
    if scenario.plans.iter().any(|plan| plan.bytes_in_flight_max < 1 << 20) {
        return 0;
    }
    let mut count = 0;
    // as long as files may take to be looked at, and some more
    // a record that half a line follows waits a minute longer
    let settle = Duration::from_secs(if scenario.is_joined { 120 } else { 45 });
    for fault in scenario.faults.iter().filter(|fault| fault.kind.is_of_index()) {
        let time = &fault.time;
        let meets = |other: &std::ops::Range<Duration>| {
            other.start < time.end && time.start < other.end + scenario.patience() && other != time
        };
        let is_alone = !scenario.faults.iter().any(|other| meets(&other.time));
        if !is_alone || crashes.iter().any(|at| time.contains(at)) {
            continue;
        }
        let app = (0..APPS.len()).find(|app| {
            use crate::scenario::Trouble::{Blocked, Closed, Flooded, Gone};
            [Closed(*app), Blocked(*app), Flooded(*app), Gone(*app)].contains(&fault.kind)
        });
        for line in &lines.all {
            let is_due = line.written >= time.start && line.written + settle < time.end;
            let is_due = is_due && !is_free(world, &lines, line);
            if is_due && line.kind == Kind::Good && Some(line.app) != app && scenario.shape != Shape::Key {
                count += 1;
                let at = stored.get(&line.n);
                if at.is_none_or(|at| *at > line.written + settle) {
                    world.clock.wrong(format!("line {} waited for an index that is not its own: {at:?}", line.n));
                    return count;
                }
            }
        }
    }
    count
}
