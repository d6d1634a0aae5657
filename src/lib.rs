//! onceline: every event, indexed once. This is the map of the code.
//!
//! ```text
//!  input            worker, one a core                                    output           ack
//!  ─────            ──────────────────                                    ──────           ───
//!  read, cut at     codec ─> filters ─> stamp ─> id ─> index ─> pack      send, read the   letters to the disk,
//!  the last line                                                          answer           then counts, positions
//!     │ Block          │ Batch of events                     │ Parcel        │ ends of events   ▲
//!     └─── jobs ───────┴─────────────────────────────────────┴── slots ──────┴── Settled ───────┘
//! ```
//!
//! A thread an input, a worker a core, one thread for the output, one for what is settled. Two bounded queues lead
//! forward, counted in bytes; what goes back is a small receipt a batch. Only [`pipeline::run`] knows threads and
//! queues, only [`config`] knows TOML, and what lies between input and output does no I/O and cannot fail.
//!
//! # Modules, in the order of the data path
//!
//! - [`config`]: pipeline files: typed getters, and errors that point at the place
//! - [`pipeline`]: a pipeline file as running threads; `check`, `explain`, `test`, dead letters sent
//!   again
//! - [`input`]: standard input and files: blocks of whole lines, each with a receipt
//! - [`codec`]: records as events: `plain`, `json`, `csv`, `logfmt`, `syslog`, `cef`
//! - [`batch`]: what flows: many events over one buffer
//! - [`filter`]: changes events, or makes several of one, with [`condition`] for `when`; a file each, named as in
//!   pipeline files
//! - [`stamp`]: the event's own time, and the accepted window
//! - [`id`]: which bytes are hashed, how, and the id that is made of the digest and the time
//! - [`index`]: the index by the event itself
//! - [`output`]: OpenSearch and Elasticsearch, SQLite, lines
//! - [`ack`]: fates counted, dead letters written, positions moved and saved
//!
//! What they stand on: [`time`], [`date`] (reading and writing times), [`field`] (`[a][b]`), [`template`]
//! (`%{field}`), [`json`] (scanning without a tree), [`mod@csv`] (its lines), [`regexp`] (Ruby's patterns, and the
//! machine that `grok` runs), [`pool`] (buffers used again), [`disk`] (what must last), [`secret`] (where secrets are
//! kept).
//! [`mod@bench`] measures ids and the whole way; [`import`] makes pipeline files of Logstash's configurations.
//!
//! `fuzz/` fuzzes what reads bytes that others made, by properties that stand in `tests/properties` and are replayed
//! by `tests/corpus.rs`. They use what is public: reading bulk answers is not, and is reached by delivering to an
//! engine that gives them.
//!
//! # One word per thing
//!
//! - source: a file, or standard input. Record: a line of it, without its end. Event: what a codec made of a record.
//! - block: bytes of whole lines, as read. Batch: the same decoded. Parcel: the same packed, ready to send.
//! - raw bytes: a record's bytes, before any character set is converted and any filter has run.
//! - id: what a document is found by. Scheme: how it is made. Serialization: which bytes of several fields are hashed.
//! - item: an event in a parcel. Action: `index` or `create`.
//! - fate: how an event ends: created, duplicate, stale, dropped, a dead letter. Settled: it has its fate.
//! - receipt: the claim of a batch on its place in the source. Ledger: which places are settled.
//! - identity: what a file is known by. Mark: a place in it that is safe to go on from. Position: a saved mark.
//!   Print: a digest of the bytes at one place. Offsets and prints are of the text, decompressed.
//! - dead letter: an event set aside, with a reason. Told: in the file already, of what may be read again.
//! - held: waiting because its index takes nothing now.
//! - kept: read from what cannot be read again, and not settled. Spool: a file of what was kept at a stop.
//! - strict: what would let one event become two documents is refused.
//!
//! # Invariants, and the tests that show them
//!
//! 1. An id is for ever, and equal events have equal ids: `tests/golden_ids.rs`, `tests/golden_hashed.rs`. Later
//!    times sort later, different fields never share a serialization: property tests in [`id`].
//! 2. The batch is the unit of work and acknowledgement, and of memory as long as much of it is open. No map, lock or
//!    log line per event.
//! 3. Text is a span into the batch's bytes. An event that nothing changes is stored as the bytes it came as:
//!    tests in [`codec::json`]. There is no unsafe code.
//! 4. What lies between input and output marks an event (a tag, or an end) and never gives up a batch:
//!    `tests/filters.rs`.
//! 5. Nothing starts out as delivered. A receipt that is dropped says "not done": [`ack::Receipt`].
//! 6. A dead letter is on the disk before its event counts: [`ack::LetterFile`].
//! 7. Counts add up: `events_in` is the sum of the fates and of what is unsettled: [`ack::Summary`].
//! 8. An answer speaks for each item, by status and error type, never by text. What succeeded is never sent again:
//!    [`output::elasticsearch`], `tests/elasticsearch_output.rs`.
//! 9. Parcels leave in the order read although workers finish in any order: [`output::Slots`]. Where a newer write
//!    must win, a lane of the ids has one request under way.
//! 10. Everything has a limit with its unit in the name: lines, batches, bytes in flight, slots, requests, waits.
//! 11. The present time never enters an id or an index name unless the pipeline file asks for it.
//! 12. A saved or noted position never passes an open batch, nor a letter that is not on the disk; with SQLite it commits with
//!     its rows: property tests in [`ack`], `tests/program/positions.rs`. State that cannot be used is an error.
//! 13. A file is the one that was read only if its bytes say so, by one rule ([`input::known`]), and looked at after
//!     reading: [`input::follow`], `tests/following`.
//! 14. What was read of standard input and has no fate is written to a spool before the process ends, unless it is
//!     killed: [`ack::kept`], [`input::spool`], `tests/program/stopping.rs`.
//! 15. A dead letter leaves its file only after its event has another fate: [`pipeline::replay`]. A line that is read
//!     again has no second one, and no letter is left out in doubt: [`ack::told`], `tests/program/read_again.rs`.
//! 16. All of this holds together, whatever fails and whenever the process ends: `tests/simulation`, and with real
//!     processes and engines `tests/proofs`.
//! 17. Whatever its bytes are, no parser panics, or takes for nothing what it cannot read: `tests/corpus.rs`.
//! 18. Every key, filter and reason is documented, and every example can be read: `tests/docs.rs`.

#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what an input or a server can bring about must not end the process"
)]
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "results are main's to print, the rest is logged")]

pub mod config;
pub mod pipeline;
pub mod pool;

pub mod input;

pub mod codec;

pub mod batch;

pub mod condition;
pub mod filter;

pub mod stamp;

pub mod id;
pub mod index;

pub mod output;

pub mod ack;

pub mod bench;
pub mod csv;
pub mod date;
pub mod disk;
pub mod field;
pub mod import;
pub mod json;
pub mod regexp;
pub mod secret;
pub mod template;
pub mod time;
