//! From the text of an expression to its tree.

use std::sync::Arc;

use super::{NAMES, SyntaxError};

/// How deep expressions may be nested.
const DEPTH: usize = 50;
/// How many operators an expression may have: evaluating it goes that deep.
const OPERATORS: usize = 200;

/// What can begin an expression, in the words of CEL's own errors.
const EXPECTED: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Functions, with the number of their arguments; of a method the first argument is what it is called on.
const FUNCTIONS: [(&str, usize, bool); 10] = [
    ("max", 2, false),
    ("min", 2, false),
    ("int", 1, false),
    ("double", 1, false),
    ("string", 1, false),
    ("size", 1, false),
    ("size", 1, true),
    ("startsWith", 2, true),
    ("endsWith", 2, true),
    ("contains", 2, true),
];

/// Operators by how tightly they bind, the loosest first.
const LEVELS: [&[&str]; 5] = [
    &["||"],
    &["&&"],
    &["==", "!=", "<=", ">=", "<", ">", "in"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(Arc<str>),
    List(Vec<Self>),
    Variable(&'static str),
    Not(Box<Self>),
    Negative(Box<Self>),
    Binary(&'static str, Box<Self>, Box<Self>),
    Index(Box<Self>, Box<Self>),
    Choice(Box<Self>, Box<Self>, Box<Self>),
    Call(&'static str, Vec<Self>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    Name(String),
    Sign(&'static str),
    End,
}

/// Signs, the longer ones first.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")",
    "[", "]", ",", ".", "{",
];

struct Parser<'a> {
    text: &'a str,
    /// With the byte that each begins at.
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    operators: usize,
}

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
        operators: 0,
    };
    let root = parser.choice()?;
    match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

fn error(text: &str, at: usize, problem: impl Into<String>) -> SyntaxError {
    SyntaxError {
        problem: problem.into(),
        text: text.to_owned(),
        at: text.get(..at).unwrap_or(text).chars().count(),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SyntaxError> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let (token, length) = if first.is_ascii_digit() {
            number(rest).ok_or_else(|| error(text, at, "invalid number"))?
        } else if first == '\'' || first == '"' {
            let body = rest.get(1..).unwrap_or_default();
            let end = body.find(first);
            let end =
                end.ok_or_else(|| error(text, at, "Syntax error: token recognition error"))?;
            let body = body.get(..end).unwrap_or_default();
            if body.contains('\\') {
                return Err(error(text, at, "escapes in texts are not supported"));
            }
            (Token::Text(Arc::from(body)), end + 2)
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            (Token::Name(name.to_owned()), name.len())
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| {
                let problem = format!("Syntax error: token recognition error at: '{first}'");
                error(text, at, problem)
            })?;
            (Token::Sign(sign), sign.len())
        };
        all.push((at, token));
        at += length;
    }
    all.push((text.len(), Token::End));
    Ok(all)
}

/// A number at the beginning of a text, and its length.
fn number(text: &str) -> Option<(Token, usize)> {
    if let Some(hex) = text.strip_prefix("0x") {
        let digits = hex.find(|c: char| !c.is_ascii_hexdigit());
        let digits = hex.get(..digits.unwrap_or(hex.len()))?;
        let value = i64::from_str_radix(digits, 16).ok()?;
        return Some((Token::Int(value), digits.len() + 2));
    }
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        end.unwrap_or(text.len())
    };
    let whole = digits(text);
    let mut length = whole;
    if let Some(fraction) = text.get(length..)?.strip_prefix('.')
        && digits(fraction) > 0
    {
        length += 1 + digits(fraction);
    }
    if let Some(exponent) = text.get(length..)?.strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let count = digits(exponent.get(sign..)?);
        if count > 0 {
            length += 1 + sign + count;
        }
    }
    let number = text.get(..length)?;
    let token = if length == whole {
        Token::Int(number.parse().ok()?)
    } else {
        Token::Double(number.parse().ok()?)
    };
    Some((token, length))
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens
            .get(self.next)
            .map_or(&Token::End, |(_, token)| token)
    }

    fn place(&self) -> usize {
        let token = self.tokens.get(self.next);
        token.map_or(self.text.len(), |(at, _)| *at)
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        let end = self.tokens.get(self.next + 1).map(|(at, _)| *at);
        let found = self.text.get(self.place()..end.unwrap_or(self.text.len()));
        let found = match self.peek() {
            Token::End => "<EOF>",
            _ => found.unwrap_or_default().trim(),
        };
        let problem = format!("Syntax error: mismatched input '{found}' expecting {expected}");
        error(self.text, self.place(), problem)
    }

    /// Takes a sign, or the word `in`.
    fn take(&mut self, sign: &str) -> bool {
        let found = match self.peek() {
            Token::Sign(found) => *found == sign,
            Token::Name(name) => sign == "in" && name == "in",
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn need(&mut self, sign: &str) -> Result<(), SyntaxError> {
        if self.take(sign) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("'{sign}'")))
        }
    }

    fn deeper<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= DEPTH {
            let problem = format!("expression recursion limit exceeded: {DEPTH}");
            return Err(error(self.text, self.place(), problem));
        }
        self.depth += 1;
        let found = part(self);
        self.depth -= 1;
        found
    }

    fn choice(&mut self) -> Result<Node, SyntaxError> {
        self.deeper(|this| {
            let condition = this.binary(0)?;
            if !this.take("?") {
                return Ok(condition);
            }
            let yes = this.choice()?;
            this.need(":")?;
            let no = this.choice()?;
            Ok(Node::Choice(
                Box::new(condition),
                Box::new(yes),
                Box::new(no),
            ))
        })
    }

    fn binary(&mut self, level: usize) -> Result<Node, SyntaxError> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|each| self.take(each)) {
            self.operators += 1;
            if self.operators > OPERATORS {
                let problem = format!("expression recursion limit exceeded: {OPERATORS}");
                return Err(error(self.text, self.place(), problem));
            }
            let right = self.binary(level + 1)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, SyntaxError> {
        if self.take("!") {
            return self.deeper(|this| Ok(Node::Not(Box::new(this.unary()?))));
        }
        if self.take("-") {
            return self.deeper(|this| Ok(Node::Negative(Box::new(this.unary()?))));
        }
        let mut node = self.primary()?;
        loop {
            if self.take("[") {
                let index = self.choice()?;
                self.need("]")?;
                node = Node::Index(Box::new(node), Box::new(index));
            } else if self.take(".") {
                let at = self.place();
                let Token::Name(name) = self.peek().clone() else {
                    return Err(self.unexpected("IDENTIFIER"));
                };
                self.next += 1;
                if !self.take("(") {
                    return Err(error(self.text, at, format!("undefined field '{name}'")));
                }
                let mut arguments = vec![node];
                arguments.extend(self.list(")")?);
                node = self.call(&name, arguments, true, at)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, SyntaxError> {
        let at = self.place();
        let token = self.peek().clone();
        let node = match token {
            Token::Int(value) => Node::Int(value),
            Token::Double(value) => Node::Double(value),
            Token::Text(value) => Node::Text(value),
            Token::Name(name) => {
                self.next += 1;
                if self.take("(") {
                    let arguments = self.list(")")?;
                    return self.call(&name, arguments, false, at);
                }
                return match (name.as_str(), NAMES.iter().find(|each| **each == name)) {
                    ("true", _) => Ok(Node::Bool(true)),
                    ("false", _) => Ok(Node::Bool(false)),
                    (_, Some(variable)) => Ok(Node::Variable(variable)),
                    _ => {
                        let problem = format!("undeclared reference to '{name}' (in container '')");
                        Err(error(self.text, at, problem))
                    }
                };
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.choice()?;
                self.need(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => {
                self.next += 1;
                return Ok(Node::List(self.list("]")?));
            }
            Token::Sign(_) | Token::End => return Err(self.unexpected(EXPECTED)),
        };
        self.next += 1;
        Ok(node)
    }

    /// Expressions up to a closing sign, with commas between.
    fn list(&mut self, close: &str) -> Result<Vec<Node>, SyntaxError> {
        let mut all = Vec::new();
        if self.take(close) {
            return Ok(all);
        }
        loop {
            all.push(self.choice()?);
            if !self.take(",") {
                self.need(close)?;
                return Ok(all);
            }
        }
    }

    fn call(
        &self,
        name: &str,
        arguments: Vec<Node>,
        method: bool,
        at: usize,
    ) -> Result<Node, SyntaxError> {
        let known = FUNCTIONS
            .iter()
            .find(|(each, count, is_method)| {
                *each == name && *count == arguments.len() && *is_method == method
            })
            .map(|(name, _, _)| *name);
        match known {
            Some(name) => Ok(Node::Call(name, arguments)),
            None => {
                let problem = format!("undeclared reference to '{name}' (in container '')");
                Err(error(self.text, at, problem))
            }
        }
    }
}
