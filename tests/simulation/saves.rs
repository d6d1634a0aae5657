//! Saved positions as the pipeline saves them, looked at on their way to the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use onceline::ack::positions::{Save, Store};
use onceline::input::identity::Position;

use crate::check;
use crate::disk::{Disk, Inode};
use crate::world::{World, lock};

pub const STATE: &str = "/state";

/// How far each file is read and settled.
pub type Places = BTreeMap<Inode, u64>;

pub fn places(positions: &[Position]) -> Places {
    positions.iter().map(|position| (position.identity.inode, position.mark.offset)).collect()
}

/// The store of one life.
pub struct Watched {
    pub store: Store<Disk>,
    pub world: Arc<World>,
    /// What is on the disk.
    pub saved: Arc<Mutex<Places>>,
}

pub fn load(world: &Arc<World>, from_start: bool) -> anyhow::Result<Watched> {
    let store = match from_start {
        true => Store::empty_on(world.disk.clone(), Path::new(STATE)),
        false => Store::load_from(world.disk.clone(), Path::new(STATE))?,
    };
    let saved = Arc::new(Mutex::new(places(&store.positions())));
    Ok(Watched { store, world: world.clone(), saved })
}

impl Save for Watched {
    fn save(&mut self, moved: Vec<Position>) -> anyhow::Result<()> {
        let mut wanted = places(&self.store.positions());
        wanted.append(&mut places(&moved));
        check::positions(&self.world, &wanted, "about to be saved");
        let done = self.store.save(moved);
        match &done {
            Ok(()) => *lock(&self.saved) = wanted,
            Err(_) => self.world.clock.note("positions not saved", 0),
        }
        done
    }
}
