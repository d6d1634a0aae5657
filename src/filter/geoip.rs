//! `geoip`: where an address is, or whose, by a database in MaxMind's format.
//!
//! ```text
//! [[filter]]
//! type     = "geoip"
//! source   = "clientip"
//! database = "/var/lib/GeoIP/GeoLite2-City.mmdb"
//! ```
//!
//! The database is read into memory at the start; none comes along, and none is downloaded. An address that is not in
//! it, private ones among them, tags the event.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use maxminddb::PathElement::{self, IndexFromEnd, Key};
use maxminddb::{LookupResult, MaxMindDbError, Reader};

use super::cidr::address;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;

pub struct Config {
    pub source: FieldRef,
    pub target: FieldRef,
    pub database: PathBuf,
    /// None: those that are usual for the kind of database.
    pub fields: Option<Vec<&'static Piece>>,
    pub ecs: bool,
    pub tag_on_failure: Vec<String>,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        let source = t.parsed("source", FieldRef::parse).required();
        let target = t.parsed("target", FieldRef::parse).optional();
        let database = t.path("database").required();
        let fields = t.parsed_each("fields", piece).optional().filter(|fields| !fields.is_empty());
        let tag_on_failure = t.texts("tag_on_failure").or(vec!["_geoip_lookup_failure".to_string()]);
        let source = source?;
        let target = match target {
            Some(target) => target,
            None if !ecs => FieldRef::top("geoip"),
            None => {
                let above = source.canonical().strip_suffix("[ip]").and_then(|above| FieldRef::parse(above).ok());
                if above.is_none() && !t.has("target") {
                    let why = "with `ecs_compatibility` a `source` that is no `[…][ip]` wants a `target`";
                    t.fail_at("source", why, ());
                }
                above?
            }
        };
        Some(Config { source, target, database: database?, fields, ecs, tag_on_failure })
    }
}

/// A piece of what databases know.
#[derive(Debug)]
pub struct Piece {
    /// As `fields` has it.
    name: &'static str,
    /// Where it goes in the target.
    plain: &'static str,
    /// The same in the Elastic Common Schema; empty if it has no place there.
    schema: &'static str,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Text(&'static [PathElement<'static>]),
    Number(&'static [PathElement<'static>]),
    Degrees(&'static [PathElement<'static>]),
    /// False where it is not said.
    Is(&'static str),
    Address,
    Network,
    /// Both degrees, as an object.
    Location,
    /// Those of the country and of the region: `GB-ENG`.
    RegionCode,
}

