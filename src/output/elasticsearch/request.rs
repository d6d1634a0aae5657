//! One bulk request without its I/O: what is in it, and what an answer makes of each item.
//!
//! Nothing here waits, sends or counts time, so that every sequence of answers can be tried in tests.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::answer::{Answer, Cause, Meaning, meaning};
use super::load::{Ended, Loads, Unit};
use crate::ack::{Letter, Reason};
use crate::json;
use crate::output::Action;

/// What came of a request.
#[derive(Debug)]
pub enum Reply {
    /// No whole answer: no connection, time is up, cut, unreadable, too few items.
    Lost {
        why: String,
        connected: bool,
    },
    /// A status for the whole request.
    Refused {
        status: u16,
        body: Bytes,
    },
    Items(Answer),
}

impl Reply {
    /// Whether the engine may have the request and be at it still: nobody spoke for all of it, or only a gateway did.
    pub fn leaves_it_at_work(&self) -> bool {
        match self {
            Reply::Lost { connected, .. } => *connected,
            Reply::Refused { status: 408 | 502..=504, body } => Cause::of_request(body).kind.is_empty(),
            Reply::Refused { .. } | Reply::Items(_) => false,
        }
    }
}

/// What an answer leaves to be done.
#[derive(Debug)]
pub enum Next {
    /// The whole request again, after a wait.
    Whole(Delay),
    /// It is too much or has something bad in it: in two requests.
    Halves(Vec<Unit>, Vec<Unit>),
    Parts(Parts),
}

/// Why a whole request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// The engine is away, overloaded or broken: time mends it.
    Away(String),
    /// The engine does not let us: somebody must mend it.
    Refused(String),
}

#[derive(Debug, Default)]
pub struct Parts {
    pub ended: Vec<Ended>,
    /// To be sent again, in order.
    pub again: Vec<Unit>,
    /// Of indices in trouble, in order, with the trouble's cause.
    pub held: Vec<Unit>,
    pub causes: Vec<(Arc<str>, Cause)>,
    /// How many items succeeded.
    pub good: usize,
}

/// What does not change from request to request.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub action: Action,
    /// An older write must not overtake a newer one of the same id.
    pub ordered: bool,
    pub item_retries_max: u32,
}

/// A request on its way: units in the order of its lines.
#[derive(Debug)]
pub struct Pending {
    pub units: Vec<Unit>,
}

impl Pending {
    /// Places of the request's lines: load and range of its body, neighbours joined.
    pub fn body_ranges(&self, loads: &Loads) -> Vec<(u32, Range<usize>)> {
        let mut ranges: Vec<(u32, Range<usize>)> = Vec::new();
        for unit in &self.units {
            let item = loads.item(unit);
            let (start, end) = (item.head_at as usize, item.end as usize);
            match ranges.last_mut() {
                Some((load, range)) if *load == unit.load && range.end == start => range.end = end,
                _ => ranges.push((unit.load, start..end)),
            }
        }
        ranges
    }

    /// The request's body; shared with the parcel where it is one piece of it, else copied.
    pub fn body(&self, loads: &Loads) -> Bytes {
        let ranges = self.body_ranges(loads);
        match &ranges[..] {
            [(load, range)] => loads.slice(*load, range.clone()),
            _ => {
                let mut body = BytesMut::with_capacity(ranges.iter().map(|(_, r)| r.len()).sum());
                for (load, range) in ranges {
                    body.extend_from_slice(&loads.slice(load, range));
                }
                body.freeze()
            }
        }
    }

    /// Counts this sending; how many of the items were sent before.
    pub fn sent(&mut self) -> u64 {
        let mut again = 0;
        for unit in &mut self.units {
            again += u64::from(unit.attempts > 0);
            unit.attempts += 1;
        }
        again
    }

