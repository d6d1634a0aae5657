//! Writes small databases in MaxMind's format, by its specification (version 2.0): a tree of the bits of addresses, of
//! which the leaves are places in the data behind it.

use std::net::IpAddr;

use serde_json::{Value, json};

const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Between the tree and the data.
const SEPARATOR: [u8; 16] = [0; 16];

/// What a bit leads to.
#[derive(Clone, Copy)]
enum Leads {
    Nowhere,
    Node(usize),
    /// Where it begins in the data.
    Data(usize),
}

/// A database of the kind `of_type` that knows these networks. IPv4 stands at the beginning of IPv6.
pub fn database(of_type: &str, networks: &[(&str, Value)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Leads::Nowhere; 2]], Vec::new());
    for (network, record) in networks {
        let (address, size) = network.split_once('/').expect("a network has a size");
        let size: usize = size.parse().expect("a size is a number");
        let (bits, size) = match address.parse().expect("a network has an address") {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), size + 96),
            IpAddr::V6(v6) => (u128::from(v6), size),
        };
        let mut at = 0;
        for depth in 0..size {
            let bit = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == size {
                nodes[at][bit] = Leads::Data(data.len());
                break;
            }
            at = match nodes[at][bit] {
                Leads::Node(next) => next,
                _ => {
                    nodes.push([Leads::Nowhere; 2]);
                    let next = nodes.len() - 1;
                    nodes[at][bit] = Leads::Node(next);
                    next
                }
            };
        }
        write(record, &mut data);
    }
    let record = |leads: Leads| match leads {
        Leads::Nowhere => nodes.len(),
        Leads::Node(number) => number,
        Leads::Data(at) => nodes.len() + SEPARATOR.len() + at,
    };
    let tree = nodes.iter().flatten().flat_map(|leads| (record(*leads) as u32).to_be_bytes()[1..].to_vec());
    let mut out: Vec<u8> = tree.collect();
    out.extend(SEPARATOR);
    out.extend(data);
    out.extend(MARKER);
    control(7, 9, &mut out);
    for (name, text) in [
        ("database_type", json!(of_type)),
        ("description", json!({"en": "made by a test"})),
        ("languages", json!(["en"])),
    ] {
        write(&name.into(), &mut out);
        write(&text, &mut out);
    }
    // the specification says how wide each of these is
    for (name, of_type, number) in [
        ("binary_format_major_version", UINT16, 2),
        ("binary_format_minor_version", UINT16, 0),
        ("build_epoch", UINT64, 1_770_000_000),
        ("ip_version", UINT16, 6),
        ("node_count", UINT32, nodes.len() as u64),
        ("record_size", UINT16, 24),
    ] {
        write(&name.into(), &mut out);
        write_number(of_type, number, &mut out);
    }
    out
}

const UINT16: (u8, usize) = (5, 2);
const UINT32: (u8, usize) = (6, 4);
const UINT64: (u8, usize) = (9, 8);

fn write_number((of_type, bytes): (u8, usize), number: u64, out: &mut Vec<u8>) {
    control(of_type, bytes, out);
    out.extend(&number.to_be_bytes()[8 - bytes..]);
}

/// A value; a number that is not whole is a double.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => panic!("there is no null in the format"),
        Value::Bool(is) => control(14, usize::from(*is), out),
        Value::String(text) => {
            control(2, text.len(), out);
            out.extend(text.as_bytes());
        }
        Value::Number(number) => match number.as_u64() {
            Some(number) => write_number(if number < 0x1_0000 { UINT16 } else { UINT32 }, number, out),
            None => {
                control(3, 8, out);
                out.extend(number.as_f64().expect("a double").to_be_bytes());
            }
        },
        Value::Array(items) => {
            control(11, items.len(), out);
            items.iter().for_each(|item| write(item, out));
        }
        Value::Object(members) => {
            control(7, members.len(), out);
            for (name, member) in members {
                write(&name.as_str().into(), out);
                write(member, out);
            }
        }
    }
}

/// A type and a size.
fn control(of_type: u8, size: usize, out: &mut Vec<u8>) {
    let (short, more) = match size {
        0..29 => (size as u8, vec![]),
        29..285 => (29, vec![(size - 29) as u8]),
        _ => (30, ((size - 285) as u16).to_be_bytes().to_vec()),
    };
    if of_type < 8 {
        out.push(of_type << 5 | short);
    } else {
        out.extend([short, of_type - 7]);
    }
    out.extend(more);
}
