//! Outputs deliver parcels and tell the fate of every item.
//!
//! A [`Parcel`] is what a worker packed from one batch: a body that is ready to send and, for each event, where it
//! stands in it. Building the body costs as much as all the rest, so it is done on the workers; an output only
//! does I/O, and cuts a body into pieces by byte ranges when something must be sent again.

pub mod elasticsearch;
pub mod sqlite;
pub mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};

use crate::ack::positions::Before;
use crate::ack::{Acks, Receipt};
use crate::batch::StoredPart;
use crate::config::Section;
use crate::pipeline::Pipeline;
use crate::pool::Buffer;
use stream::Stream;

/// The `[output]` section: which output, and with what.
#[derive(Clone, Debug)]
pub enum Config {
    Elasticsearch(Box<elasticsearch::Config>),
    Sqlite(sqlite::Config),
    /// `ndjson`, to a file or standard output.
    Ndjson {
        path: Option<PathBuf>,
        action: Action,
    },
    Stdout,
}

type Read = fn(&Section<'_>) -> Option<Config>;

/// Every output, by its `type`.
const KINDS: &[(&str, Read)] = &[
    ("elasticsearch", |t| elasticsearch::Config::read(t).map(|config| Config::Elasticsearch(Box::new(config)))),
    ("sqlite", |t| sqlite::Config::read(t).map(Config::Sqlite)),
    ("ndjson", |t| {
        let path = t.path("path").optional();
        Some(Config::Ndjson { path, action: Action::read(t) })
    }),
    ("stdout", |_| Some(Config::Stdout)),
];

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        match t.one_of("type", KINDS).required() {
            Some(read) => read(t),
            None => {
                t.skip_rest();
                None
            }
        }
    }

    /// What is done with each event, as `explain` says it.
    pub fn action(&self) -> Action {
        match self {
            Config::Elasticsearch(config) => config.action,
            Config::Sqlite(config) => config.action,
            Config::Ndjson { action, .. } => *action,
            Config::Stdout => Action::Index,
        }
    }

    /// How to look at what was written, where that takes a command.
    pub fn look(&self) -> Option<String> {
        let Config::Sqlite(config) = self else { return None };
        let path = config.path.display();
        Some(format!("look at the result with: sqlite3 {path} .tables"))
    }

    /// Opens the output of a pipeline.
    pub fn open(&self, pipeline: &Pipeline) -> anyhow::Result<Box<dyn Output>> {
        Ok(match self {
            Config::Elasticsearch(config) => Box::new(elasticsearch::Elasticsearch::open(config, pipeline)?),
            Config::Sqlite(config) => Box::new(sqlite::Sqlite::open(config.clone(), &pipeline.name)?),
            Config::Ndjson { path: Some(path), action } => Box::new(Stream::file(Form::Bulk(*action), path.clone())?),
            Config::Ndjson { path: None, action } => Box::new(Stream::stdout(Form::Bulk(*action))),
            Config::Stdout => Box::new(Stream::stdout(Form::Lines)),
        })
    }
}

/// What the bytes of an item look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An action line and the source, each ended by a line feed: a piece of a `_bulk` body.
    Bulk(Action),
    /// The bare id, then the source and a line feed.
    Rows,
    /// The source and a line feed.
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Index,
    Create,
}

impl Action {
    pub fn read(t: &Section<'_>) -> Action {
        t.one_of("action", &[("index", Action::Index), ("create", Action::Create)]).or(Action::Index)
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Action::Index => "index",
            Action::Create => "create",
        }
    }
}

/// One event in a parcel's body: `head_at..source_at` is what stands before the source, `source_at..end` the
/// source with its line feed.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub head_at: u32,
    pub source_at: u32,
    pub end: u32,
    /// Which of the parcel's indices.
    pub index: u32,
    /// A hash of the id: equal ids have equal hashes. Zero with ids of the engine's own.
    pub id_hash: u32,
    /// Its record holds several events.
    pub is_part: bool,
    /// Where the record begins in its source.
    pub offset: u64,
}

impl Item {
    pub fn size(&self) -> usize {
        (self.end - self.head_at) as usize
    }
}

/// What tells the items of a body from each other from run to run: their records, their places in these, and their
/// documents.
pub fn parts<'a>(body: &'a [u8], items: &'a [Item]) -> impl Iterator<Item = StoredPart> + 'a {
    let mut last: Option<(u64, u32)> = None;
    items.iter().map(move |item| {
        let place = last.filter(|(offset, _)| *offset == item.offset).map_or(0, |(_, place)| place + 1);
        last = Some((item.offset, place));
        let digest: [u8; 32] = Sha256::digest(&body[item.head_at as usize..item.source_at as usize]).into();
        let print = digest.iter().take(8).fold(0, |print, byte| print << 8 | u64::from(*byte));
        StoredPart { offset: item.offset, place, print }
    })
}

/// The deliverable events of one batch, in the order read.
#[derive(Debug)]
pub struct Parcel {
    pub body: Buffer,
    pub items: Vec<Item>,
    /// Names of the indices that the items go to.
    pub indices: Vec<Arc<str>>,
    /// What the source is called, for dead letters.
    pub source: Arc<str>,
    pub receipt: Receipt,
}

impl Parcel {
    /// What it takes of memory, besides the records that its receipt holds.
    pub fn bytes_held(&self) -> usize {
        if self.items.is_empty() { 0 } else { self.body.capacity() + self.items.capacity() * size_of::<Item>() }
    }

    pub fn bytes(&self, item: &Item) -> &[u8] {
        &self.body[item.head_at as usize..item.end as usize]
    }

