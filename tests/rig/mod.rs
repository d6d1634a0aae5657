//! What integration tests stand on: real engines, a scripted stub of the bulk endpoint, a proxy that breaks
//! connections, another that speaks TLS, and a runner of the built program. Not a test itself: a test binary says `mod rig;`.

// Each test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

pub mod chaos;
mod engine;
mod http;
mod parcels;
mod program;
mod proxy;
mod stub;
mod tls;

pub use engine::{Doc, Engine, OwnEngine};
pub use http::{Answer, Http};
pub use parcels::{Event, event, parcel};
pub use program::{Onceline, Run, Running};
pub use proxy::{Fault, Proxy};
pub use stub::{Bulk, Op, Stub};
pub use tls::{Authority, Leaf, Tls};

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waits for what must come, and fails when it does not come in a minute or two.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A prefix for index names that no other test, process or earlier run has: engines outlive test binaries.
pub fn unique_prefix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let count = COUNT.fetch_add(1, Relaxed);
    format!("t{:x}-{}-{count}", now.as_millis(), std::process::id())
}
