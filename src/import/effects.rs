//! What a filter may change, so that it is known whether a condition still says the same after it.

use super::expression::Asked;
use super::tree::{Plugin, Value};

/// The fields that a filter may set, change or remove.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    /// It cannot be known.
    pub any: bool,
    fields: Vec<Vec<String>>,
    tags: Vec<String>,
}

/// The names on the way to a field.
pub fn path(field: &str) -> Vec<String> {
    field.split(['[', ']']).filter(|name| !name.is_empty()).map(str::to_string).collect()
}

/// Whether one leads to the other, or both are the same.
pub fn meet(a: &[String], b: &[String]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

impl Writes {
    /// Whether what a condition asks for may be another afterwards.
    pub fn change(&self, asked: Asked<'_>) -> bool {
        match asked {
            Asked::Tag(tag) => {
                let may_be = |written: &String| written == tag || written.contains("%{");
                self.any || self.tags.iter().any(may_be) || self.fields.iter().any(|field| field[..] == ["tags"])
            }
            Asked::Field(field) => self.field(field) || (path(field)[..] == ["tags"] && !self.tags.is_empty()),
        }
    }

    /// Whether a field may be another afterwards.
    pub fn field(&self, field: &str) -> bool {
        let field = path(field);
        self.any && field.first().is_none_or(|top| top != "@metadata") || self.fields.iter().any(|w| meet(w, &field))
    }

    /// What either may change.
    pub fn merge(&mut self, other: &Writes) {
        self.any |= other.any;
        for field in &other.fields {
            if !self.fields.contains(field) {
                self.fields.push(field.clone());
            }
        }
        for tag in &other.tags {
            if !self.tags.contains(tag) {
                self.tags.push(tag.clone());
            }
        }
    }

    pub fn tag(&mut self, tag: &str) {
        self.tags.push(tag.to_string());
    }

    pub fn add(&mut self, field: &str) {
        let field = path(field);
        if field.is_empty() || field.iter().any(|name| name.contains("%{")) {
            self.any = true;
        } else {
            self.fields.push(field);
        }
    }

    /// What the filter may change when it runs.
    pub fn of(plugin: &Plugin, is_ecs: bool) -> Writes {
        let mut writes = Writes::default();
        plugin.pairs("add_field").iter().for_each(|(field, _)| writes.add(field));
        plugin.texts("remove_field").iter().for_each(|field| writes.add(field));
        writes.tags.extend(plugin.texts("add_tag"));
        writes.tags.extend(plugin.texts("remove_tag"));
        let failure = match plugin.name.as_str() {
            "date" => "_dateparsefailure",
            "json" => "_jsonparsefailure",
            "grok" => "_grokparsefailure",
            "dissect" => "_dissectfailure",
            "csv" => "_csvparsefailure",
            "kv" => "_kv_filter_error",
            "mutate" => "_mutate_error",
            "urldecode" => "_urldecodefailure",
            "geoip" => "_geoip_lookup_failure",
            "split" => "_split_type_failure",
            "fingerprint" => "_fingerprintfailure",
            _ => "",
        };
        match plugin.texts("tag_on_failure") {
            tags if tags.is_empty() => writes.tags.extend((!failure.is_empty()).then(|| failure.to_string())),
            tags => writes.tags.extend(tags),
        }
        writes.own(plugin, is_ecs);
        writes
    }

    fn own(&mut self, plugin: &Plugin, is_ecs: bool) {
        match plugin.name.as_str() {
            "drop" | "cidr" => {}
            "date" => self.add(&plugin.text("target").unwrap_or("@timestamp".to_string())),
            "fingerprint" if is_ecs => self.add(&plugin.text("target").unwrap_or("[event][hash]".to_string())),
            "fingerprint" => self.add(&plugin.text("target").unwrap_or("fingerprint".to_string())),
            "uuid" | "useragent" | "geoip" | "json" | "kv" => match plugin.text("target") {
                Some(target) => self.add(&target),
                None => self.any = true,
            },
            "mutate" => self.mutate(plugin),
            "grok" => self.grok(plugin, is_ecs),
            "dissect" => {
                for (_, mapping) in plugin.pairs("mapping") {
                    mapping.texts().iter().for_each(|pattern| self.dissect(pattern));
                }
                plugin.pairs("convert_datatype").iter().for_each(|(field, _)| self.add(field));
            }
            "csv" => match (plugin.text("target"), plugin.texts("columns")) {
                (Some(target), _) => self.add(&target),
                (None, columns) if !columns.is_empty() && !plugin.flag("autodetect_column_names") => {
                    columns.iter().for_each(|column| self.add(column));
                }
                _ => self.any = true,
            },
            "split" => {
                self.add(&plugin.text("target").or(plugin.text("field")).unwrap_or("message".to_string()));
            }
            "clone" => {
                self.add("type");
                self.tags.extend(plugin.texts("clones"));
            }
            "translate" => match plugin.text("target").or(plugin.text("destination")) {
                Some(target) => self.add(&target),
                None => {
                    self.add("translation");
                    self.add(&plugin.text("source").or(plugin.text("field")).unwrap_or_default());
                }
            },
            "urldecode" if !plugin.flag("all_fields") => {
                self.add(&plugin.text("field").unwrap_or("message".to_string()));
            }
            "truncate" if plugin.get("fields").is_some() => {
                plugin.texts("fields").iter().for_each(|field| self.add(field));
            }
            "syslog_pri" => {
                let fields =
                    ["syslog_severity", "syslog_severity_code", "syslog_facility", "syslog_facility_code", "log"];
                fields.iter().for_each(|field| self.add(field));
            }
            _ => self.any = true,
        }
    }

    fn mutate(&mut self, plugin: &Plugin) {
        for operation in ["coerce", "update", "replace", "convert", "split", "join", "merge"] {
            plugin.pairs(operation).iter().for_each(|(field, _)| self.add(field));
        }
        for (field, _) in plugin.pairs("rename") {
            self.add(&field);
        }
        for (_, to) in [plugin.pairs("rename"), plugin.pairs("copy")].concat() {
            to.texts().iter().for_each(|field| self.add(field));
        }
        for operation in ["uppercase", "lowercase", "capitalize", "strip"] {
            plugin.texts(operation).iter().for_each(|field| self.add(field));
        }
        plugin.texts("gsub").iter().step_by(3).for_each(|field| self.add(field));
    }

    fn dissect(&mut self, pattern: &str) {
        for part in pattern.split("%{").skip(1) {
            let name = part.split('}').next().unwrap_or("");
            if name.starts_with(['&', '*']) {
                self.any = true;
            }
            let name = name.trim_start_matches(['+', '?']).trim_end_matches("->");
            let name = name.rsplit_once('/').filter(|(_, n)| n.parse::<u32>().is_ok()).map_or(name, |(name, _)| name);
            if !name.is_empty() {
                self.add(name);
            }
        }
    }

    fn grok(&mut self, plugin: &Plugin, is_ecs: bool) {
        self.tags.push(plugin.text("tag_on_timeout").unwrap_or("_groktimeout".to_string()));
        if let Some(target) = plugin.text("target") {
            return self.add(&target);
        }
        let own = plugin.pairs("pattern_definitions");
        let patterns = plugin.pairs("match").into_iter().flat_map(|(_, patterns)| patterns.texts());
        let mut seen: Vec<String> = Vec::new();
        patterns.for_each(|pattern| self.pattern(&pattern, &own, is_ecs, &mut seen));
    }

    /// What a grok pattern captures.
    fn pattern(&mut self, pattern: &str, own: &[(String, Value)], is_ecs: bool, seen: &mut Vec<String>) {
        for part in pattern.split("(?<").skip(1).filter(|part| !part.starts_with(['=', '!'])) {
            self.add(part.split('>').next().unwrap_or(""));
        }
        for part in pattern.split("%{").skip(1) {
            let mut names = part.split('}').next().unwrap_or("").splitn(3, ':');
            let name = names.next().unwrap_or("");
            if let Some(field) = names.next() {
                self.add(field);
            }
            if seen.iter().any(|other| other == name) {
                continue;
            }
            seen.push(name.to_string());
            if let Some((_, definition)) = own.iter().find(|(other, _)| other == name) {
                definition.texts().iter().for_each(|text| self.pattern(text, own, is_ecs, seen));
            } else if let Some((_, fields)) = CAPTURING.iter().find(|(names, _)| is_listed(name, names)) {
                let fields = if is_ecs { ECS } else { fields };
                fields.split(' ').for_each(|field| self.add(field));
            } else if !is_listed(name, PLAIN) {
                self.any = true;
            }
        }
    }
}

const HTTPD: &str = "clientip ident auth timestamp verb request httpversion rawrequest response bytes referrer agent";
const HTTPD_ERROR: &str = "timestamp loglevel clientip errormsg module pid tid proxy_errorcode proxy_message client \
                           clientport errorcode message";
const SYSLOG: &str = "timestamp timestamp8601 facility priority logsource program pid message";

/// The fields that patterns of the standard library set by themselves.
const CAPTURING: &[(&str, &str)] = &[
    ("COMMONAPACHELOG COMBINEDAPACHELOG HTTPD_COMMONLOG HTTPD_COMBINEDLOG", HTTPD),
    ("HTTPD_ERRORLOG HTTPD20_ERRORLOG HTTPD24_ERRORLOG", HTTPD_ERROR),
    ("SYSLOGBASE SYSLOGBASE2 SYSLOGLINE SYSLOGPROG SYSLOGFACILITY", SYSLOG),
    ("SYSLOGPAMSESSION", "timestamp message pam_module pam_caller username pam_by"),
    ("CRONLOG CRON_ACTION", "timestamp logsource program pid user action message"),
];

/// The tops of what they set with `ecs_compatibility`.
const ECS: &str = "apache error event host http log message process source system timestamp url user user_agent";

/// Patterns of the standard library that set nothing by themselves.
const PLAIN: &str = "BASE10NUM BASE16FLOAT BASE16NUM CISCOMAC COMMONMAC DATA DATE DATESTAMP DATESTAMP_EVENTLOG \
                     DATESTAMP_OTHER DATESTAMP_RFC2822 DATESTAMP_RFC822 DATE_EU DATE_US DAY EMAILADDRESS \
                     EMAILLOCALPART GREEDYDATA HOST HOSTNAME HOSTPORT HOUR HTTPDATE HTTPDERROR_DATE HTTPDUSER INT IP \
                     IPORHOST IPV4 IPV6 ISO8601_SECOND ISO8601_TIMEZONE JAVACLASS JAVAFILE JAVAMETHOD LOGLEVEL MAC \
                     MINUTE MONTH MONTHDAY MONTHNUM MONTHNUM2 NONNEGINT NOTSPACE NUMBER PATH POSINT PROG QS \
                     QUOTEDSTRING SECOND SPACE SYSLOGHOST SYSLOGTIMESTAMP TIME TIMESTAMP_ISO8601 TOMCAT_DATESTAMP TTY \
                     TZ UNIXPATH URI URIHOST URIPARAM URIPATH URIPATHPARAM URIPROTO URIQUERY URN USER USERNAME UUID \
                     WINDOWSMAC WINPATH WORD YEAR";

fn is_listed(name: &str, list: &str) -> bool {
    list.split(' ').any(|listed| listed == name)
}
