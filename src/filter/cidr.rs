//! `cidr`: whether an address lies within networks.
//!
//! ```toml
//! [[filter]]
//! type    = "cidr"
//! address = ["%{[source][ip]}"]
//! network = ["10.0.0.0/8", "fe80::/10"]
//! add_tag = "inside"
//! ```
//!
//! Networks are those of the pipeline file, which may hold placeholders, or of a file of their own, which is read again
//! when it changes. Fixed ones are sorted, so a long list costs an event no more than a short one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::common::with_text;
use super::watched::Watched;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, View};
use crate::config::Section;
use crate::field::FieldRef;
use crate::template::Template;

/// `::ffff:0:0/96`: where IPv4 addresses stand among those of IPv6.
const MAPPED: u128 = 0xffff_0000_0000;

#[derive(Clone, Debug)]
pub struct Config {
    pub address: Vec<Template>,
    pub address_field: Option<FieldRef>,
    pub network: Vec<Template>,
    pub network_path: Option<PathBuf>,
    pub refresh_interval: Duration,
    pub separator: String,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let config = Config {
            address: t.parsed_each("address", Template::parse).or_default(),
            address_field: t.parsed("address_field", FieldRef::parse).optional(),
            network: t.parsed_each("network", network).or_default(),
            network_path: t.path("network_path").optional(),
            refresh_interval: Duration::from_secs(t.integer("refresh_interval", 0..).or(600)),
            separator: t.text("separator").or("\n".to_string()),
        };
        if config.address_field.is_some() && !config.address.is_empty() {
            t.fail_at("address_field", "both `address` and `address_field`: say one of them", ());
        } else if !t.has("address_field") && !t.has("address") {
            t.fail_at("type", "nothing to look for: say `address` or `address_field`", ());
        }
        if config.network_path.is_some() && !config.network.is_empty() {
            t.fail_at("network_path", "both `network` and `network_path`: say one of them", ());
        } else if !t.has("network_path") && !t.has("network") {
            t.fail_at("type", "nothing to look in: say `network` or `network_path`", ());
        }
        if config.separator.is_empty() {
            t.fail_at("separator", "`separator` is empty", ());
        }
        Some(config)
    }
}

/// Networks between commas. What has no placeholder must be networks; the rest shows with the events.
fn network(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    if template.is_constant()
        && let Some(wrong) = text.split(',').map(str::trim).find(|part| Block::parse(part).is_none())
    {
        return Err(format!("`{wrong}` is no network, as `192.0.2.0/24` or `2001:db8::/32` is"));
    }
    Ok(template)
}

/// Addresses in a row: a network, or one address. Those of IPv4 count from 0 too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    first: u128,
    last: u128,
    is_v4: bool,
}

impl Block {
    /// `192.0.2.7`, `192.0.2.0/24`, `192.0.2.0/255.255.255.0`, and the same of IPv6, also in brackets or with a zone.
    fn parse(text: &str) -> Option<Block> {
        let (address, size) = text.split_once('/').map_or((text, None), |(address, size)| (address, Some(size)));
        let (address, is_v4) = bits(address)?;
        let width = if is_v4 { 32 } else { 128 };
        let host = match size {
            None => 0,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let is_plain = digits == "0" || !digits.starts_with('0');
                let size = digits.parse::<u32>().ok().filter(|size| is_plain && *size <= width)?;
                all(width - size)
            }
            Some(mask) => {
                let (mask, of_v4) = bits(mask)?;
                let host = !mask & all(width);
                // ones, then zeros
                (of_v4 == is_v4 && host & host.wrapping_add(1) == 0).then_some(host)?
            }
        };
        Some(Block { first: address & !host, last: address | host, is_v4 })
    }

    fn holds(&self, other: Block) -> bool {
        self.is_v4 == other.is_v4 && self.first <= other.first && other.last <= self.last
    }

    /// As one of IPv4, if it is one that stands among those of IPv6.
    fn mapped(&self) -> Option<Block> {
        let is_mapped = !self.is_v4 && self.first >> 32 == MAPPED >> 32 && self.last >> 32 == MAPPED >> 32;
        let low = |bits: u128| bits & all(32);
        is_mapped.then(|| Block { first: low(self.first), last: low(self.last), is_v4: true })
    }
}