const COUNTRY_CODE: &[PathElement<'static>] = &[Key("country"), Key("iso_code")];
const REGION_CODE: &[PathElement<'static>] = &[Key("subdivisions"), IndexFromEnd(0), Key("iso_code")];
const LATITUDE: &[PathElement<'static>] = &[Key("location"), Key("latitude")];
const LONGITUDE: &[PathElement<'static>] = &[Key("location"), Key("longitude")];

/// All, in the order in which they are set.
const PIECES: &[Piece] = &[
    piece_of("autonomous_system_number", "asn", "[as][number]", What::Number(&[Key("autonomous_system_number")])),
    piece_of(
        "autonomous_system_organization",
        "as_org",
        "[as][organization][name]",
        What::Text(&[Key("autonomous_system_organization")]),
    ),
    piece_of("city_name", "city_name", "[geo][city_name]", What::Text(&[Key("city"), Key("names"), Key("en")])),
    piece_of(
        "country_name",
        "country_name",
        "[geo][country_name]",
        What::Text(&[Key("country"), Key("names"), Key("en")]),
    ),
    piece_of("continent_code", "continent_code", "[geo][continent_code]", What::Text(&[Key("continent"), Key("code")])),
    piece_of(
        "continent_name",
        "continent_name",
        "[geo][continent_name]",
        What::Text(&[Key("continent"), Key("names"), Key("en")]),
    ),
    piece_of("country_code2", "country_code2", "[geo][country_iso_code]", What::Text(COUNTRY_CODE)),
    piece_of("country_code3", "country_code3", "", What::Text(COUNTRY_CODE)),
    piece_of("domain", "domain", "[domain]", What::Text(&[Key("domain")])),
    piece_of("ip", "ip", "[ip]", What::Address),
    piece_of("isp", "isp", "[mmdb][isp]", What::Text(&[Key("isp")])),
    piece_of("postal_code", "postal_code", "[geo][postal_code]", What::Text(&[Key("postal"), Key("code")])),
    piece_of("dma_code", "dma_code", "[mmdb][dma_code]", What::Number(&[Key("location"), Key("metro_code")])),
    piece_of(
        "region_name",
        "region_name",
        "[geo][region_name]",
        What::Text(&[Key("subdivisions"), IndexFromEnd(0), Key("names"), Key("en")]),
    ),
    piece_of("region_code", "region_code", "[geo][region_code]", What::Text(REGION_CODE)),
    piece_of("region_iso_code", "region_iso_code", "[geo][region_iso_code]", What::RegionCode),
    piece_of("timezone", "timezone", "[geo][timezone]", What::Text(&[Key("location"), Key("time_zone")])),
    piece_of("location", "location", "[geo][location]", What::Location),
    piece_of("latitude", "latitude", "[geo][location][lat]", What::Degrees(LATITUDE)),
    piece_of("longitude", "longitude", "[geo][location][lon]", What::Degrees(LONGITUDE)),
    piece_of("organization", "organization", "[mmdb][organization]", What::Text(&[Key("organization")])),
    piece_of("network", "network", "[ip_traits][network]", What::Network),
    piece_of("hosting_provider", "hosting_provider", "[ip_traits][hosting_provider]", What::Is("is_hosting_provider")),
    piece_of("tor_exit_node", "tor_exit_node", "[ip_traits][tor_exit_node]", What::Is("is_tor_exit_node")),
    piece_of("anonymous_vpn", "anonymous_vpn", "[ip_traits][anonymous_vpn]", What::Is("is_anonymous_vpn")),
    piece_of("anonymous", "anonymous", "[ip_traits][anonymous]", What::Is("is_anonymous")),
    piece_of("public_proxy", "public_proxy", "[ip_traits][public_proxy]", What::Is("is_public_proxy")),
    piece_of(
        "residential_proxy",
        "residential_proxy",
        "[ip_traits][residential_proxy]",
        What::Is("is_residential_proxy"),
    ),
];

const fn piece_of(name: &'static str, plain: &'static str, schema: &'static str, what: What) -> Piece {
    Piece { name, plain, schema, what }
}

fn piece(name: &str) -> Result<&'static Piece, String> {
    let found = PIECES.iter().find(|piece| piece.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let all: Vec<&str> = PIECES.iter().map(|piece| piece.name).collect();
        format!("`{name}` is none of {}", all.join(", "))
    })
}

/// A kind of database: what its type holds, and which pieces are usual.
struct Kind {
    of_type: &'static str,
    usual: &'static [&'static str],
    /// Without a place there is nothing worth having.
    wants_place: bool,
}

/// The first of which the type holds the name.
const KINDS: &[Kind] = &[
    Kind {
        of_type: "City",
        usual: &[
            "ip",
            "city_name",
            "continent_code",
            "country_name",
            "country_code2",
            "country_code3",
            "postal_code",
            "dma_code",
            "region_name",
            "region_code",
            "timezone",
            "location",
            "latitude",
            "longitude",
        ],
        wants_place: true,
    },
    Kind { of_type: "Country", usual: &["ip", "country_code2", "country_name", "continent_name"], wants_place: false },
    Kind { of_type: "Domain", usual: &["domain"], wants_place: false },
    Kind {
        of_type: "ASN",
        usual: &["ip", "autonomous_system_number", "autonomous_system_organization"],
        wants_place: false,
    },
    Kind {
        of_type: "ISP",
        usual: &["ip", "autonomous_system_number", "autonomous_system_organization", "isp", "organization"],
        wants_place: false,
    },
    Kind {
        of_type: "Enterprise",
        usual: &[
            "ip",
            "country_code2",
            "country_name",
            "continent_name",
            "region_iso_code",
            "region_name",
            "city_name",
            "location",
        ],
        wants_place: false,
    },
    Kind {
        of_type: "Anonymous-IP",
        usual: &[
            "hosting_provider",
            "tor_exit_node",
            "anonymous_vpn",
            "anonymous",
            "public_proxy",
            "residential_proxy",
        ],
        wants_place: false,
    },
];

pub struct Geoip {
    config: Config,
    database: Reader<Vec<u8>>,
    wants_place: bool,
    /// What is set, and where; nowhere what has no place in the schema.
    pieces: Vec<(&'static Piece, Option<FieldRef>)>,
}

type Found<'a> = LookupResult<'a, Vec<u8>>;

impl Geoip {
    pub fn build(config: Config) -> Result<Geoip, String> {
        let shown = config.database.display();
        let bytes =
            std::fs::read(&config.database).map_err(|error| format!("cannot read the database {shown}: {error}"))?;
        let database = Reader::from_source(bytes).map_err(|error| format!("{shown} is no database: {error}"))?;
        let of_type = &database.metadata().database_type;
        let kind = KINDS.iter().find(|kind| of_type.contains(kind.of_type));
        let kind = kind.ok_or_else(|| format!("{shown} is a database of the kind `{of_type}`, which is not known"))?;
        let is_usual = |piece: &Piece| {
            // of a city the schema has the region's code with its country's before it
            let name = match piece.name {
                "region_code" if config.ecs && kind.wants_place => return false,
                "region_iso_code" if config.ecs && kind.wants_place => "region_code",
                name => name,
            };
            kind.usual.contains(&name)
        };
        let is_wanted = |piece: &&'static Piece| match &config.fields {
            Some(fields) => fields.iter().any(|field| field.name == piece.name),
            None => is_usual(piece),
        };
        let target = config.target.canonical();
        let place = |piece: &'static Piece| match (config.ecs, piece.schema) {
            (true, "") => Ok((piece, None)),
            (true, schema) => FieldRef::parse(&format!("{target}{schema}")).map(|field| (piece, Some(field))),
            (false, _) => FieldRef::parse(&format!("{target}[{}]", piece.plain)).map(|field| (piece, Some(field))),
        };
        let pieces = PIECES.iter().filter(is_wanted).map(place).collect::<Result<_, _>>()?;
        Ok(Geoip { wants_place: kind.wants_place, pieces, database, config })
    }

    /// Sets what is known of the address; false if that is nothing.
    fn look(&self, event: &mut EventMut<'_>, address: IpAddr) -> Result<bool, MaxMindDbError> {
        let found = self.database.lookup(address)?;
        if !found.has_data() || self.wants_place && degrees(&found, LATITUDE)?.or(degrees(&found, LONGITUDE)?).is_none()
        {
            return Ok(false);
        }
        let mut any = false;
        for (piece, field) in &self.pieces {
            any |= set(event, &found, address, piece.what, field.as_ref())?;
        }
        Ok(any)
    }
}

