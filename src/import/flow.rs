//! `if`, `else if` and `else` around filters as `when` on each of them.
//!
//! Logstash asks a condition once, at the `if`; `when` is asked at every filter. Where a filter within the block may
//! change what the condition reads, the answer is noted first, in a field of `@metadata`, and only there. It is noted
//! too where a long condition would be repeated at many filters.

use std::collections::HashSet;

use super::Mapping;
use super::effects::Writes;
use super::expression::{Condition, Expr, Operand, Sign};
use super::toml::{Block, Line, Toml};
use super::tree::{Branch, Node, Plugin};

/// More characters of conditions than this at several filters are said once.
const REPEATED_MAX: usize = 300;

/// A filter, or comments, with what it is under.
#[derive(Clone, Debug)]
pub struct Step {
    pub block: Block,
    /// All of it must hold; the outermost first.
    pub when: Vec<Expr>,
    pub writes: Writes,
}

impl Step {
    pub fn new(block: Block, writes: Writes) -> Step {
        Step { block, when: Vec::new(), writes }
    }

    fn is_filter(&self) -> bool {
        !self.block.header.is_empty()
    }

    /// The block with its `when`; commented out where that cannot be said.
    pub fn finished(mut self) -> Block {
        let Some(all) = Expr::all(std::mem::take(&mut self.when)) else { return self.block };
        match (all.written(), self.is_filter()) {
            (Some(when), true) => self.block.lines.insert(1, Line::Entry("when".to_string(), Toml::Text(when))),
            (Some(when), false) => {
                let at = self.block.comments.iter().position(|line| line.starts_with(' '));
                let at = at.unwrap_or(self.block.comments.len());
                self.block.comments.insert(at, format!("it stood under: {when}"));
            }
            (None, _) => return commented(&self.block, "it stood under a condition that `when` cannot say"),
        }
        self.block
    }
}

/// A table of ours as comments.
fn commented(block: &Block, why: &str) -> Block {
    let mut out = Block { comments: block.comments.clone(), ..Block::default() };
    out.comments.push(why.to_string());
    let plain = Block { comments: Vec::new(), ..block.clone() };
    out.comments.extend(plain.render().lines().map(|line| format!("  {line}")));
    out
}

