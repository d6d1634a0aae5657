//! Packs a batch for the output: each live event gets its id and its index, and its bytes in the body; each other
//! event gets its letter or is counted as dropped.

use std::collections::HashSet;
use std::sync::Arc;

use super::Pipeline;
use crate::ack::{Letter, Reason};
use crate::batch::{Batch, Death, EventRef, Fate, StoredPart};
use crate::id;
use crate::index::Names;
use crate::json;
use crate::output::{self, Form, Item};
use crate::pool::{Buffer, Pool};
use crate::time::Time;

/// How large a body is for each byte read until something is known, and at most: one that becomes larger grows.
const GROWTH_ASSUMED: f64 = 1.5;
const GROWTH_MAX: f64 = 4.0;

/// What became of a batch.
#[derive(Default)]
pub struct Packed {
    pub body: Buffer,
    pub items: Vec<Item>,
    pub indices: Vec<Arc<str>>,
    pub letters: Vec<Letter>,
    pub dropped: u64,
}

impl Packed {
    /// Leaves out what is stored already and must not be written over what came after it; how much.
    pub fn leave_out(&mut self, stored: &[StoredPart]) -> u64 {
        if stored.is_empty() {
            return 0;
        }
        let stored: HashSet<&StoredPart> = stored.iter().collect();
        let is_stored: Vec<bool> = output::parts(&self.body, &self.items).map(|part| stored.contains(&part)).collect();
        let (count, mut each) = (self.items.len(), is_stored.iter());
        self.items.retain(|_| each.next() == Some(&false));
        (count - self.items.len()) as u64
    }
}

/// Where an event goes.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// A place among the packer's names.
    pub index: u32,
    /// The id is in the packer's id buffer; false where the engine makes it.
    pub has_id: bool,
}

/// A worker's packer: scratch space that outlives the batch.
pub struct Packer<'a> {
    pipeline: &'a Pipeline,
    form: Form,
    names: Names,
    /// For each name, what stands in a bulk body before the id.
    heads: Vec<Vec<u8>>,
    id: Vec<u8>,
    scratch: id::Scratch,
    digests: id::Digests,
    bodies: Pool,
    /// How large a body is for each byte read, as far as that is known.
    growth: f64,
    family: Family,
}

/// The ids of the events that filters made of one record, and of the event that they were made of.
#[derive(Default)]
struct Family {
    record: Option<usize>,
    ids: HashSet<(u32, Vec<u8>)>,
}

impl Family {
    /// Whether no event of the record has this id in this index; it has it now.
    fn is_first(&mut self, event: &EventRef<'_>, index: u32, id: &[u8]) -> bool {
        let record = event.raw().as_ptr().addr();
        if self.record.replace(record) != Some(record) {
            self.ids.clear();
        }
        self.ids.insert((index, id.to_vec()))
    }
}