/// Sets a piece if it is known and has a field; says whether it is known.
fn set(
    event: &mut EventMut<'_>,
    found: &Found<'_>,
    address: IpAddr,
    what: What,
    field: Option<&FieldRef>,
) -> Result<bool, MaxMindDbError> {
    let mut draft = event.take_draft();
    let new = match what {
        What::Text(path) => text(found, path)?.map(New::Text),
        What::Number(path) => number(found, path)?.map(|number| New::Int(number.into())),
        What::Degrees(path) => degrees(found, path)?.map(New::Float),
        What::Is(name) => Some(New::Bool(is(found, name)?)),
        What::Address => written(&mut draft, |out| write_address(address, out)),
        What::Network => {
            let network = found.network()?;
            written(&mut draft, |out| write!(out, "{network}"))
        }
        What::Location => match (degrees(found, LATITUDE)?, degrees(found, LONGITUDE)?) {
            (Some(lat), Some(lon)) => {
                written(&mut draft, |out| write!(out, r#"{{"lat":{lat:?},"lon":{lon:?}}}"#)).map(json)
            }
            _ => None,
        },
        What::RegionCode => match (text(found, COUNTRY_CODE)?, text(found, REGION_CODE)?) {
            (Some(country), Some(region)) => written(&mut draft, |out| write!(out, "{country}-{region}")),
            _ => None,
        },
    };
    let is_known = new.is_some();
    if let (Some(new), Some(field)) = (new, field) {
        event.set(field, new);
    }
    event.keep_draft(draft);
    Ok(is_known)
}

/// The text that `write` writes.
fn written(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Option<New<'_>> {
    write(out).ok()?;
    std::str::from_utf8(out).ok().map(New::Text)
}

fn json(new: New<'_>) -> New<'_> {
    if let New::Text(text) = new { New::Json(text.as_bytes()) } else { new }
}

/// As Java writes it: an address of IPv6 in full.
fn write_address(address: IpAddr, out: &mut Vec<u8>) -> std::io::Result<()> {
    let IpAddr::V6(v6) = address else { return write!(out, "{address}") };
    for (number, part) in v6.segments().into_iter().enumerate() {
        if number > 0 {
            out.push(b':');
        }
        write!(out, "{part:x}")?;
    }
    Ok(())
}

type Path<'p> = [PathElement<'p>];

fn text<'a>(found: &Found<'a>, path: &Path<'_>) -> Result<Option<&'a str>, MaxMindDbError> {
    anywhere(path, |path| found.decode_path(path))
}

/// Of 32 bits or 16: the reader converts none.
fn number(found: &Found<'_>, path: &Path<'_>) -> Result<Option<u32>, MaxMindDbError> {
    let narrow = |path: &Path<'_>| Ok(found.decode_path::<u16>(path)?.map(u32::from));
    anywhere(path, |path| found.decode_path(path).or_else(|_| narrow(path)))
}

/// False where nothing is said.
fn is(found: &Found<'_>, name: &'static str) -> Result<bool, MaxMindDbError> {
    Ok(anywhere(&[Key(name)], |path| found.decode_path(path))?.unwrap_or(false))
}

/// What is no number of degrees is not known.
fn degrees(found: &Found<'_>, path: &Path<'_>) -> Result<Option<f64>, MaxMindDbError> {
    Ok(found.decode_path::<f64>(path)?.filter(|degrees| degrees.is_finite()))
}

/// At its place, or among the traits, where databases of several kinds keep what is said of networks.
fn anywhere<T>(
    path: &Path<'_>,
    decode: impl Fn(&Path<'_>) -> Result<Option<T>, MaxMindDbError>,
) -> Result<Option<T>, MaxMindDbError> {
    let here = decode(path)?;
    match path {
        [only] if here.is_none() => decode(&[Key("traits"), only.clone()]),
        _ => Ok(here),
    }
}

impl Filter for Geoip {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let address = match event.get(&self.config.source).and_then(View::or_first) {
            Some(View::Text(text)) if !text.trim().is_empty() => Some(address(&text)),
            _ => None,
        };
        if address.is_some() && matches!(event.get(&self.config.target), None | Some(View::Null)) {
            event.set(&self.config.target, New::Json(b"{}"));
        }
        let looked = address.flatten().map_or(Ok(false), |address| self.look(event, address.to_canonical()));
        let is_known = looked.unwrap_or_else(|why| {
            tracing::debug!(%why, offset = event.read().offset(), "geoip failed");
            false
        });
        if is_known {
            return Applied::Matched;
        }
        self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
        Applied::Unmatched
    }
}
