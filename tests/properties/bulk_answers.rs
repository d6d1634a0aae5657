//! Answers of an engine: whatever it sends, each event gets one fate, what it said to have is never sent again, and
//! what becomes a dead letter is one line. The first line is how many events there are, what they are like, and a
//! status for each answer, 0 for none; then come the answers, with `--` on a line of its own between them. When there
//! are no more, all is well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceline::ack::stored::Stored;
use onceline::ack::{Acks, Letter, Message, Receipt, Tally};
use onceline::output::elasticsearch::{Config, Exchange, Lost};
use onceline::output::{Action, Item, Parcel, Phase, queue};
use reqwest::Method;
use serde_json::{Value, json};

use super::{first_line, numbers};

const EVENTS_MAX: usize = 8;
const ANSWERS_MAX: usize = 12;
/// Of simulated time, in which every wait is over at once.
const SECS_MAX: u64 = 366 * 86_400;

struct Engine {
    answers: VecDeque<(u16, Vec<u8>)>,
    action: Action,
    /// Which events it said to have.
    good: [bool; EVENTS_MAX],
    /// An answer that is not quite JSON may have been believed or not.
    is_unsure: bool,
}

#[derive(Clone)]
struct Link(Arc<Mutex<Engine>>);

pub fn check(bytes: &[u8]) {
    let (first, text) = first_line(bytes);
    let mut numbers = numbers(first);
    let count = numbers.next().unwrap_or(1) as usize % EVENTS_MAX + 1;
    let flags = numbers.next().unwrap_or(0);
    let statuses = numbers.map(|status| if status < 1000 { status as u16 } else { 200 }).chain(std::iter::repeat(200));
    let answers = statuses.zip(split(text)).take(ANSWERS_MAX).collect();
    let action = if flags & 1 == 0 { Action::Index } else { Action::Create };
    let ordered = flags & 2 != 0 && action == Action::Index;
    let link = Link(Arc::new(Mutex::new(Engine { answers, action, good: [false; EVENTS_MAX], is_unsure: false })));
    let config = Config { action, ordered, strict: false, item_retries_max: 2, ..Config::default() };
    let (tally, letters) = deliver(&config, link.clone(), parcels(action, count, flags));
    let engine = link.lock();
    let good = engine.good.iter().filter(|good| **good).count() as u64;
    assert_eq!(tally.fates() + letters.len() as u64, count as u64, "one fate an event: {tally:?} {letters:?}");
    assert!(tally.stale == 0 || ordered);
    if !engine.is_unsure {
        assert_eq!(tally.created + tally.duplicates, good, "as the engine said: {tally:?} {letters:?}");
    }
    for letter in &letters {
        check_letter(letter, &engine);
    }
}

fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut answers = vec![Vec::new()];
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match (line, answers.last_mut()) {
            (b"--\n", _) => answers.push(Vec::new()),
            (line, Some(last)) => last.extend_from_slice(line),
            (_, None) => {}
        }
    }
    answers
}

/// All events, of two indices, in two parcels if the flags say so; some of them with one id.
fn parcels(action: Action, count: usize, flags: u64) -> Vec<Parcel> {
    let half = if flags & 4 == 0 { count } else { count / 2 };
    let mut parcels = Vec::new();
    for (number, range) in [0..half, half..count].into_iter().enumerate() {
        let receipt = Receipt::new(0, number as u64, None);
        receipt.open(range.len());
        let indices = vec!["even".into(), "odd".into()];
        let mut parcel =
            Parcel { body: Vec::new().into(), items: Vec::new(), indices, source: "stdin".into(), receipt };
        for n in range {
            let id = if flags & 8 == 0 { n } else { n / 4 };
            let head_at = parcel.body.len() as u32;
            let head = json!({ (action.as_str()): {"_index": &*parcel.indices[n % 2], "_id": id.to_string()} });
            parcel.body.extend_from_slice(format!("{head}\n").as_bytes());
            let source_at = parcel.body.len() as u32;
            parcel.body.extend_from_slice(format!("{{\"n\":{n}}}\n").as_bytes());
            let (end, index, id_hash) = (parcel.body.len() as u32, n as u32 % 2, id as u32 + 1);
            parcel.items.push(Item { head_at, source_at, end, index, id_hash, is_part: false, offset: n as u64 });
        }
        parcels.push(parcel);
    }
    parcels
}

