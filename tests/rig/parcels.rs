//! Parcels made by hand.

use onceline::ack::Receipt;
use onceline::output::{Action, Item, Parcel};
use serde_json::{Value, json};

/// Events as `(index, id, source)`.
pub type Event = (String, String, Value);

pub fn event(index: &str, id: &str, source: Value) -> Event {
    (index.to_string(), id.to_string(), source)
}

pub fn parcel(action: Action, number: u64, events: &[Event]) -> Parcel {
    let receipt = Receipt::new(0, number, None);
    receipt.open(events.len());
    let mut parcel =
        Parcel { body: Vec::new().into(), items: Vec::new(), indices: Vec::new(), source: "test".into(), receipt };
    for (n, (index, id, source)) in events.iter().enumerate() {
        let at = parcel.indices.iter().position(|name| **name == **index).unwrap_or_else(|| {
            parcel.indices.push(index.as_str().into());
            parcel.indices.len() - 1
        });
        let head_at = parcel.body.len() as u32;
        let head = json!({ (action.as_str()): {"_index": index, "_id": id} });
        parcel.body.extend_from_slice(format!("{head}\n").as_bytes());
        let source_at = parcel.body.len() as u32;
        parcel.body.extend_from_slice(format!("{source}\n").as_bytes());
        let end = parcel.body.len() as u32;
        let id_hash = id.bytes().fold(1u32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
        parcel.items.push(Item {
            head_at,
            source_at,
            end,
            index: at as u32,
            id_hash,
            is_part: false,
            offset: n as u64,
        });
    }
    parcel
}