impl<'a> Packer<'a> {
    /// `bodies` is where bodies come from.
    pub fn new(pipeline: &'a Pipeline, form: Form, bodies: Pool) -> Packer<'a> {
        let (names, scratch, digests) = (Names::default(), id::Scratch::default(), id::Digests::default());
        Packer {
            pipeline,
            form,
            names,
            heads: Vec::new(),
            id: Vec::new(),
            scratch,
            digests,
            bodies,
            growth: GROWTH_ASSUMED,
            family: Family::default(),
        }
    }

    /// Begins a batch: what is done for all its events at once.
    pub fn begin(&mut self, batch: &Batch) {
        self.family.record = None;
        self.pipeline.ids.digest(batch, &mut self.scratch, &mut self.digests);
    }

    pub fn pack(&mut self, batch: &Batch) -> Packed {
        self.begin(batch);
        let mut packed = Packed { body: self.body(batch), ..Packed::default() };
        packed.items.reserve_exact(batch.len());
        for index in 0..batch.len() {
            let event = batch.event(index);
            match event.fate() {
                Fate::Dropped => packed.dropped += 1,
                Fate::Dead(death) => packed.letters.push(letter(&event, death, None, None)),
                Fate::Live => self.deliver(&event, &mut packed),
            }
        }
        packed.indices = self.names.take();
        self.heads.clear();
        self.fit(batch, &mut packed);
        packed
    }

    /// An empty body, about as large as those before it became: what stays empty of it is held for nothing.
    fn body(&self, batch: &Batch) -> Buffer {
        self.bodies.take((batch.read_bytes() as f64 * self.growth) as usize)
    }

    /// Gives back what is much too large, and remembers how large it had to be.
    fn fit(&mut self, batch: &Batch, packed: &mut Packed) {
        let (body, items) = (&mut packed.body, &mut packed.items);
        let was_needed = body.len() as f64 / batch.read_bytes().max(1) as f64;
        self.growth = (was_needed * 1.05).max(self.growth * 0.9).min(GROWTH_MAX);
        if body.len() + body.len() / 2 < body.capacity() {
            body.shrink_to_fit();
        }
        if items.len() + items.len() / 2 < items.capacity() {
            items.shrink_to_fit();
        }
    }

    fn deliver(&mut self, event: &EventRef<'_>, packed: &mut Packed) {
        match self.address(event) {
            Ok(address) => self.write(event, address, packed),
            Err((reason, detail)) => {
                packed.letters.push(letter(event, &Death { reason, detail }, None, None));
            }
        }
    }

    /// Finds the id and the index of an event of the batch begun.
    pub fn address(&mut self, event: &EventRef<'_>) -> Result<Address, (Reason, String)> {
        let time = event.time().unwrap_or(Time::EPOCH);
        self.id.clear();
        let has_id = self.pipeline.ids.write(event, time, &self.digests, &mut self.id)?;
        let index = self.pipeline.route.find(event, time, &mut self.names)?;
        if event.has_family() && has_id && !self.family.is_first(event, index, &self.id) && event.is_made() {
            self.pipeline.ids.write_apart(event, time, &mut self.scratch, &mut self.id)?;
        }
        Ok(Address { index, has_id })
    }

    /// The id that [`Packer::address`] found.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    pub fn index_name(&self, address: Address) -> &str {
        self.names.get(address.index)
    }

    fn write(&mut self, event: &EventRef<'_>, address: Address, packed: &mut Packed) {
        let body = &mut packed.body;
        let head_at = body.len();
        match self.form {
            Form::Lines => {}
            Form::Rows => body.extend_from_slice(&self.id),
            Form::Bulk(action) => {
                while self.heads.len() <= address.index as usize {
                    let name = self.names.get(self.heads.len() as u32);
                    let mut head = format!("{{\"{}\":{{\"_index\":", action.as_str()).into_bytes();
                    json::write_string(name.as_bytes(), &mut head);
                    self.heads.push(head);
                }
                body.extend_from_slice(&self.heads[address.index as usize]);
                if address.has_id {
                    body.extend_from_slice(b",\"_id\":");
                    json::write_string(&self.id, body);
                }
                body.extend_from_slice(b"}}\n");
            }
        }
        let source_at = body.len();
        event.write_source(body);
        body.push(b'\n');
        packed.items.push(Item {
            head_at: head_at as u32,
            source_at: source_at as u32,
            end: body.len() as u32,
            index: address.index,
            id_hash: if self.pipeline.ordered { hash(&self.id) } else { 0 },
            is_part: event.part().is_some(),
            offset: event.offset(),
        });
    }
}

/// FNV-1a: only to tell lanes apart.
fn hash(id: &[u8]) -> u32 {
    id.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The letter of an event that ends before the output.
pub fn letter(event: &EventRef<'_>, death: &Death, id: Option<String>, index: Option<String>) -> Letter {
    let has_event = !event.fields().is_empty();
    let json = has_event.then(|| {
        let mut json = Vec::new();
        event.write_source(&mut json);
        json
    });
    Letter {
        event: json,
        // a record of several events is not kept with each of them
        raw: if event.part().is_some() { Vec::new() } else { event.raw().to_vec() },
        // what the engine finds too large is whole
        is_cut: death.reason == Reason::TooLarge,
        id,
        index,
        source: event.source().name.to_string(),
        offset: event.offset(),
        is_part: event.part().is_some(),
        ..Letter::new(death.reason, death.detail.clone())
    }
}