/// So many ones at the end.
fn all(width: u32) -> u128 {
    u128::MAX.checked_shr(128 - width).unwrap_or(0)
}

fn bits(text: &str) -> Option<(u128, bool)> {
    Some(match address(text)? {
        IpAddr::V4(v4) => (u32::from(v4).into(), true),
        IpAddr::V6(v6) => (v6.into(), false),
    })
}

/// An address; one of IPv6 may stand in brackets and have a zone.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(v4) = text.parse::<Ipv4Addr>().ok().filter(|_| inner.is_none()) {
        return Some(v4.into());
    }
    let plain = inner.unwrap_or(text);
    let plain = plain.split_once('%').map_or(plain, |(address, _)| address);
    plain.parse::<Ipv6Addr>().ok().map(IpAddr::from)
}

/// Networks, sorted; those within others are left out.
#[derive(Debug, Default)]
struct Networks {
    v4: Vec<Block>,
    v6: Vec<Block>,
}

impl Networks {
    fn new(blocks: impl IntoIterator<Item = Block>) -> Networks {
        let (mut v4, mut v6): (Vec<Block>, Vec<Block>) = blocks.into_iter().partition(|block| block.is_v4);
        for list in [&mut v4, &mut v6] {
            list.sort_unstable_by_key(|block| (block.first, std::cmp::Reverse(block.last)));
            // networks never overlap in part
            list.dedup_by(|next, kept| kept.holds(*next));
        }
        Networks { v4, v6 }
    }

    /// Of a file.
    fn read(path: &Path, separator: &str) -> Result<Networks, String> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read the networks {shown}: {error}"))?;
        let parts = text.trim_start_matches('\u{feff}').split(separator).map(str::trim);
        let parts = parts.filter(|part| !part.is_empty() && !part.starts_with('#'));
        let block = |part: &str| Block::parse(part).ok_or_else(|| format!("{shown}: `{part}` is no network"));
        let blocks: Vec<Block> = parts.map(block).collect::<Result<_, _>>()?;
        if blocks.is_empty() {
            return Err(format!("{shown}: there is no network in it"));
        }
        Ok(Networks::new(blocks))
    }

    fn holds(&self, address: Block) -> bool {
        let list = if address.is_v4 { &self.v4 } else { &self.v6 };
        let behind = list.partition_point(|block| block.first <= address.first);
        let is_in = behind.checked_sub(1).is_some_and(|at| list[at].holds(address));
        is_in || address.mapped().is_some_and(|address| self.holds(address))
    }
}

#[derive(Debug)]
pub struct Cidr {
    config: Config,
    fixed: Networks,
    file: Option<Watched<Networks>>,
    /// Networks that each event says.
    told: Vec<Template>,
}

impl Cidr {
    pub fn build(config: Config) -> Result<Cidr, String> {
        let (fixed, told): (Vec<Template>, Vec<Template>) =
            config.network.iter().cloned().partition(Template::is_constant);
        let fixed = Networks::new(fixed.iter().flat_map(|text| blocks(text.as_str())));
        let open = |path| {
            let read = |path: &Path| Networks::read(path, &config.separator);
            Watched::open(path, config.refresh_interval, read)
        };
        let file = config.network_path.clone().map(open).transpose()?;
        Ok(Cidr { config, fixed, file, told })
    }

    fn is_within(&self, event: &mut EventMut<'_>, fixed: &Networks) -> bool {
        let Some(field) = &self.config.address_field else {
            return self.config.address.iter().any(|address| {
                let address = with_text(event, address, |_, text| Block::parse(text));
                address.is_some_and(|address| fixed.holds(address) || self.is_told(event, &[address]))
            });
        };
        let Some(view) = event.get(field) else { return false };
        if addresses(&view).any(|address| fixed.holds(address)) {
            return true;
        }
        if self.told.is_empty() {
            return false;
        }
        let addresses: Vec<Block> = addresses(&view).collect();
        self.is_told(event, &addresses)
    }

