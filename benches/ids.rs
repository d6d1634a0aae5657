//! `cargo bench --bench ids`: nanoseconds an id for each scheme and method, over lines of 300 bytes. `-- --json` for
//! programs. `onceline bench ids --client-only` gives the same for a user's own lines.

use onceline::bench::ids::{cases, client_only, json, sample_events, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = client_only(&sample_events(20_000, 300), &cases()?, 9).map_err(|refused| refused.to_string())?;
    if std::env::args().any(|arg| arg == "--json") {
        println!("{}", json(&rows));
    } else {
        print!("{}", table(&rows));
    }
    Ok(())
}
