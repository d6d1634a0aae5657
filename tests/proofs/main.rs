//! What is promised, shown at length against what fails in practice: processes and engines that are killed, networks
//! that cut and repeat, logs that are rotated, too little memory. With all tests these run in a short form; in full,
//! and with what they counted kept under `proofs/`, by `./prove`.

mod faults;
mod kills;
#[path = "../rig/mod.rs"]
mod rig;
mod rotation;
mod soak;

/// What a proof does in full, and in short.
fn of<T>(full: T, short: T) -> T {
    if std::env::var("ONCELINE_PROOF").is_ok_and(|form| form == "full") { full } else { short }
}

/// The seed of what is left to chance; said, so that a failure can be repeated.
fn seed() -> u64 {
    let seed = rig::chaos::given("ONCELINE_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("seed {seed}");
    seed
}