fn deliver(config: &Config, link: Link, all: Vec<Parcel>) -> (Tally, Vec<Letter>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let (slots, parcels) = queue(all.len());
    for parcel in all {
        slots.try_take().expect("a place").send(parcel).expect("a queue");
    }
    drop(slots);
    let (acks, messages) = Acks::channel();
    let (_phase, phases) = tokio::sync::watch::channel(Phase::Running);
    let done = runtime.block_on(async {
        let work = config.deliver(link, parcels, acks, phases);
        tokio::time::timeout(Duration::from_secs(SECS_MAX), work).await
    });
    done.expect("it ends").expect("no answer is a reason to give up");
    let (mut tally, mut letters) = (Tally::default(), Vec::new());
    for message in messages {
        let Message::Settled(settled) = message else { continue };
        assert_eq!(settled.claims, settled.tally.fates() + settled.letters.len() as u64);
        tally.add(&settled.tally);
        letters.extend(settled.letters);
    }
    (tally, letters)
}

fn check_letter(letter: &Letter, engine: &Engine) {
    let event = letter.event.as_deref().expect("an event");
    let n = serde_json::from_slice::<Value>(event).expect("JSON")["n"].as_u64().expect("a number");
    assert!(engine.is_unsure || !engine.good[n as usize], "a letter of what the engine has");
    let mut line = Vec::new();
    letter.write("2026-03-01T00:00:00.000Z", &mut line);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "a letter is one line");
    assert_eq!(Stored::read(&line).expect("a letter").record, event);
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange for Link {
    async fn call(&self, _: Method, _: &str, body: Option<(&'static str, Bytes)>) -> Result<(u16, Bytes), Lost> {
        // what it is at it does not show
        let Some((_, body)) = body else { return Ok((404, Bytes::new())) };
        let mut lines = body.split(|byte| *byte == b'\n');
        let mut sent = Vec::new();
        while let (Some(_), Some(source)) = (lines.next().filter(|head| !head.is_empty()), lines.next()) {
            let source: Value = serde_json::from_slice(source).expect("an event");
            sent.push(source["n"].as_u64().expect("a number") as usize);
        }
        let mut engine = self.lock();
        assert!(sent.iter().all(|n| !engine.good[*n]), "what the engine has is sent again");
        let (status, answer) = engine.answers.pop_front().unwrap_or_else(|| (200, well(sent.len())));
        if status == 200 {
            engine.note(&sent, &answer);
        }
        match status {
            0 => Err(Lost { why: "gone".to_string(), connected: answer.len() % 2 == 0 }),
            status => Ok((status, answer.into())),
        }
    }

    async fn renew(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Engine {
    /// What an answer says, as serde_json reads it.
    fn note(&mut self, sent: &[usize], answer: &[u8]) {
        let text: Value = serde_json::from_slice(answer).unwrap_or_default();
        let items = text["items"].as_array().filter(|items| items.len() == sent.len());
        let statuses = items.and_then(|items| items.iter().map(status).collect::<Option<Vec<u64>>>());
        // these are read without their escapes, or not at all: of a key that is repeated another reader takes the last
        let count = |key: &str| memchr::memmem::find_iter(answer, key).count();
        let is_odd = answer.contains(&b'\\')
            || answer.iter().filter(|byte| b"[{".contains(byte)).count() > 60
            || count("\"items\"") > 1
            || count("\"status\"") > sent.len();
        self.is_unsure |= statuses.is_none() || is_odd;
        for (n, status) in sent.iter().zip(statuses.iter().flatten().filter(|_| !is_odd)) {
            self.good[*n] = matches!((status, self.action), (200..300, _) | (409, Action::Create));
        }
    }
}

fn status(item: &Value) -> Option<u64> {
    let (action, answer) = item.as_object().filter(|item| item.len() == 1)?.iter().next()?;
    // a larger number is no status, and the answer none
    let status = || answer["status"].as_u64().filter(|status| *status <= u64::from(u16::MAX));
    matches!(&**action, "index" | "create").then(status)?
}

fn well(count: usize) -> Vec<u8> {
    json!({"items": vec![json!({"index": {"status": 201}}); count]}).to_string().into_bytes()
}
