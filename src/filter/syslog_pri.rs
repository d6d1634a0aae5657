//! `syslog_pri`: facility and severity of a syslog priority.
//!
//! ```toml
//! [[filter]]
//! type = "syslog_pri"
//! ```

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;

/// The tag of an event whose facility has no name.
pub const FAILURE: &str = "_syslogpriparsefailure";

/// What a message without a priority has (RFC 3164): user-level, notice.
const PRIORITY_DEFAULT: i64 = 13;

pub const FACILITIES: [&str; 24] = [
    "kernel",
    "user-level",
    "mail",
    "daemon",
    "security/authorization",
    "syslogd",
    "line printer",
    "network news",
    "uucp",
    "clock",
    "security/authorization",
    "ftp",
    "ntp",
    "log audit",
    "log alert",
    "clock",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];

pub const SEVERITIES: [&str; 8] =
    ["emergency", "alert", "critical", "error", "warning", "notice", "informational", "debug"];

#[derive(Clone, Debug)]
pub struct Config {
    pub priority: FieldRef,
    pub facility: Names,
    pub severity: Names,
    pub use_labels: bool,
}

/// Where the code and its name go, and the names by their codes.
#[derive(Clone, Debug)]
pub struct Names {
    code: FieldRef,
    label: FieldRef,
    labels: Vec<String>,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        let labels = |key, default: &[&str]| t.texts(key).or(default.iter().map(|name| (*name).to_string()).collect());
        let field = |top: &str, path: [&str; 4]| {
            let (plain, nested) = (FieldRef::top(top), format!("[{}]", path.join("][")));
            if ecs { FieldRef::parse(&nested).unwrap_or(plain) } else { plain }
        };
        let ecs_priority = FieldRef::parse("[log][syslog][priority]").ok()?;
        let priority = if ecs { ecs_priority } else { FieldRef::top("syslog_pri") };
        Some(Config {
            priority: t.parsed("syslog_pri_field_name", FieldRef::parse).or(priority),
            facility: Names {
                code: field("syslog_facility_code", ["log", "syslog", "facility", "code"]),
                label: field("syslog_facility", ["log", "syslog", "facility", "name"]),
                labels: labels("facility_labels", &FACILITIES),
            },
            severity: Names {
                code: field("syslog_severity_code", ["log", "syslog", "severity", "code"]),
                label: field("syslog_severity", ["log", "syslog", "severity", "name"]),
                labels: labels("severity_labels", &SEVERITIES),
            },
            use_labels: t.bool("use_labels").or(true),
        })
    }
}

#[derive(Clone, Debug)]
pub struct SyslogPri {
    config: Config,
}

impl SyslogPri {
    pub fn build(config: Config) -> Result<SyslogPri, String> {
        Ok(SyslogPri { config })
    }
}

/// A priority as Ruby reads it: the digits at its beginning, else 0.
fn number(view: &View<'_>) -> i64 {
    match view {
        View::Number(text) => text.parse().or_else(|_| text.parse::<f64>().map(|value| value as i64)).unwrap_or(0),
        View::Text(text) => {
            let text = text.trim_start();
            let sign = text.starts_with(['-', '+']) as usize;
            let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
            text[..sign + digits].parse().unwrap_or(0)
        }
        View::Array(items) => items.entries().next().map_or(0, |(_, first)| number(&first)),
        _ => 0,
    }
}

impl Filter for SyslogPri {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let Config { facility, severity, .. } = &self.config;
        let priority = match event.get(&self.config.priority) {
            None | Some(View::Null | View::Bool(false)) => PRIORITY_DEFAULT,
            Some(view) => number(&view),
        };
        let codes = [(severity, priority & 7), (facility, priority >> 3)];
        for (names, code) in codes {
            event.set(&names.code, New::Int(code));
        }
        let label =
            |names: &'_ Names, code: i64| usize::try_from(code).ok().and_then(|code| names.labels.get(code)).cloned();
        if self.config.use_labels && label(facility, codes[1].1).is_none() {
            event.add_tag(FAILURE);
        } else if self.config.use_labels {
            for (names, code) in [codes[1], codes[0]] {
                if let Some(label) = label(names, code) {
                    event.set(&names.label, New::Text(&label));
                }
            }
        }
        Applied::Matched
    }
}