    /// What the answer makes of the items. After `Whole` the request stays as it is; else its units are gone from it.
    pub fn answered(&mut self, loads: &Loads, rules: &Rules, reply: &Reply) -> Next {
        match reply {
            Reply::Lost { why, .. } => Next::Whole(Delay::Away(why.clone())),
            Reply::Refused { status: status @ (400 | 413), body } => {
                let units = std::mem::take(&mut self.units);
                if units.len() > 1 {
                    let mut first = units;
                    let second = first.split_off(first.len() / 2);
                    return Next::Halves(first, second);
                }
                let mut parts = Parts::default();
                for unit in &units {
                    parts.end(unit, Fate::Letter(Box::new(letter_of_request(loads, rules, unit, *status, body))));
                }
                Next::Parts(parts)
            }
            Reply::Refused { status, body } => {
                let cause = Cause::of_request(body);
                let why = match (cause.kind.as_str(), cause.reason.as_str()) {
                    ("", _) => format!("it answered {status}"),
                    (kind, reason) => format!("it answered {status} {kind}: {reason}"),
                };
                Next::Whole(match status {
                    429 | 500.. => Delay::Away(why),
                    _ => Delay::Refused(why),
                })
            }
            Reply::Items(answer) => Next::Parts(self.items(loads, rules, answer)),
        }
    }

    fn items(&mut self, loads: &Loads, rules: &Rules, answer: &Answer) -> Parts {
        let units = std::mem::take(&mut self.units);
        let mut parts = Parts::default();
        // what is neither created nor a duplicate, by its place in the request
        let mut failed: Vec<(usize, Meaning)> = Vec::new();
        for (n, (unit, status)) in units.iter().zip(&answer.statuses).enumerate() {
            match meaning(rules.action, *status, || answer.cause(n).kind) {
                Meaning::Created => parts.end(unit, Fate::Created),
                Meaning::Duplicate => parts.end(unit, Fate::Duplicate),
                other => failed.push((n, other)),
            }
        }
        parts.good = units.len() - failed.len();
        if !failed.is_empty() {
            self.failures(loads, rules, answer, &units, failed, &mut parts);
        }
        parts
    }

    fn failures(
        &self,
        loads: &Loads,
        rules: &Rules,
        answer: &Answer,
        units: &[Unit],
        failed: Vec<(usize, Meaning)>,
        parts: &mut Parts,
    ) {
        let mut is_good = vec![true; units.len()];
        failed.iter().for_each(|(n, _)| is_good[*n] = false);
        let healthy: HashSet<&Arc<str>> =
            units.iter().zip(&is_good).filter(|(_, good)| **good).map(|(unit, _)| loads.index(unit)).collect();
        let later = if rules.ordered { Later::of(loads, units, &is_good) } else { Later::default() };
        let mut waiting: Vec<(Unit, bool)> = Vec::new();
        for (n, mut found) in failed {
            let mut unit = units[n];
            let has_neighbours = healthy.contains(loads.index(&unit));
            // a shard that is away while others of its index write: the item's, not the index's
            if found == Meaning::Trouble && answer.statuses[n] >= 500 && has_neighbours {
                found = Meaning::Fault;
            }
            if found == Meaning::Fault {
                unit.suspect |= has_neighbours;
                unit.faults += u16::from(unit.suspect);
            }
            let is_spent = found == Meaning::Fault && u32::from(unit.faults) > rules.item_retries_max;
            if found == Meaning::Rejected || is_spent {
                parts.end(&unit, Fate::Letter(Box::new(letter_of_item(loads, rules, &unit, answer, n))));
            } else if later.supersedes(loads, &unit, n) {
                parts.end(&unit, Fate::Stale);
            } else {
                if found == Meaning::Trouble {
                    parts.trouble(loads.index(&unit), || answer.cause(n));
                }
                waiting.push((unit, found == Meaning::Trouble));
            }
        }
        // what must wait anyhow waits with the other events of its index, so that they stay in order
        for (unit, is_trouble) in waiting {
            let index = loads.index(&unit);
            let is_held = is_trouble || parts.causes.iter().any(|(name, _)| name == index);
            if is_held { parts.held.push(unit) } else { parts.again.push(unit) }
        }
    }
}

