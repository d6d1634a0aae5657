//! Tells at once when something changes in a folder, where the system can (inotify). Whatever it misses is found by
//! polling: changes through a network file system, or behind a symbolic link.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::machine::Hint;

pub struct Watch {
    /// None where there is nothing but polling.
    queue: Option<OwnedFd>,
    folders: HashMap<i32, PathBuf>,
    watched: BTreeSet<PathBuf>,
    /// Folders that cannot be watched, said once.
    refused: BTreeSet<PathBuf>,
}

impl Watch {
    pub fn new() -> Watch {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let queue = queue.inspect_err(|error| tracing::info!(%error, "changes are noticed by polling alone")).ok();
        Watch { queue, folders: HashMap::new(), watched: BTreeSet::new(), refused: BTreeSet::new() }
    }

    /// Watches these folders; those that went are forgotten by themselves.
    pub fn follow(&mut self, folders: &[PathBuf]) {
        let Some(queue) = &self.queue else { return };
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        for folder in folders {
            if self.watched.contains(folder) {
                continue;
            }
            match inotify::add_watch(queue, folder, flags) {
                Ok(watch) => {
                    self.watched.insert(folder.clone());
                    self.folders.insert(watch, folder.clone());
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    if self.refused.insert(folder.clone()) {
                        tracing::info!(path = %folder.display(), %error, "changes here are noticed by polling alone");
                    }
                }
            }
        }
    }

    /// Waits until something changed, `wait` at most. True if something did.
    pub fn wait(&self, wait: Duration) -> bool {
        let Some(queue) = &self.queue else {
            std::thread::sleep(wait);
            return false;
        };
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut wanted = [PollFd::new(queue, PollFlags::IN)];
        rustix::event::poll(&mut wanted, Some(&wait)).is_ok_and(|ready| ready > 0)
    }

    /// What changed since it was last asked, each once.
    pub fn hints(&mut self) -> Vec<Hint> {
        let Some(queue) = &self.queue else { return Vec::new() };
        let mut hints = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut events = inotify::Reader::new(queue, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let what = event.events();
            if what.contains(ReadFlags::IGNORED) {
                // the folder is gone; one that comes again by its name is watched anew
                if let Some(folder) = self.folders.remove(&event.wd()) {
                    self.watched.remove(&folder);
                }
            }
            if what.intersects(ReadFlags::ISDIR | ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED) {
                hints.insert(Hint::Folders);
            } else if let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name()) {
                hints.insert(Hint::Path(folder.join(OsStr::from_bytes(name.to_bytes()))));
            }
        }
        hints.into_iter().collect()
    }
}