    pub fn head(&self, item: &Item) -> &[u8] {
        &self.body[item.head_at as usize..item.source_at as usize]
    }

    /// The source, without its line feed.
    pub fn source(&self, item: &Item) -> &[u8] {
        &self.body[item.source_at as usize..item.end as usize - 1]
    }
}

/// Parcels in the order read, although workers finish them in any order.
pub struct Parcels {
    slots: mpsc::Receiver<oneshot::Receiver<Parcel>>,
    /// The place that is waited for: kept here, so that giving up the wait does not give up the parcel.
    awaited: Option<oneshot::Receiver<Parcel>>,
}

/// The place of a parcel in the order read, taken before the work on it begins. Dropped unused, it is passed over.
pub type Slot = oneshot::Sender<Parcel>;

#[derive(Clone)]
pub struct Slots(mpsc::Sender<oneshot::Receiver<Parcel>>);

/// A queue of at most `slots_max` parcels.
pub fn queue(slots_max: usize) -> (Slots, Parcels) {
    let (send, slots) = mpsc::channel(slots_max);
    (Slots(send), Parcels { slots, awaited: None })
}

impl Slots {
    /// Takes the next place if there is one.
    pub fn try_take(&self) -> Option<Slot> {
        let (slot, parcel) = oneshot::channel();
        self.0.try_send(parcel).ok().map(|()| slot)
    }

    /// Takes the next place, waiting while the queue is full. None once the output has ended.
    pub fn take(&self) -> Option<Slot> {
        let (slot, parcel) = oneshot::channel();
        self.0.blocking_send(parcel).ok().map(|()| slot)
    }

    /// As [`Slots::take`]; none too once what is left is to be left.
    pub fn take_unless(&self, phases: &Phases) -> Option<Slot> {
        let (slot, parcel) = oneshot::channel();
        let mut phases = phases.clone();
        block_on(async {
            tokio::select! {
                biased;
                sent = self.0.send(parcel) => sent.ok().map(|()| slot),
                () = abandoned(&mut phases) => None,
            }
        })
    }

    /// The output has ended.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Parcels {
    /// May be dropped before it is ready, and called again, without loss.
    pub async fn next(&mut self) -> Option<Parcel> {
        loop {
            let slot = match &mut self.awaited {
                Some(slot) => slot,
                None => self.awaited.insert(self.slots.recv().await?),
            };
            let parcel = slot.await;
            self.awaited = None;
            if let Ok(parcel) = parcel {
                return Some(parcel);
            }
        }
    }

    /// As [`Parcels::next_blocking`], if something comes within `wait`.
    pub fn next_within(&mut self, wait: Duration) -> Next {
        let until = Instant::now() + wait;
        let next = {
            let mut next = std::pin::pin!(self.next());
            block_on_until(next.as_mut(), Some(until))
        };
        match next {
            Some(Some(parcel)) => Next::Parcel(parcel),
            Some(None) => Next::End,
            None => Next::None,
        }
    }

    /// For outputs that run on a thread of their own.
    pub fn next_blocking(&mut self) -> Option<Parcel> {
        loop {
            let slot = match self.awaited.take() {
                Some(slot) => slot,
                None => self.slots.blocking_recv()?,
            };
            if let Ok(parcel) = slot.blocking_recv() {
                return Some(parcel);
            }
        }
    }

    /// The next one if it is ready.
    pub fn try_next(&mut self) -> Option<Parcel> {
        loop {
            let mut slot = match self.awaited.take() {
                Some(slot) => slot,
                None => self.slots.try_recv().ok()?,
            };
            match slot.try_recv() {
                Ok(parcel) => return Some(parcel),
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.awaited = Some(slot);
                    return None;
                }
                Err(oneshot::error::TryRecvError::Closed) => {}
            }
        }
    }
}

/// What came of waiting for a parcel.
pub enum Next {
    Parcel(Parcel),
    /// Nothing, for as long as it was waited.
    None,
    End,
}

/// Whether the program is going down. Inputs end their reading at `Draining`; outputs go on delivering what was
/// read until they are done or `Abandon` comes, and then leave the rest unsettled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    Draining,
    Abandon,
}

pub type Phases = watch::Receiver<Phase>;

/// Ends when what is left is to be left unsettled.
pub async fn abandoned(phases: &mut Phases) {
    if phases.wait_for(|phase| *phase >= Phase::Abandon).await.is_err() {
        // nobody is there to say so any more
        std::future::pending::<()>().await;
    }
}

/// Waits on this thread for something that needs no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(value) = block_on_until(future.as_mut(), None) {
            return value;
        }
    }
}

/// The same, up to a time.
fn block_on_until<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>, until: Option<Instant>) -> Option<T> {
    struct Unpark(std::thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => std::thread::park(),
            Some(Duration::ZERO) => return None,
            Some(wait) => std::thread::park_timeout(wait),
        }
    }
}

/// Where events end. One instance runs on one thread of its own.
pub trait Output: Send {
    /// What the workers are to pack.
    fn form(&self) -> Form;

    /// The positions that this output saves itself, in one transaction with what they cover; `anew`, they are
    /// forgotten, and files were looked for by these patterns. None if it saves none: then the state folder holds
    /// them. Trouble that may pass is waited out.
    fn positions(&mut self, anew: Option<&[String]>, phases: &Phases) -> anyhow::Result<Option<Before>> {
        let _ = (anew, phases);
        Ok(None)
    }

    /// Delivers until `parcels` ends and every item has its fate told to `acks`, exactly once each. Trouble of the
    /// other side is waited out and said once; only what can never work is an error. Returns early, with items
    /// unsettled, at [`Phase::Abandon`].
    fn run(self: Box<Self>, parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()>;
}