impl Mapping<'_> {
    /// The filters of a section or a block, in order.
    pub fn steps(&mut self, nodes: &[Node]) -> Vec<Step> {
        let mut steps = Vec::new();
        for node in nodes {
            match node {
                Node::Plugin(plugin) => steps.extend(self.step(plugin)),
                Node::Branch(branch) => steps.extend(self.branch(branch)),
            }
        }
        steps
    }

    fn step(&mut self, plugin: &Plugin) -> Vec<Step> {
        if let Some(steps) = self.instead.remove(&plugin.place) {
            return steps;
        }
        self.step_of(plugin)
    }

    /// The filters that a plugin becomes.
    pub fn step_of(&mut self, plugin: &Plugin) -> Vec<Step> {
        if plugin.name == "ruby"
            && let Some(steps) = self.ruby(plugin)
        {
            return steps;
        }
        match self.filter(plugin) {
            Ok(mut block) => {
                block.comments = self.heading(plugin);
                vec![Step::new(block, Writes::of(plugin, self.options.is_ecs()))]
            }
            Err(why) => vec![Step::new(self.kept(plugin, &why), Writes::default())],
        }
    }

    fn branch(&mut self, branch: &Branch) -> Vec<Step> {
        let conditions: Vec<&Condition> = branch.arms.iter().filter_map(|arm| arm.condition.as_ref()).collect();
        let mut arms: Vec<Vec<Step>> = branch.arms.iter().map(|arm| self.steps(&arm.body)).collect();
        self.odd(&conditions, &mut arms);
        // from the first condition that cannot be said, nothing can be
        let sayable = conditions.iter().position(|c| c.expr.written().is_none()).unwrap_or(arms.len());
        for (arm, steps) in branch.arms.iter().zip(&mut arms).skip(sayable) {
            let why = "its condition, or one before it in the same `if`, cannot be said in `when`";
            for step in steps.iter_mut().filter(|step| step.is_filter()) {
                self.lost(arm.place, "if", why);
                *step = Step::new(commented(&step.block, why), Writes::default());
            }
            steps.iter_mut().for_each(|step| step.when.clear());
        }
        let unsaid: Vec<Step> = arms.drain(sayable.min(arms.len())..).flatten().collect();
        let exprs: Vec<&Expr> = conditions.iter().map(|condition| &condition.expr).collect();
        let guards: Vec<Vec<Expr>> = (0..arms.len()).map(|arm| guard(&exprs, arm)).collect();
        let mut out = if let Some(why) = why_noted(&arms, &guards) {
            self.noted(branch, &exprs, arms, why)
        } else {
            let guarded = arms.into_iter().zip(guards).flat_map(|(steps, guard)| {
                steps.into_iter().map(move |step| Step { when: [guard.clone(), step.when].concat(), ..step })
            });
            guarded.collect()
        };
        out.extend(unsaid);
        out
    }

    /// Says what Logstash makes of odd conditions, above the first filter under them.
    fn odd(&mut self, conditions: &[&Condition], arms: &mut [Vec<Step>]) {
        for (condition, steps) in conditions.iter().zip(arms) {
            for odd in &condition.odd {
                self.note(condition.place, "if", odd);
                if let Some(step) = steps.first_mut() {
                    step.block.comments.push(odd.to_string());
                }
            }
        }
    }

    /// The block with its answer noted at its beginning.
    fn noted(&mut self, branch: &Branch, exprs: &[&Expr], arms: Vec<Vec<Step>>, why: &str) -> Vec<Step> {
        self.notes += 1;
        let field = self.own_field(&format!("if{}", self.notes));
        let last = arms.iter().rposition(|steps| steps.iter().any(Step::is_filter)).unwrap_or(0);
        let is_lone = exprs.len() == 1 && branch.arms.len() == 1;
        let mut out = Vec::new();
        for (number, (arm, expr)) in branch.arms.iter().zip(exprs).enumerate().take(last + 1) {
            let mut block = Block::new("[[filter]]").text("type", "mutate");
            let line = arm.place.line(self.sources);
            block.comments = vec![if number == 0 {
                format!("{line}: `if` is asked once, {why}")
            } else {
                format!("{line}: its `else if`")
            }];
            let value = Toml::Text((number + 1).to_string());
            block.add("add_field", Toml::Table(vec![(field.clone(), value)]));
            let mut when = vec![(*expr).clone()];
            if number > 0 {
                when.insert(0, Expr::Not(Box::new(Expr::Field(field.clone()))));
            }
            out.push(Step { block, when, writes: Writes::default() });
        }
        for (number, steps) in arms.into_iter().enumerate() {
            let guard = match branch.arms[number].condition {
                None => Expr::Not(Box::new(Expr::Field(field.clone()))),
                Some(_) if is_lone => Expr::Field(field.clone()),
                Some(_) => {
                    let number = Operand::Text((number + 1).to_string());
                    Expr::Compare(Sign::Equal, Operand::Field(field.clone()), number)
                }
            };
            out.extend(steps.into_iter().map(|step| {
                let when = [vec![guard.clone()], step.when].concat();
                Step { when, ..step }
            }));
        }
        out
    }
}

/// What must hold for an arm of an `if`: its own condition, and none of those before it, unless that follows.
pub fn guard(conditions: &[&Expr], arm: usize) -> Vec<Expr> {
    let own = conditions.get(arm);
    let before = conditions.iter().take(arm).filter(|before| own.is_none_or(|own| !own.excludes(before)));
    let mut guard: Vec<Expr> = before.map(|before| before.negated()).collect();
    guard.extend(own.map(|own| (*own).clone()));
    guard
}

/// Why the answer of an `if` is noted: a filter may change what a later one's condition reads, or long conditions
/// would come again and again.
fn why_noted(arms: &[Vec<Step>], guards: &[Vec<Expr>]) -> Option<&'static str> {
    let flat: Vec<(usize, &Step)> =
        arms.iter().enumerate().flat_map(|(arm, steps)| steps.iter().map(move |step| (arm, step))).collect();
    let mut written = Writes::default();
    let is_changed = flat.iter().any(|(arm, step)| {
        let is_changed = step.is_filter() && changes(&written, &guards[*arm]);
        written.merge(&step.writes);
        is_changed
    });
    if is_changed {
        return Some("as in Logstash, since filters below may change what it reads");
    }
    let length = |arm: usize| guards[arm].iter().filter_map(Expr::when).map(|text| text.len()).sum::<usize>();
    let filters = flat.iter().filter(|(_, step)| step.is_filter());
    let lengths: Vec<usize> = filters.map(|(arm, _)| length(*arm)).collect();
    let is_long = lengths.len() > 2 && lengths.iter().sum::<usize>() > REPEATED_MAX;
    is_long.then_some("to say it once")
}

fn changes(writes: &Writes, guard: &[Expr]) -> bool {
    let mut asked = HashSet::new();
    for expr in guard {
        expr.operands(&mut |operand| {
            asked.insert(operand);
        });
    }
    asked.into_iter().any(|operand| writes.change(operand))
}
