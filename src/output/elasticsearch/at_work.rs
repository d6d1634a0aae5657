//! A request whose answer never came may still be at work in the engine: in a queue, or waiting for a shard.
//!
//! Sent again meanwhile it would be at work twice, and a slow engine would have the more to do the slower it is; and
//! what was given up could be applied after what is newer. So the engine is asked for its tasks, which it lists under
//! the names of their requests, and nothing is sent again before it is through with it. Where the newest write must
//! win, an engine that does not show its tasks is given as long as a request may take.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::client::{Exchange, Lost, refused};

const TASKS: &str = "_tasks?actions=indices:data/write/bulk*&filter_path=node_failures.type,nodes.*.tasks.*.headers";

/// The header under which tasks keep their request's name.
const HEADER: &str = "X-Opaque-Id";

/// What was on its way when it was given up, or is still being read there, is listed after this time.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// The same where it does no harm but twice the work.
const ON_ITS_WAY_UNORDERED: Duration = Duration::from_millis(100);

/// A list that never ends to name a request, or that does not come, must not hold everything up for ever.
const LIST_MAX: Duration = Duration::from_secs(600);
/// The same where it does no harm but twice the work.
const LIST_MAX_UNORDERED: Duration = Duration::from_secs(60);

/// A short wait is no news.
const NEWS_AFTER: Duration = Duration::from_secs(5);

/// How a given up request is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The newest write must win.
    pub ordered: bool,
    /// As long as a request may take.
    pub request_max: Duration,
}

/// What was sent under a name, and a number behind it, and got no answer.
#[derive(Clone, Debug)]
pub struct GivenUp {
    pub name: String,
    pub at: Instant,
}

enum Look {
    /// The names of what it is at that begin as asked for.
    At(Vec<String>),
    /// Nobody answers, or not for all nodes.
    Unclear(String),
    /// Tasks are not shown, or not to us.
    Hidden,
}

impl GivenUp {
    /// Whether the engine is through with it, or why it is to be asked again later.
    pub async fn is_through(&self, engine: &impl Exchange, patience: Patience) -> Result<(), String> {
        let waited = || self.at.elapsed();
        match look(engine, &self.name).await {
            Look::At(names) if names.is_empty() => {
                tokio::time::sleep(if patience.ordered { ON_ITS_WAY } else { ON_ITS_WAY_UNORDERED }).await;
                match look(engine, &self.name).await {
                    Look::At(names) if names.is_empty() => Ok(()),
                    _ => Err("it is still at what it was sent".to_string()),
                }
            }
            Look::Hidden => {
                if patience.ordered {
                    tokio::time::sleep(patience.request_max.saturating_sub(waited())).await;
                }
                Ok(())
            }
            Look::At(_) if patience.ordered || waited() < LIST_MAX => {
                Err("it is still at what it was sent".to_string())
            }
            Look::Unclear(why) if waited() < if patience.ordered { LIST_MAX } else { LIST_MAX_UNORDERED } => Err(why),
            Look::At(_) | Look::Unclear(_) => Ok(()),
        }
    }
}

/// Where the newest must win: waits until the engine is through with what a process before this one sent, which may
/// have been killed. Another that still runs may have the same name: what it sends later is not waited for.
pub async fn await_earlier(engine: &impl Exchange, name: &str) {
    let start = Instant::now();
    let mut earlier = BTreeSet::new();
    let (mut looks, mut is_said) = (0, false);
    while start.elapsed() < LIST_MAX {
        match look(engine, name).await {
            Look::At(names) => {
                looks += 1;
                // what was on its way at the first look is listed at the second
                match looks {
                    1 | 2 => earlier.extend(names),
                    _ => earlier.retain(|name| names.contains(name)),
                }
                if looks > 1 && earlier.is_empty() {
                    return;
                }
            }
            Look::Unclear(why) => tracing::debug!(%why, "the engine does not say what it is at"),
            Look::Hidden => return,
        }
        if !is_said && start.elapsed() >= NEWS_AFTER {
            is_said = true;
            tracing::info!("waiting for the engine, which may be at what an earlier run sent");
        }
        tokio::time::sleep(if looks == 1 { ON_ITS_WAY_UNORDERED } else { ON_ITS_WAY }).await;
    }
}

async fn look(engine: &impl Exchange, name: &str) -> Look {
    match engine.call(Method::GET, TASKS, None).await {
        Ok((200, text)) => match serde_json::from_slice::<Value>(&text) {
            Ok(list) if list.get("node_failures").is_some() => {
                Look::Unclear("a node does not say what it is at".into())
            }
            Ok(list) if list.is_object() => Look::At(names(&list["nodes"], name)),
            _ => Look::Unclear("its list of tasks cannot be read".into()),
        },
        Ok((401, _)) => Look::Unclear(refused(engine).await),
        Ok((status @ (408 | 429 | 500..), _)) => Look::Unclear(format!("it answered {status}")),
        Err(Lost { why, .. }) => Look::Unclear(why),
        Ok(_) => Look::Hidden,
    }
}

