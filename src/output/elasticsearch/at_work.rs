//! A request whose answer never came may still be at work in the engine: in a queue, or waiting for a shard.
//!
//! Sent again meanwhile it would be at work twice, and a slow engine would have the more to do the slower it is; and
//! what was given up could be applied after what is newer. So the engine is asked for its tasks, which it lists under
//! the names of their requests, and nothing is sent again before it is through with it. Where the newest write must
//! win, an engine that does not show its tasks is given as long as a request may take.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::client::{Exchange, Lost};

const TASKS: &str = "_tasks?actions=indices:data/write/bulk*&filter_path=node_failures.type,nodes.*.tasks.*.headers";

/// The header under which tasks keep their request's name.
const HEADER: &str = "X-Opaque-Id";

/// What was on its way when it was given up, or is still being read there, is listed after this time.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// The same where it does no harm but twice the work.
const ON_ITS_WAY_UNORDERED: Duration = Duration::from_millis(100);

/// A list that never ends to name a request, or never comes, must not hold everything up for ever.
const LIST_MAX: Duration = Duration::from_secs(600);
/// The same where it does no harm but twice the work.
const LIST_MAX_UNORDERED: Duration = Duration::from_secs(60);

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
    Listed,
    Gone,
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
            Look::Gone => {
                tokio::time::sleep(if patience.ordered { ON_ITS_WAY } else { ON_ITS_WAY_UNORDERED }).await;
                match look(engine, &self.name).await {
                    Look::Gone => Ok(()),
                    _ => Err("it is still at what it was sent".to_string()),
                }
            }
            Look::Hidden => {
                if patience.ordered {
                    tokio::time::sleep(patience.request_max.saturating_sub(waited())).await;
                }
                Ok(())
            }
            Look::Listed if patience.ordered || waited() < LIST_MAX => {
                Err("it is still at what it was sent".to_string())
            }
            Look::Unclear(why) if waited() < if patience.ordered { LIST_MAX } else { LIST_MAX_UNORDERED } => Err(why),
            Look::Listed | Look::Unclear(_) => Ok(()),
        }
    }
}

/// Where the newest must win: waits until the engine is through with what a process before this one sent, which may
/// have been killed. No longer than a request may take, since another may have the same name.
pub async fn await_earlier(engine: &impl Exchange, name: &str, wait_max: Duration) {
    let start = Instant::now();
    let mut is_gone = false;
    while start.elapsed() < wait_max {
        match look(engine, name).await {
            Look::Gone if !std::mem::replace(&mut is_gone, true) => tokio::time::sleep(ON_ITS_WAY_UNORDERED).await,
            Look::Listed => tokio::time::sleep(ON_ITS_WAY).await,
            _ => return,
        }
    }
}

async fn look(engine: &impl Exchange, name: &str) -> Look {
    match engine.call(Method::GET, TASKS, None).await {
        Ok((200, text)) => match serde_json::from_slice::<Value>(&text) {
            Ok(list) if lists(&list["nodes"], name) => Look::Listed,
            Ok(list) if list.get("node_failures").is_some() => {
                Look::Unclear("a node does not say what it is at".into())
            }
            Ok(list) if list.is_object() => Look::Gone,
            _ => Look::Unclear("its list of tasks cannot be read".into()),
        },
        Ok((status @ (408 | 429 | 500..), _)) => Look::Unclear(format!("it answered {status}")),
        Err(Lost { why, .. }) => Look::Unclear(why),
        Ok(_) => Look::Hidden,
    }
}

/// `{"NODE": {"tasks": {"NODE:28": {"headers": {"X-Opaque-Id": "NAME.1"}}}}}`
fn lists(nodes: &Value, name: &str) -> bool {
    let nodes = nodes.as_object().into_iter().flat_map(|nodes| nodes.values());
    let tasks = nodes.filter_map(|node| node["tasks"].as_object()).flat_map(|tasks| tasks.values());
    let mut names = tasks.filter_map(|task| task["headers"][HEADER].as_str());
    names.any(|given| given.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-'])))
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
