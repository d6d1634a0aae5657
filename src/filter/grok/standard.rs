//! The patterns that are always there, in both sets of names: the old ones (`clientip`), and those of the Elastic
//! Common Schema (`[source][address]`). What both have alike is written once.

/// Which fields the standard patterns set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Legacy,
    Ecs,
}

macro_rules! texts {
    ($($path:literal),* $(,)?) => { &[$(include_str!(concat!("patterns/", $path))),*] };
}

const SHARED: &[&str] = texts![
    "shared/bacula",
    "shared/exim",
    "shared/firewalls",
    "shared/grok-patterns",
    "shared/haproxy",
    "shared/httpd",
    "shared/java",
    "shared/linux-syslog",
    "shared/maven",
    "shared/mcollective",
    "shared/mongodb",
    "shared/nagios",
    "shared/rails",
    "shared/redis",
    "shared/ruby",
];

const LEGACY: &[&str] = texts![
    "legacy/aws",
    "legacy/bacula",
    "legacy/bind",
    "legacy/bro",
    "legacy/exim",
    "legacy/firewalls",
    "legacy/grok-patterns",
    "legacy/haproxy",
    "legacy/httpd",
    "legacy/java",
    "legacy/junos",
    "legacy/linux-syslog",
    "legacy/mcollective",
    "legacy/mongodb",
    "legacy/nagios",
    "legacy/postgresql",
    "legacy/rails",
    "legacy/redis",
    "legacy/ruby",
    "legacy/squid",
];

const ECS: &[&str] = texts![
    "ecs/aws",
    "ecs/bacula",
    "ecs/bind",
    "ecs/bro",
    "ecs/exim",
    "ecs/firewalls",
    "ecs/grok-patterns",
    "ecs/haproxy",
    "ecs/httpd",
    "ecs/java",
    "ecs/junos",
    "ecs/linux-syslog",
    "ecs/mcollective",
    "ecs/mongodb",
    "ecs/nagios",
    "ecs/postgresql",
    "ecs/rails",
    "ecs/redis",
    "ecs/ruby",
    "ecs/squid",
    "ecs/zeek",
];

/// The texts of all files of a set.
pub fn files(names: Names) -> impl Iterator<Item = &'static str> {
    let own = match names {
        Names::Legacy => LEGACY,
        Names::Ecs => ECS,
    };
    SHARED.iter().chain(own).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::batch::tests::of;
    use crate::filter::grok::{Config, Grok, Naming, Pattern, library::Library};
    use crate::filter::{Applied, Clock, Filter};
    use crate::regexp::{Capturing, Found};
    use crate::time::Time;

    fn naming(names: Names) -> Naming {
        let library = Library::standard(names);
        Naming { library, named_captures_only: true, target: None, overwrite: vec!["message".to_string()] }
    }

    /// The event that a line becomes; `None` if it does not fit.
    fn grok(naming: &Naming, pattern: &str, line: &str) -> Option<Value> {
        let pattern = Pattern::parse(&format!("%{{{pattern}}}"), naming).unwrap_or_else(|e| panic!("{}", e.message));
        let field = crate::field::FieldRef::top("message");
        let grok = Grok::build(Config::new(vec![(field, vec![pattern])])).unwrap();
        let mut batch = of(&json!({ "message": line }).to_string());
        let applied = grok.apply(&mut batch.event_mut(0), &Clock { now: Time::new(0, 0) });
        let mut out = Vec::new();
        batch.event(0).write_source(&mut out);
        let mut event: Value = serde_json::from_slice(&out).unwrap();
        if event["message"] == line {
            event.as_object_mut().unwrap().remove("message");
        }
        (applied == Applied::Matched).then_some(event)
    }

    /// Set, pattern, line and event, a line each; a line break in a line is written `\n`, a tab `\t`.
    fn samples() -> Vec<(Names, &'static str, String, Value)> {
        let read = |text: &'static str| {
            let (head, line) = text.split_once(" < ").unwrap();
            let (line, event) = line.split_once(" > ").unwrap();
            let (names, pattern) = head.split_once(' ').unwrap();
            let names = if names == "ecs" { Names::Ecs } else { Names::Legacy };
            let line = line.replace("\\n", "\n").replace("\\t", "\t");
            (names, pattern, line, serde_json::from_str(event).unwrap_or_else(|e| panic!("{text}: {e}")))
        };
        let lines = include_str!("samples.txt").lines().filter(|line| !line.starts_with('#'));
        lines.map(read).collect()
    }

    #[test]
    fn samples_of_every_file() {
        let (legacy, ecs) = (naming(Names::Legacy), naming(Names::Ecs));
        let mut report = String::new();
        for (names, pattern, line, want) in samples() {
            let naming = if names == Names::Ecs { &ecs } else { &legacy };
            let got = grok(naming, pattern, &line);
            if got.as_ref() != Some(&want) {
                report += &format!("{names:?} {pattern} on {line}\n {}\n", got.unwrap_or_default());
            }
        }
        assert!(report.is_empty(), "\n{report}");
    }

    #[test]
    fn every_pattern_runs_on_the_machine() {
        let counts = [Names::Legacy, Names::Ecs].map(|names| {
            let library = Library::standard(names);
            for name in library.names() {
                let text = library.expand(&format!("%{{{name}}}"), true).unwrap_or_else(|e| panic!("{}", e.message));
                let capturing = Capturing::parse(&format!("(?m){text}")).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(capturing.on_machine(), "{name}");
            }
            library.names().count()
        });
        assert!(counts[0] > 250 && counts[1] > 280, "{counts:?}");
    }

    /// Changes to a line: what is cut out, and what is put in instead.
    type Change = (proptest::sample::Index, usize, &'static str);

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let text =
            proptest::sample::select(&["", " ", "-", "1", "a", ":", "\"", "\\", "[", "]", "/", ".", "é", "\t", "x y"]);
        proptest::collection::vec((any::<proptest::sample::Index>(), 0..3usize, text), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(15))]
        /// On lines as they are, and a little wrong, the machine finds what the other engines find.
        #[test]
        fn the_engines_agree_on_changed_lines(changes in changes()) {
            static BUILT: std::sync::OnceLock<Vec<(Capturing, Capturing, String)>> = std::sync::OnceLock::new();
            let built = BUILT.get_or_init(|| {
                let build = |(names, pattern, line, _)| {
                    let text = Library::standard(names).expand(&format!("%{{{pattern}}}"), true).ok()?;
                    let text = format!("(?m){text}");
                    Some((Capturing::parse(&text).ok()?, Capturing::otherwise(&text)?, line))
                };
                samples().into_iter().filter_map(build).collect()
            });
            let (mut one, mut two) = (Found::default(), Found::default());
            for (machine, other, line) in built {
                let mut chars: Vec<char> = line.chars().collect();
                for (place, len, text) in &changes {
                    let at = place.index(chars.len() + 1);
                    chars.splice(at..(at + len).min(chars.len()), text.chars());
                }
                let line: String = chars.into_iter().collect();
                let Ok(want) = other.find(&line, &mut two, &mut 1_000_000) else { continue };
                let Ok(got) = machine.find(&line, &mut one, &mut 1_000_000) else { continue };
                prop_assert_eq!(got, want, "{} on {}", machine.as_str(), line);
                for group in (0..machine.names().len()).filter(|_| got) {
                    prop_assert_eq!(one.group(group), two.group(group), "{} on {}", &machine.names()[group], line);
                }
            }
        }
    }
}
