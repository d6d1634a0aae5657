//! The members of an object in the order of their keys' bytes, without a map and, once warm, without allocating.

use crate::batch::{Seq, View};

/// Buffers kept from event to event.
#[derive(Default)]
pub struct Sort {
    members: Vec<Member>,
    keys: Vec<u8>,
    swap: Vec<u8>,
}

/// Where a member's key stands in `keys`, and what was written for it in the output.
#[derive(Clone, Copy)]
struct Member {
    key: (usize, usize),
    text: (usize, usize),
}

/// How one member is written; it may sort the members of objects within.
pub type WriteMember = fn(&str, &View<'_>, &mut Sort, &mut Vec<u8>);

impl Sort {
    /// Writes every member of an object with `write`, in the order of the keys, and says how many there are.
    pub fn write(&mut self, object: &Seq<'_>, write: WriteMember, out: &mut Vec<u8>) -> usize {
        let (first, first_key, start) = (self.members.len(), self.keys.len(), out.len());
        for (key, value) in object.entries() {
            let from = out.len();
            write(&key, &value, self, out);
            let key_from = self.keys.len();
            self.keys.extend_from_slice(key.as_bytes());
            self.members.push(Member { key: (key_from, self.keys.len()), text: (from, out.len()) });
        }
        let Sort { members, keys, swap } = self;
        let own = &mut members[first..];
        let by_key = |member: &Member| &keys[member.key.0..member.key.1];
        if !own.is_sorted_by_key(by_key) {
            own.sort_unstable_by(|a, b| by_key(a).cmp(by_key(b)));
            swap.clear();
            own.iter().for_each(|member| swap.extend_from_slice(&out[member.text.0..member.text.1]));
            out[start..].copy_from_slice(swap);
        }
        let count = own.len();
        members.truncate(first);
        keys.truncate(first_key);
        count
    }
}