    /// Whether a network that the event says holds one of these addresses.
    fn is_told(&self, event: &mut EventMut<'_>, addresses: &[Block]) -> bool {
        let holds = |network: Block| {
            addresses.iter().any(|a| network.holds(*a) || a.mapped().is_some_and(|address| network.holds(address)))
        };
        self.told.iter().any(|told| with_text(event, told, |_, text| blocks(text).any(holds)))
    }
}

/// The networks between commas.
fn blocks(text: &str) -> impl Iterator<Item = Block> {
    text.split(',').filter_map(|part| Block::parse(part.trim()))
}

/// The addresses of a field: a text, or a list of texts. What is no address is passed over.
fn addresses<'a>(view: &'a View<'a>) -> impl Iterator<Item = Block> + 'a {
    let one = view.as_text().and_then(Block::parse);
    let several = if let View::Array(items) = view { Some(items.entries()) } else { None };
    let several = several.into_iter().flatten().filter_map(|(_, item)| item.as_text().and_then(Block::parse));
    one.into_iter().chain(several)
}

impl Filter for Cidr {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let read = |_: &Networks, path: &Path| Networks::read(path, &self.config.separator);
        let listed = self.file.as_ref().map(|file| file.get(read));
        let is_within = self.is_within(event, listed.as_deref().unwrap_or(&self.fixed));
        if is_within { Applied::Matched } else { Applied::Unmatched }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_read() {
        for (text, want) in [
            ("192.0.2.7", Some((0xc000_0207, 0xc000_0207, true))),
            ("192.0.2.7/24", Some((0xc000_0200, 0xc000_02ff, true))),
            ("192.0.2.7/255.255.255.0", Some((0xc000_0200, 0xc000_02ff, true))),
            ("192.0.2.7/0", Some((0, 0xffff_ffff, true))),
            ("::/0", Some((0, u128::MAX, false))),
            ("::1", Some((1, 1, false))),
            ("[::1]/127", Some((0, 1, false))),
            ("::1/ffff::", Some((0, u128::MAX >> 16, false))),
            ("::1%eth0", Some((1, 1, false))),
            ("192.0.2.7/33", None),
            ("192.0.2.7/024", None),
            ("192.0.2.7/255.0.255.0", None),
            ("192.0.2.7/ffff::", None),
            ("[192.0.2.7]", None),
            ("192.0.2.07", None),
            ("192.0.2", None),
            ("192.0.2.0/", None),
            ("::1/129", None),
            ("", None),
            ("%{ip}", None),
        ] {
            let want = want.map(|(first, last, is_v4)| Block { first, last, is_v4 });
            assert_eq!(Block::parse(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn sorted_networks_hold_what_one_of_them_holds(
            networks in prop::collection::vec((any::<u32>(), 0u32..=32), 0..12),
            address in any::<u32>(),
            near in any::<prop::sample::Index>(),
            size in 24u32..=32,
        ) {
            let blocks: Vec<Block> = networks
                .iter()
                .filter_map(|(address, size)| Block::parse(&format!("{}/{size}", Ipv4Addr::from(*address))))
                .collect();
            prop_assert_eq!(blocks.len(), networks.len());
            let address = if networks.is_empty() { address } else { networks[near.index(networks.len())].0 ^ (address % 512) };
            let text = Ipv4Addr::from(address);
            let sorted = Networks::new(blocks.clone());
            let one = Block::parse(&format!("{text}/{size}")).unwrap();
            prop_assert_eq!(sorted.holds(one), blocks.iter().any(|block| block.holds(one)));
            let mapped = Block::parse(&format!("::ffff:{text}")).unwrap();
            let plain = Block::parse(&text.to_string()).unwrap();
            prop_assert_eq!(sorted.holds(mapped), blocks.iter().any(|block| block.holds(plain)));
        }
    }
}