/// The last success of each id in a request, to know which failures it makes void.
#[derive(Default)]
struct Later(std::collections::HashMap<u32, Vec<(usize, Unit)>>);

impl Later {
    fn of(loads: &Loads, units: &[Unit], is_good: &[bool]) -> Later {
        let mut later = Later::default();
        for (n, unit) in units.iter().enumerate().filter(|(n, _)| is_good[*n]) {
            let hash = loads.item(unit).id_hash;
            if hash != 0 {
                later.0.entry(hash).or_default().push((n, *unit));
            }
        }
        later
    }

    fn supersedes(&self, loads: &Loads, unit: &Unit, n: usize) -> bool {
        let same = self.0.get(&loads.item(unit).id_hash);
        same.is_some_and(|same| same.iter().any(|(at, other)| *at > n && loads.head(other) == loads.head(unit)))
    }
}

enum Fate {
    Created,
    Duplicate,
    Stale,
    Letter(Box<Letter>),
}

impl Parts {
    fn end(&mut self, unit: &Unit, fate: Fate) {
        let load = unit.load;
        // units of a load mostly stand together
        let at = match self.ended.iter().rposition(|ended| ended.load == load) {
            Some(at) => at,
            None => {
                self.ended.push(Ended { load, ..Ended::default() });
                self.ended.len() - 1
            }
        };
        let ended = &mut self.ended[at];
        match fate {
            Fate::Letter(_) => ended.dead.push(unit.item),
            _ => ended.items.push(unit.item),
        }
        match fate {
            Fate::Created => ended.tally.created += 1,
            Fate::Duplicate => ended.tally.duplicates += 1,
            Fate::Stale => ended.tally.stale += 1,
            Fate::Letter(letter) => ended.letters.push(*letter),
        }
    }

    fn trouble(&mut self, index: &Arc<str>, cause: impl FnOnce() -> Cause) {
        if !self.causes.iter().any(|(name, _)| name == index) {
            self.causes.push((index.clone(), cause()));
        }
    }
}

fn letter_of_item(loads: &Loads, rules: &Rules, unit: &Unit, answer: &Answer, n: usize) -> Letter {
    let cause = answer.cause(n);
    let detail = match (cause.kind.as_str(), cause.reason.as_str()) {
        ("", _) => format!("the engine answered {}", answer.statuses[n]),
        (kind, reason) => format!("{kind}: {reason}"),
    };
    // as one line of text, whatever the engine's looks like
    let error = answer.error(n).map(json::repair);
    letter(loads, rules, unit, Reason::Rejected, detail, answer.statuses[n], error)
}

fn letter_of_request(loads: &Loads, rules: &Rules, unit: &Unit, status: u16, body: &[u8]) -> Letter {
    let size = loads.item(unit).size();
    let cause = Cause::of_request(body);
    let error = serde_json::from_slice::<serde_json::Value>(body).ok().map(|body| match body.get("error") {
        Some(error) => error.to_string().into_bytes(),
        None => body.to_string().into_bytes(),
    });
    let (reason, detail) = match status {
        413 => (Reason::TooLarge, format!("the engine takes no request of {size} bytes")),
        _ if cause.kind.is_empty() => (Reason::Rejected, format!("the engine answered {status} to it alone")),
        _ => (Reason::Rejected, format!("{}: {}", cause.kind, cause.reason)),
    };
    letter(loads, rules, unit, reason, detail, status, error)
}

