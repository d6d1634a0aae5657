//! Reads a condition's text.

use super::{Expr, Operand, Sign, Wrong};
use crate::field::FieldRef;
use crate::regexp::Regexp;

/// Nesting beyond this is refused.
const DEPTH_MAX: usize = 100;

/// Reads the whole text; `strict` refuses what Logstash's own grammar has not.
pub fn expr(text: &str, strict: bool) -> Result<Expr, Wrong> {
    let mut parser = Parser { text, at: 0, depth: 0, strict };
    let expr = parser.condition()?;
    if parser.at < text.len() {
        return Err(parser.wrong("an operator or the end is wanted"));
    }
    Ok(expr)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    strict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    And,
    Or,
    Xor,
    Nand,
}

impl Parser<'_> {
    fn wrong(&self, message: &str) -> Wrong {
        self.wrong_at(self.at, message)
    }

    fn wrong_at(&self, at: usize, message: &str) -> Wrong {
        Wrong { at, message: message.to_string() }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// White space and comments.
    fn blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.at += blank;
            if !self.rest().starts_with('#') {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        let is = self.rest().starts_with(token);
        self.at += if is { token.len() } else { 0 };
        is
    }

    fn condition(&mut self) -> Result<Expr, Wrong> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("nested too deeply"));
        }
        self.blanks();
        let first_at = self.at;
        let first = self.expression()?;
        let mut joined: Vec<(Join, usize, Expr)> = Vec::new();
        while let Some((join, at)) = self.join() {
            let operand_at = self.at;
            let next = self.expression()?;
            self.operand_of_join(&next, operand_at)?;
            joined.push((join, at, next));
        }
        self.depth -= 1;
        if joined.is_empty() {
            return Ok(first);
        }
        self.operand_of_join(&first, first_at)?;
        self.joined(first, joined)
    }

    /// `and`, `or`, `xor` or `nand` with the blanks around it, and where it stands.
    fn join(&mut self) -> Option<(Join, usize)> {
        self.blanks();
        let at = self.at;
        let words = [("and", Join::And), ("or", Join::Or), ("xor", Join::Xor), ("nand", Join::Nand)];
        let (_, join) = words.into_iter().find(|(word, _)| self.eat(word))?;
        self.blanks();
        Some((join, at))
    }

    fn operand_of_join(&self, expr: &Expr, at: usize) -> Result<(), Wrong> {
        match expr {
            Expr::True(Operand::Field(_)) => Ok(()),
            Expr::True(_) => Err(self.wrong_at(at, "a constant is neither true nor false beside an operator")),
            _ => Ok(()),
        }
    }

    fn joined(&self, first: Expr, rest: Vec<(Join, usize, Expr)>) -> Result<Expr, Wrong> {
        let lone = rest.len() == 1;
        let mut terms = vec![vec![first]];
        for (join, at, next) in rest {
            match (join, terms.last_mut()) {
                (Join::And, Some(last)) => last.push(next),
                (Join::And | Join::Or, _) => terms.push(vec![next]),
                (Join::Xor | Join::Nand, _) if !lone => {
                    return Err(self.wrong_at(at, "xor and nand beside another operator want parentheses"));
                }
                (Join::Xor, _) => {
                    let left = joined_by(Expr::All, terms.remove(0));
                    return Ok(Expr::Xor(Box::new(left), Box::new(next)));
                }
                (Join::Nand, _) => {
                    terms[0].push(next);
                    return Ok(Expr::Not(Box::new(joined_by(Expr::All, terms.remove(0)))));
                }
            }
        }
        Ok(joined_by(Expr::Any, terms.into_iter().map(|term| joined_by(Expr::All, term)).collect()))
    }

    fn expression(&mut self) -> Result<Expr, Wrong> {
        if self.rest().starts_with('(') {
            return self.parenthesis();
        }
        if self.rest().starts_with('!') {
            self.at += 1;
            self.blanks();
            return self.negated();
        }
        let at = self.at;
        if self.eat("not") && self.rest().starts_with([' ', '\t', '\r', '\n', '(', '[']) {
            if self.strict {
                return Err(self.wrong_at(at, "`not` alone is no operator: write `!`"));
            }
            self.blanks();
            return self.negated();
        }
        self.at = at;
        let left = self.operand()?;
        self.blanks();
        self.comparison(left, at)
    }

    fn parenthesis(&mut self) -> Result<Expr, Wrong> {
        let open = self.at;
        self.at += 1;
        let inner = self.condition()?;
        self.blanks();
        if !self.eat(")") {
            let message = if self.at < self.text.len() { "`)` or an operator is wanted" } else { "`(` is not closed" };
            return Err(self.wrong_at(if self.at < self.text.len() { self.at } else { open }, message));
        }
        Ok(inner)
    }

    fn negated(&mut self) -> Result<Expr, Wrong> {
        let inner = match self.rest().as_bytes().first() {
            Some(b'(') => self.parenthesis()?,
            Some(b'[') => Expr::True(Operand::Field(self.selector()?)),
            _ => return Err(self.wrong("after `!` a field in brackets or a parenthesis is wanted")),
        };
        Ok(Expr::Not(Box::new(inner)))
    }

    /// After an operand: what it is compared with, or its truth.
    fn comparison(&mut self, left: Operand, at: usize) -> Result<Expr, Wrong> {
        if self.eat("=~") {
            return self.matching(left, at);
        }
        if self.eat("!~") {
            return Ok(Expr::Not(Box::new(self.matching(left, at)?)));
        }
        let signs = [("<=", Sign::LessEqual), (">=", Sign::GreaterEqual), ("<", Sign::Less), (">", Sign::Greater)];
        let (equals, differs) = (self.eat("=="), self.eat("!="));
        let sign = signs.into_iter().find(|(token, _)| self.eat(token)).map(|(_, sign)| sign);
        if equals || differs || sign.is_some() {
            self.blanks();
            let right_at = self.at;
            let right = self.operand()?;
            self.no_list(&left, at)?;
            self.no_list(&right, right_at)?;
            return Ok(match sign {
                Some(sign) => self.ordered(sign, left, right, at)?,
                None if differs => Expr::Not(Box::new(Expr::Equal(left, right))),
                None => Expr::Equal(left, right),
            });
        }
        let before = self.at;
        if self.eat("in") {
            return self.membership(left, at);
        }
        if self.eat("not") && self.rest().starts_with([' ', '\t', '\r', '\n']) {
            self.blanks();
            if self.eat("in") {
                return Ok(Expr::Not(Box::new(self.membership(left, at)?)));
            }
        }
        self.at = before;
        if self.rest().starts_with('=') {
            return Err(self.wrong("`==` compares"));
        }
        self.no_list(&left, at)?;
        Ok(Expr::True(left))
    }

    fn no_list(&self, operand: &Operand, at: usize) -> Result<(), Wrong> {
        match operand {
            Operand::List(_) => Err(self.wrong_at(at, "a list may stand only after `in`")),
            _ => Ok(()),
        }
    }

    fn ordered(&self, sign: Sign, left: Operand, right: Operand, at: usize) -> Result<Expr, Wrong> {
        match (&left, &right) {
            (Operand::Text(_), Operand::Number(_)) | (Operand::Number(_), Operand::Text(_)) => {
                Err(self.wrong_at(at, "text and a number have no order"))
            }
            _ => Ok(Expr::Order(sign, left, right)),
        }
    }

    fn membership(&mut self, item: Operand, at: usize) -> Result<Expr, Wrong> {
        self.blanks();
        let place = self.operand()?;
        self.no_list(&item, at)?;
        Ok(Expr::In(item, place))
    }

    fn matching(&mut self, left: Operand, at: usize) -> Result<Expr, Wrong> {
        if !matches!(left, Operand::Field(_) | Operand::Text(_)) {
            return Err(self.wrong_at(at, "only a field or text is matched"));
        }
        self.blanks();
        let pattern_at = self.at;
        let pattern = match self.rest().as_bytes().first() {
            Some(quote @ (b'/' | b'"' | b'\'')) => self.quoted(char::from(*quote))?,
            _ => return Err(self.wrong("a pattern is wanted, `/…/` or in quotes")),
        };
        let regexp = Regexp::parse(&pattern).map_err(|e| self.wrong_at(pattern_at, &format!("the pattern: {e}")))?;
        if self.rest().starts_with(|c: char| c.is_ascii_alphabetic())
            && self.text[pattern_at..].starts_with('/')
            && !["and", "or", "xor", "nand"].iter().any(|word| self.rest().starts_with(word))
        {
            return Err(self.wrong("a pattern takes no flags: begin it with `(?i)`"));
        }
        Ok(Expr::Match(left, regexp))
    }

    fn operand(&mut self) -> Result<Operand, Wrong> {
        match self.rest().as_bytes().first() {
            Some(quote @ (b'"' | b'\'')) => Ok(Operand::Text(self.quoted(char::from(*quote))?.into())),
            Some(b'0'..=b'9' | b'-') => self.number(),
            Some(b'[') if self.is_list() => self.list(),
            Some(b'[') => Ok(Operand::Field(self.selector()?)),
            Some(b'/') => Err(self.wrong("a pattern may stand only after `=~` and `!~`")),
            None => Err(self.wrong("a field, text, number or list is wanted")),
            Some(_) => Err(self.wrong("a field stands in brackets, text in quotes")),
        }
    }

    /// Up to the closing quote; a backslash keeps the quote from closing and stays, as in Logstash.
    fn quoted(&mut self, quote: char) -> Result<String, Wrong> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        for (at, c) in body.char_indices() {
            if c == quote && !escaped {
                let text = body[..at].to_string();
                self.at += at + 2;
                return Ok(text);
            }
            escaped = c == '\\' && !escaped;
        }
        Err(self.wrong(if quote == '/' { "the pattern is not closed" } else { "the quote is not closed" }))
    }

    fn number(&mut self) -> Result<Operand, Wrong> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let whole = digits(&rest[sign..]);
        if whole == 0 {
            return Err(self.wrong("a number is wanted after `-`"));
        }
        let mut text = format!("{}{}", &rest[..sign], trimmed(&rest[sign..sign + whole]));
        let mut end = sign + whole;
        if rest[end..].starts_with('.') {
            let decimals = digits(&rest[end + 1..]);
            text.push('.');
            text.push_str(if decimals == 0 { "0" } else { &rest[end + 1..end + 1 + decimals] });
            end += 1 + decimals;
        }
        self.at += end;
        Ok(Operand::Number(text.into()))
    }

    /// After `[`, quotes, commas or nothing at all make a list; anything else names a field. (In Logstash a list
    /// of one is taken for a field that nobody has.)
    fn is_list(&self) -> bool {
        let inner = self.rest()[1..].trim_start_matches([' ', '\t', '\r', '\n']);
        if inner.starts_with(['"', '\'', ']', '[']) {
            return !inner.starts_with('[');
        }
        let end = inner.find([']', '[']).unwrap_or(inner.len());
        inner[..end].contains(',')
    }

    fn list(&mut self) -> Result<Operand, Wrong> {
        let open = self.at;
        self.at += 1;
        let mut list = Vec::new();
        self.blanks();
        while !self.eat("]") {
            if self.at >= self.text.len() {
                return Err(self.wrong_at(open, "the list is not closed"));
            }
            let bare = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            if self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                list.push(Operand::Text(self.rest()[..bare].into()));
                self.at += bare;
            } else if self.rest().starts_with('[') {
                return Err(self.wrong("a list holds text and numbers only"));
            } else {
                list.push(self.operand()?);
            }
            self.blanks();
            if self.eat(",") {
                self.blanks();
                if self.rest().starts_with(']') {
                    return Err(self.wrong("an element is wanted after the comma"));
                }
            } else if !self.rest().starts_with(']') && self.at < self.text.len() {
                return Err(self.wrong("a comma or `]` is wanted"));
            }
        }
        Ok(Operand::List(list.into()))
    }

    fn selector(&mut self) -> Result<FieldRef, Wrong> {
        let from = self.at;
        while self.rest().starts_with('[') {
            let inner = &self.rest()[1..];
            let end = inner.find(['[', ']', ',']).filter(|end| *end > 0 && inner[*end..].starts_with(']'));
            let Some(end) = end else { return Err(self.wrong("a field reference `[name]` is wanted")) };
            self.at += end + 2;
        }
        FieldRef::parse(&self.text[from..self.at]).map_err(|e| self.wrong_at(from, &e))
    }
}

/// One alone stands for itself.
fn joined_by(join: fn(Box<[Expr]>) -> Expr, mut terms: Vec<Expr>) -> Expr {
    if terms.len() == 1 { terms.remove(0) } else { join(terms.into()) }
}

fn trimmed(digits: &str) -> &str {
    let text = digits.trim_start_matches('0');
    if text.is_empty() { "0" } else { text }
}