/// Of `{"NODE": {"tasks": {"NODE:28": {"headers": {"X-Opaque-Id": "NAME.1"}}}}}` those that begin so.
fn names(nodes: &Value, name: &str) -> Vec<String> {
    let nodes = nodes.as_object().into_iter().flat_map(|nodes| nodes.values());
    let tasks = nodes.filter_map(|node| node["tasks"].as_object()).flat_map(|tasks| tasks.values());
    let names = tasks.filter_map(|task| task["headers"][HEADER].as_str());
    let is_of_it = |given: &&str| given.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-']));
    names.filter(is_of_it).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;

    /// An engine that answers these, one after the other.
    struct Script(Mutex<VecDeque<Result<(u16, &'static str), ()>>>);

    impl Exchange for Script {
        async fn call(
            &self,
            _method: Method,
            _path: &str,
            _body: Option<(&'static str, Bytes)>,
        ) -> Result<(u16, Bytes), Lost> {
            match self.0.lock().unwrap().pop_front().expect("asked too often") {
                Ok((status, text)) => Ok((status, Bytes::from_static(text.as_bytes()))),
                Err(()) => Err(Lost { why: String::new(), connected: false }),
            }
        }

        async fn renew(&self) -> anyhow::Result<()> {
            Ok(())
        }
    }

    const LISTED: Result<(u16, &str), ()> = Ok((
        200,
        r#"{"nodes":{"a":{"tasks":{"a:1":{"headers":{}},"a:2":{"headers":{"X-Opaque-Id":"onceline-5.2"}}}}}}"#,
    ));
    const OTHER: Result<(u16, &str), ()> =
        Ok((200, r#"{"nodes":{"a":{"tasks":{"a:2":{"headers":{"X-Opaque-Id":"onceline-51.2"}}}}}}"#));
    const NONE: Result<(u16, &str), ()> = Ok((200, "{}"));
    const HIDDEN: Result<(u16, &str), ()> = Ok((403, "{}"));
    const AWAY: Result<(u16, &str), ()> = Err(());
    const FAILED_NODE: Result<(u16, &str), ()> = Ok((200, r#"{"node_failures":[{"type":"failed_node_exception"}]}"#));

    /// What comes of asking `at` seconds after it was given up, and how long that takes.
    fn check(ordered: bool, at: u64, answers: &[Result<(u16, &'static str), ()>], is_through: bool, secs: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let script = Script(Mutex::new(answers.iter().copied().collect()));
        let patience = Patience { ordered, request_max: Duration::from_secs(30) };
        runtime.block_on(async {
            let given_up = GivenUp { name: "onceline-5".to_string(), at: Instant::now() };
            tokio::time::sleep(Duration::from_secs(at)).await;
            let start = Instant::now();
            assert_eq!(given_up.is_through(&script, patience).await.is_ok(), is_through, "{answers:?}");
            assert_eq!(start.elapsed().as_secs(), secs, "{answers:?}");
        });
        assert!(script.0.lock().unwrap().is_empty(), "asked too seldom: {answers:?}");
    }

    /// How many seconds go by, of such answers, until what an earlier process sent is past.
    fn check_earlier(answers: &[Result<(u16, &'static str), ()>], secs: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let script = Script(Mutex::new(answers.iter().copied().collect()));
        runtime.block_on(async {
            let start = Instant::now();
            await_earlier(&script, "onceline").await;
            assert_eq!(start.elapsed().as_secs(), secs, "{answers:?}");
        });
        assert!(script.0.lock().unwrap().is_empty(), "asked too seldom: {answers:?}");
    }

    #[test]
    fn what_an_earlier_process_sent_is_waited_for() {
        check_earlier(&[NONE, NONE], 0);
        check_earlier(&[HIDDEN], 0);
        check_earlier(&[AWAY, NONE, FAILED_NODE, NONE], 1);
        check_earlier(&[LISTED, LISTED, LISTED, NONE], 2);
        check_earlier(&[NONE, LISTED, AWAY, OTHER], 2);
        check_earlier(&[LISTED, OTHER, OTHER, LISTED], 2);
    }

    #[test]
    fn what_is_at_work_is_waited_for() {
        for ordered in [false, true] {
            check(ordered, 0, &[NONE, OTHER], true, u64::from(ordered));
            check(ordered, 0, &[NONE, LISTED], false, u64::from(ordered));
            check(ordered, 599, &[LISTED], false, 0);
            check(ordered, 600, &[LISTED], !ordered, 0);
            for unclear in [AWAY, FAILED_NODE] {
                check(ordered, 59, &[unclear], false, 0);
                check(ordered, 60, &[unclear], !ordered, 0);
                check(ordered, 600, &[unclear], true, 0);
            }
            check(ordered, 10, &[HIDDEN], true, if ordered { 20 } else { 0 });
            check(ordered, 40, &[HIDDEN], true, 0);
        }
    }
}
