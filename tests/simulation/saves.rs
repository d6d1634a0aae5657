//! Saved positions as the pipeline saves them, looked at on their way to the disk.

use std::path::Path;
use std::sync::Arc;

use onceline::ack::Moves;
use onceline::ack::positions::{Save, Store};
use onceline::ack::told::Told;
use onceline::input::identity::Position;
use onceline::input::spool;

use crate::check;
use crate::disk::Disk;
use crate::input::SPOOLS;
use crate::life::LETTERS;
use crate::world::{Crashed, World};

pub const STATE: &str = "/state";

/// The store of one life.
pub struct Watched {
    pub store: Store<Disk>,
    pub world: Arc<World>,
}

pub fn load(world: &Arc<World>, from_start: bool) -> anyhow::Result<Watched> {
    let store = match from_start {
        true => Store::empty_on(world.disk.clone(), Path::new(STATE)),
        false => Store::load_from(world.disk.clone(), Path::new(STATE))?,
    };
    Ok(Watched { store, world: world.clone() })
}

/// The letters of what may be read again, as `pipeline::run` has it.
pub fn told(world: &World, positions: &[Position]) -> Result<Told, Crashed> {
    let spools = spool::files(&world.disk, Path::new(SPOOLS)).map_err(|_| Crashed)?;
    let spools = spools.iter().filter_map(|path| spool::number(path)).collect();
    Told::load(&world.disk, Path::new(LETTERS), positions, &spools).map_err(|_| Crashed)
}

impl Watched {
    fn look(&self, moved: &[Position], what: &str) {
        let mut wanted = self.store.positions();
        for position in moved {
            wanted.retain(|known| known.number != position.number);
            wanted.push(position.clone());
        }
        check::positions(&self.world, &wanted, what);
    }
}

impl Save for Watched {
    fn save(&mut self, moves: Moves) -> anyhow::Result<()> {
        self.look(&moves.positions, "about to be saved");
        let done = self.store.save(moves);
        if done.is_err() {
            self.world.clock.note("positions not saved", 0);
        }
        done
    }

    fn note(&mut self, moves: Moves) {
        self.look(&moves.positions, "about to be noted");
        self.store.note(moves);
    }
}