fn letter(
    loads: &Loads,
    rules: &Rules,
    unit: &Unit,
    reason: Reason,
    detail: String,
    status: u16,
    error: Option<Vec<u8>>,
) -> Letter {
    let (load, item) = (loads.load(unit), loads.item(unit));
    let head: serde_json::Value = serde_json::from_slice(loads.head(unit)).unwrap_or_default();
    let id = head[rules.action.as_str()]["_id"].as_str().map(str::to_string);
    Letter {
        event: Some(load.body[item.source_at as usize..item.end as usize - 1].to_vec()),
        id,
        index: Some(loads.index(unit).to_string()),
        action: Some(rules.action.as_str()),
        status: Some(status),
        error,
        attempts: unit.attempts,
        source: load.source.to_string(),
        offset: item.offset,
        is_part: item.is_part,
        ..Letter::new(reason, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::kept::{Held, Keep, Kept};
    use crate::ack::{Acks, Message, Receipt, Tally};
    use crate::codec::Block;
    use crate::input::budget::Budget;
    use crate::output::elasticsearch::load::tests::parcel;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn answer(items: &[(u16, &str)]) -> Reply {
        let items: Vec<_> = items
            .iter()
            .map(|(status, kind)| match *status {
                200..300 => serde_json::json!({"index": {"status": status}}),
                _ => serde_json::json!({"index": {"status": status, "error": {"type": kind, "reason": "because"}}}),
            })
            .collect();
        let count = items.len();
        let body = serde_json::json!({"errors": true, "items": items}).to_string();
        Reply::Items(Answer::read(Bytes::from(body), count).expect("an answer"))
    }

    fn rules(action: Action, ordered: bool) -> Rules {
        Rules { action, ordered, item_retries_max: 2 }
    }

    struct Case {
        loads: Loads,
        rules: Rules,
        pending: Pending,
    }

    fn case(rules: Rules, items: &[(&str, &str)]) -> Case {
        let items: Vec<_> = items.iter().map(|(index, id)| (*index, id.to_string())).collect();
        let mut loads = Loads::default();
        let units = loads.add(parcel(rules.action, &items));
        Case { loads, rules, pending: Pending { units } }
    }

    impl Case {
        fn parts(&mut self, reply: &Reply) -> Parts {
            self.pending.sent();
            match self.pending.answered(&self.loads, &self.rules, reply) {
                Next::Parts(parts) => parts,
                other => panic!("{other:?}"),
            }
        }
    }

    fn places(units: &[Unit]) -> Vec<u32> {
        units.iter().map(|unit| unit.item).collect()
    }

    #[test]
    fn each_item_gets_its_own_fate() {
        let mut case = case(
            rules(Action::Create, false),
            &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5"), ("a", "6")],
        );
        let mapping = (400, "mapper_parsing_exception");
        let parts = case.parts(&answer(&[
            (201, ""),
            (409, "version_conflict_engine_exception"),
            (429, "es_rejected_execution_exception"),
            mapping,
            (503, "unavailable_shards_exception"),
            (201, ""),
        ]));
        assert_eq!((places(&parts.again), places(&parts.held)), (vec![2, 4], vec![]));
        let ended = &parts.ended[0];
        assert_eq!((ended.tally.created, ended.tally.duplicates), (2, 1));
        let letter = &ended.letters[0];
        assert_eq!((letter.reason, letter.status, letter.attempts), (Reason::Rejected, Some(400), 1));
        assert_eq!((letter.id.as_deref(), letter.index.as_deref()), (Some("4"), Some("a")));
        assert_eq!(letter.event.as_deref(), Some(&b"{\"n\":3}"[..]));
        let error: serde_json::Value = serde_json::from_slice(letter.error.as_deref().unwrap()).unwrap();
        assert_eq!(error["type"], "mapper_parsing_exception");
        case.pending.units = parts.again;
        let body = case.pending.body(&case.loads);
        assert_eq!(body, &b"{\"create\":{\"_index\":\"a\",\"_id\":\"3\"}}\n{\"n\":2}\n{\"create\":{\"_index\":\"a\",\"_id\":\"5\"}}\n{\"n\":4}\n"[..]);
        assert_eq!(case.pending.sent(), 2);
    }

    #[test]
    fn an_index_in_trouble_takes_what_waits_for_it() {
        let mut case = case(rules(Action::Index, false), &[("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("c", "5")]);
        let parts = case.parts(&answer(&[
            (429, "es_rejected_execution_exception"),
            (201, ""),
            (400, "index_closed_exception"),
            (429, "es_rejected_execution_exception"),
            (503, "unavailable_shards_exception"),
        ]));
        assert_eq!((places(&parts.again), places(&parts.held)), (vec![3], vec![0, 2, 4]));
        assert_eq!(parts.causes.iter().map(|(index, _)| &**index).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(parts.good, 1);
    }

    #[test]
    fn only_a_fault_of_one_among_many_is_counted() {
        let mut case = case(rules(Action::Index, false), &[("a", "1"), ("a", "2")]);
        let fault = (500, "illegal_state_exception");
        for _ in 0..5 {
            let parts = case.parts(&answer(&[fault, fault]));
            assert_eq!(places(&parts.again), [0, 1]);
            case.pending.units = parts.again;
        }
        let parts = case.parts(&answer(&[(201, ""), fault]));
        case.pending.units = parts.again;
        let parts = case.parts(&answer(&[fault]));
        case.pending.units = parts.again;
        let parts = case.parts(&answer(&[fault]));
        assert!(parts.again.is_empty());
        assert_eq!(parts.ended[0].letters[0].attempts, 8);
    }

    #[test]
    fn with_order_an_older_write_gives_way() {
        let items = [("a", "x"), ("a", "y"), ("a", "x"), ("b", "y"), ("a", "z"), ("a", "z")];
        let busy = (429, "es_rejected_execution_exception");
        let reply = answer(&[busy, busy, (200, ""), (201, ""), (201, ""), busy]);
        let mut with = case(rules(Action::Index, true), &items);
        let parts = with.parts(&reply);
        assert_eq!((places(&parts.again), parts.ended[0].tally.stale), (vec![1, 5], 1));
        assert_eq!(parts.ended[0].items, [2, 3, 4, 0], "what a stop does not keep");
        let mut without = case(rules(Action::Index, false), &items);
        assert_eq!(places(&without.parts(&reply).again), [0, 1, 5]);
    }

    #[test]
    fn a_refused_request_is_halved_or_waits() {
        let mut case = case(rules(Action::Index, false), &[("a", "1"), ("a", "2"), ("a", "3")]);
        let refuse = |status| Reply::Refused {
            status,
            body: Bytes::from_static(b"{\"error\":{\"type\":\"t\",\"reason\":\"r\"}}"),
        };
        for status in [429, 500, 503] {
            let next = case.pending.answered(&case.loads, &case.rules, &refuse(status));
            assert!(matches!(next, Next::Whole(Delay::Away(_))), "{status} {next:?}");
        }
        for status in [302, 401, 403, 404, 405, 406] {
            let next = case.pending.answered(&case.loads, &case.rules, &refuse(status));
            assert!(matches!(next, Next::Whole(Delay::Refused(_))), "{status} {next:?}");
        }
        let Next::Halves(first, second) = case.pending.answered(&case.loads, &case.rules, &refuse(413)) else {
            panic!()
        };
        assert_eq!((places(&first), places(&second)), (vec![0], vec![1, 2]));
        case.pending.units = first;
        let parts = case.parts(&refuse(413));
        assert_eq!(parts.ended[0].letters[0].reason, Reason::TooLarge);
        case.pending.units = vec![second[0]];
        let parts = case.parts(&refuse(400));
        let letter = &parts.ended[0].letters[0];
        assert_eq!((letter.reason, letter.detail.as_str()), (Reason::Rejected, "t: r"));
    }

    /// What is not needed of a parcel any more is free for others; what is needed stays as it was.
    #[test]
    fn a_load_weighs_what_is_open_of_it() {
        let check = |open: &[u32], is_delayed: bool, is_lighter: bool| {
            let lines: Vec<String> = (0..100).map(|n| format!("line {n}\n")).collect();
            let budget = Budget::new(1 << 20);
            let items: Vec<_> = (0..100).map(|n| ("a", n.to_string())).collect();
            let mut parcel = parcel(Action::Create, &items);
            let offsets: Vec<u64> = (0..100).map(|n| lines[..n].concat().len() as u64).collect();
            parcel.items.iter_mut().zip(&offsets).for_each(|(item, offset)| item.offset = 5 + offset);
            let kept = Arc::<Kept>::default();
            let keep = Some(Keep { kept: kept.clone(), spool: None });
            parcel.receipt = Receipt::tied(0, 0, budget.try_take(0), None, None, keep);
            let block = Block {
                bytes: lines.concat().into_bytes().into(),
                offset: 5,
                too_long: None,
                mark: None,
                records: None,
            };
            parcel.receipt.hold(Held::new(0, Arc::default(), block));
            parcel.receipt.weigh(parcel.bytes_held());
            let (receipt, whole) = (parcel.receipt.clone(), parcel.receipt.bytes());
            let mut loads = Loads::default();
            let units = loads.add(parcel);
            let body = |loads: &Loads| Pending { units: open.iter().map(|n| units[*n as usize]).collect() }.body(loads);
            let before = body(&loads);
            if is_delayed {
                loads.delay(&units[open[0] as usize..][..1]);
            }
            // some are letters, which are not on the disk
            let (dead, items): (Vec<u32>, Vec<u32>) =
                (0..100).filter(|n| !open.contains(n)).partition(|n| *n % 20 == 7);
            let tally = Tally { created: items.len() as u64, ..Tally::default() };
            let letters: Vec<Letter> = dead
                .iter()
                .map(|n| {
                    letter(
                        &loads,
                        &rules(Action::Create, false),
                        &units[*n as usize],
                        Reason::Rejected,
                        String::new(),
                        400,
                        None,
                    )
                })
                .collect();
            let ended = Ended { load: 0, tally, letters: letters.clone(), items, dead: dead.clone() };
            let (acks, messages) = Acks::channel();
            acks.settle(&receipt, Tally::default(), letters);
            assert!(loads.close(&ended).is_some());
            loads.lighten(0);
            assert_eq!(body(&loads), before);
            assert_eq!(receipt.bytes() < whole, is_lighter, "{open:?}");
            assert_eq!(loads.bytes(), receipt.bytes());
            if is_lighter {
                let part = (open.len() + dead.len()) as f64 / 100.0;
                assert!((receipt.bytes() as f64) < 1024.0 + (whole - 1024) as f64 * part * 1.5);
                let left = |keeps: &dyn Fn(u32) -> bool| {
                    let wanted = (0..100).filter(|n| keeps(*n)).map(|n| lines[n as usize].as_bytes());
                    let held = &kept.blocks()[0];
                    let pieces = held.open();
                    assert_eq!(
                        pieces.iter().map(|(_, text)| *text).collect::<Vec<_>>().concat(),
                        wanted.collect::<Vec<_>>().concat()
                    );
                    for (offset, text) in pieces {
                        let at = offset as usize - 5;
                        assert_eq!(&lines.concat().as_bytes()[at..at + text.len()], text);
                    }
                };
                left(&|n| open.contains(&n) || dead.contains(&n));
                receipt.note_done(dead.iter().map(|n| 5 + offsets[*n as usize]));
                left(&|n| open.contains(&n));
            }
            let Ok(Message::Settled(settled)) = messages.recv() else { panic!() };
            assert!(
                settled.letters.iter().zip(&dead).all(|(letter, n)| letter.raw == lines[*n as usize].trim().as_bytes())
            );
        };
        check(&[3], false, true);
        check(&[3, 4, 50, 99], false, true);
        check(&(0..30).collect::<Vec<_>>(), false, false);
        check(&(0..30).collect::<Vec<_>>(), true, true);
        check(&(0..90).collect::<Vec<_>>(), true, false);
    }

    const ITEM_ANSWERS: &[(u16, &str)] = &[
        (201, ""),
        (200, ""),
        (409, "version_conflict_engine_exception"),
        (429, "es_rejected_execution_exception"),
        (400, "mapper_parsing_exception"),
        (503, "unavailable_shards_exception"),
        (500, "illegal_state_exception"),
        (400, "index_closed_exception"),
        (403, "cluster_block_exception"),
        (404, "index_not_found_exception"),
    ];

    proptest! {
        /// Whatever is answered, an item that has its fate is not sent again, none gets two, and none is lost.
        #[test]
        fn an_acknowledged_item_is_never_sent_again(
            count in 1usize..12, ordered: bool, create: bool,
            answers in prop::collection::vec((0u8..10, prop::collection::vec(0usize..ITEM_ANSWERS.len(), 12)), 0..60),
        ) {
            let action = if create { Action::Create } else { Action::Index };
            let items: Vec<_> = (0..count).map(|n| (["a", "b"][n % 2], format!("{}", n % 5))).collect();
            let mut loads = Loads::default();
            let units = loads.add(parcel(action, &items));
            let rules = rules(action, ordered);
            let mut open: Vec<Vec<Unit>> = vec![units];
            let mut fates: BTreeMap<u32, usize> = BTreeMap::new();
            let mut ended = 0u64;
            for (kind, statuses) in answers {
                if open.is_empty() {
                    break;
                }
                let mut pending = Pending { units: open.remove(0) };
                let sent = places(&pending.units);
                for item in &sent {
                    prop_assert!(!fates.contains_key(item), "item {} sent again", item);
                }
                let ids = |body: &[u8]| body.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"n\"")).map(|line| String::from_utf8_lossy(&line[5..line.len() - 1]).parse::<u32>().unwrap()).collect::<Vec<_>>();
                prop_assert_eq!(&ids(&pending.body(&loads)), &sent);
                let covered: usize = pending.body_ranges(&loads).iter().map(|(_, range)| range.len()).sum();
                prop_assert_eq!(covered, loads.size(&pending.units));
                pending.sent();
                let reply = match kind {
                    0 => Reply::Lost { why: String::new(), connected: true },
                    1 => Reply::Refused { status: 413, body: Bytes::new() },
                    2 => Reply::Refused { status: 400, body: Bytes::new() },
                    3 => Reply::Refused { status: 503, body: Bytes::new() },
                    4 => Reply::Refused { status: 401, body: Bytes::new() },
                    _ => answer(&statuses[..sent.len()].iter().map(|n| ITEM_ANSWERS[*n]).collect::<Vec<_>>()),
                };
                match pending.answered(&loads, &rules, &reply) {
                    Next::Whole(_) => {
                        prop_assert_eq!(places(&pending.units), sent);
                        open.push(pending.units);
                    }
                    Next::Halves(first, second) => {
                        prop_assert_eq!([places(&first), places(&second)].concat(), sent);
                        prop_assert!(!first.is_empty() && !second.is_empty());
                        open.extend([first, second]);
                    }
                    Next::Parts(parts) => {
                        for ended in &parts.ended {
                            loads.close(ended);
                            loads.lighten(ended.load);
                        }
                        loads.delay(&parts.held);
                        let rest = [places(&parts.again), places(&parts.held)].concat();
                        for item in sent.iter().filter(|item| !rest.contains(item)) {
                            *fates.entry(*item).or_default() += 1;
                        }
                        ended += parts.ended.iter().map(|e| e.tally.fates() + e.letters.len() as u64).sum::<u64>();
                        prop_assert_eq!(ended, fates.len() as u64);
                        open.extend([parts.again, parts.held].into_iter().filter(|units| !units.is_empty()));
                    }
                }
                let waiting: usize = open.iter().map(Vec::len).sum();
                prop_assert_eq!(waiting + fates.len(), count);
            }
        }
    }
}
