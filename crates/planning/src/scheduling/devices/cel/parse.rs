//! Parses the text of an expression to its tree.

use std::sync::Arc;

/// Largest nesting depth of an expression; the API server's limit on the length of expressions allows more.
const DEEPEST: usize = 100;
/// Longest chain of operators, fields and calls: each is a step of recursion.
const LONGEST: usize = 250;

/// Functions that are known: global ones and methods, whatever they are called on.
const FUNCTIONS: [&str; 33] = [
    "add",
    "all",
    "asInteger",
    "bind",
    "compareTo",
    "contains",
    "endsWith",
    "exists",
    "exists_one",
    "has",
    "hasValue",
    "int",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "isSemver",
    "lowerAscii",
    "major",
    "minor",
    "orValue",
    "patch",
    "quantity",
    "replace",
    "semver",
    "sign",
    "size",
    "startsWith",
    "string",
    "sub",
    "trim",
    "upperAscii",
    "value",
];

/// An expression.
#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(Arc<str>),
    /// A variable.
    Name(Arc<str>),
    /// `a.name`, or `a.?name`.
    Field(Box<Self>, Arc<str>, bool),
    /// `a[b]`, or `a[?b]`.
    Index(Box<Self>, Box<Self>, bool),
    /// `name(...)`, or `a.name(...)`.
    Call(Option<Box<Self>>, Arc<str>, Vec<Self>),
    /// `[a, b]`.
    List(Vec<Self>),
    /// `!a`.
    Not(Box<Self>),
    /// `-a`.
    Minus(Box<Self>),
    /// `a || b || c`, or with `true`, `a && b && c`.
    Several(bool, Vec<Self>),
    /// Two expressions and their operator.
    Two(Box<Self>, CelOperator, Box<Self>),
    /// `a ? b : c`.
    Choice(Box<[Self; 3]>),
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CelOperator {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    Plus,
    Minus,
    Times,
    Over,
    Modulo,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(Arc<str>),
    Text(Arc<str>),
    Int(i64),
    Sign(&'static str),
}

const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "[?", "<", ">", "!", "(", ")", "[", "]", ".", ",",
    "?", ":", "+", "-", "*", "/", "%", "{",
];

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        depth: 0,
        links: 0,
    };
    let root = parser.expression()?;
    match parser.tokens.get(parser.next) {
        None => Ok(root),
        Some((token, at)) => Err(unexpected(token, *at)),
    }
}

fn unexpected(token: &Token, at: usize) -> String {
    match token {
        Token::Sign(sign) => format!("unexpected '{sign}' at {at}"),
        Token::Name(name) => format!("unexpected \"{name}\" at {at}"),
        Token::Text(_) => format!("unexpected text at {at}"),
        Token::Int(number) => format!("unexpected {number} at {at}"),
    }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, String> {
    let all: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = all.get(at).copied() {
        let start = at;
        if first.is_whitespace() {
            at += 1;
        } else if first == '/' && all.get(at + 1) == Some(&'/') {
            while all.get(at).is_some_and(|next| *next != '\n') {
                at += 1;
            }
        } else if first == '"' || first == '\'' {
            let (text, next) = quoted(&all, at)?;
            found.push((Token::Text(text.into()), start));
            at = next;
        } else if first.is_ascii_digit() {
            while all.get(at).is_some_and(char::is_ascii_alphanumeric) {
                at += 1;
            }
            let is_decimal =
                all.get(at) == Some(&'.') && all.get(at + 1).is_some_and(char::is_ascii_digit);
            let digits: String = all[start..at].iter().collect();
            if is_decimal || digits.bytes().any(|byte| byte == b'e') && !digits.starts_with("0x") {
                return Err(format!("decimal numbers are not supported (at {start})"));
            }
            let number = digits.strip_prefix("0x").map_or_else(
                || digits.trim_end_matches('u').parse().ok(),
                |hex| i64::from_str_radix(hex, 16).ok(),
            );
            let number = number.ok_or_else(|| format!("{digits} is not a number (at {start})"))?;
            found.push((Token::Int(number), start));
        } else if first.is_ascii_alphabetic() || first == '_' {
            let of_name = |next: &char| next.is_ascii_alphanumeric() || *next == '_';
            while all.get(at).is_some_and(of_name) {
                at += 1;
            }
            let name: String = all[start..at].iter().collect();
            found.push((Token::Name(name.into()), start));
        } else {
            let here = |sign: &&&str| {
                let mut signs = sign.chars().enumerate();
                signs.all(|(of, sign)| all.get(at + of) == Some(&sign))
            };
            let sign = SIGNS.iter().find(here);
            let sign = sign.ok_or_else(|| format!("unexpected '{first}' at {start}"))?;
            found.push((Token::Sign(sign), start));
            at += sign.len();
        }
    }
    Ok(found)
}

/// A quoted text that begins at this position, and where the rest begins.
fn quoted(all: &[char], start: usize) -> Result<(String, usize), String> {
    let quote = all.get(start).copied();
    let mut text = String::new();
    let mut at = start + 1;
    loop {
        match all.get(at).copied() {
            None | Some('\n') => return Err(format!("text without an end at {start}")),
            end if end == quote => return Ok((text, at + 1)),
            Some('\\') => {
                let escaped = match all.get(at + 1).copied() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some(plain @ ('\\' | '"' | '\'' | '`' | '?')) => plain,
                    _ => return Err(format!("an escape that is not supported at {at}")),
                };
                text.push(escaped);
                at += 2;
            }
            Some(other) => {
                text.push(other);
                at += 1;
            }
        }
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
    /// Length of the current chain.
    links: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(own)) if *own == sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.accept(sign) {
            return Ok(());
        }
        Err(format!("expected '{sign}' at {}", self.place()))
    }

    fn place(&self) -> String {
        self.tokens
            .get(self.next)
            .map_or_else(|| "the end".to_owned(), |(_, at)| at.to_string())
    }

    fn name(&mut self) -> Result<Arc<str>, String> {
        if let Some(Token::Name(name)) = self.peek() {
            let name = Arc::clone(name);
            self.next += 1;
            return Ok(name);
        }
        Err(format!("expected a name at {}", self.place()))
    }

    fn expression(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("too deep: nested more than {DEEPEST} times"));
        }
        let condition = self.level(0)?;
        let whole = if self.accept("?") {
            let yes = self.level(0)?;
            self.expect(":")?;
            let no = self.expression()?;
            Expr::Choice(Box::new([condition, yes, no]))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(whole)
    }

    /// Parses operators of at least this precedence: 0 or, 1 and, 2 comparison, 3 sum, 4 product.
    fn level(&mut self, level: usize) -> Result<Expr, String> {
        if level > 4 {
            return self.unary();
        }
        if level < 2 {
            return self.several(level);
        }
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.operator(level) {
            self.link()?;
            let right = self.level(level + 1)?;
            left = Expr::Two(Box::new(left), operator, Box::new(right));
        }
        Ok(left)
    }

    /// Parses a disjunction or conjunction of any number of operands.
    fn several(&mut self, level: usize) -> Result<Expr, String> {
        let sign = if level == 0 { "||" } else { "&&" };
        let mut all = Vec::new();
        loop {
            let links = self.links;
            all.push(self.level(level + 1)?);
            self.links = links;
            if !self.accept(sign) {
                break;
            }
        }
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                all.extend(last);
                Ok(Expr::Several(level == 1, all))
            }
        }
    }

    fn link(&mut self) -> Result<(), String> {
        self.links += 1;
        if self.links > LONGEST {
            return Err(format!(
                "too deep: more than {LONGEST} parts hang on each other"
            ));
        }
        Ok(())
    }

    fn operator(&mut self, level: usize) -> Option<CelOperator> {
        use CelOperator::{
            AtLeast, AtMost, Equal, Greater, In, Less, Minus, Modulo, Over, Plus, Times, Unequal,
        };
        if level == 2 && matches!(self.peek(), Some(Token::Name(name)) if **name == *"in") {
            self.next += 1;
            return Some(In);
        }
        let known: &[(&str, CelOperator)] = match level {
            2 => &[
                ("==", Equal),
                ("!=", Unequal),
                ("<=", AtMost),
                (">=", AtLeast),
                ("<", Less),
                (">", Greater),
            ],
            3 => &[("+", Plus), ("-", Minus)],
            _ => &[("*", Times), ("/", Over), ("%", Modulo)],
        };
        let found = known.iter().find(|(sign, _)| self.accept(sign));
        found.map(|(_, operator)| *operator)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("too deep: nested more than {DEEPEST} times"));
        }
        let found = if self.accept("!") {
            Expr::Not(Box::new(self.unary()?))
        } else if self.accept("-") {
            Expr::Minus(Box::new(self.unary()?))
        } else {
            self.member()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn member(&mut self) -> Result<Expr, String> {
        let mut found = self.primary()?;
        loop {
            self.link()?;
            if self.accept(".?") {
                found = Expr::Field(Box::new(found), self.name()?, true);
            } else if self.accept(".") {
                let name = self.name()?;
                found = if self.accept("(") {
                    self.call(Some(found), name)?
                } else {
                    Expr::Field(Box::new(found), name, false)
                };
            } else if self.accept("[?") {
                let index = self.expression()?;
                self.expect("]")?;
                found = Expr::Index(Box::new(found), Box::new(index), true);
            } else if self.accept("[") {
                let index = self.expression()?;
                self.expect("]")?;
                found = Expr::Index(Box::new(found), Box::new(index), false);
            } else {
                self.links -= 1;
                return Ok(found);
            }
        }
    }

    fn call(&mut self, on: Option<Expr>, name: Arc<str>) -> Result<Expr, String> {
        if !FUNCTIONS.contains(&&*name) {
            return Err(format!("{name}() is not supported"));
        }
        Ok(Expr::Call(on.map(Box::new), name, self.items(")")?))
    }

    fn items(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut all = Vec::new();
        while !self.accept(end) {
            if !all.is_empty() {
                self.expect(",")?;
                if self.accept(end) {
                    break;
                }
            }
            all.push(self.expression()?);
        }
        Ok(all)
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some(token) = self.peek().cloned() else {
            return Err("expected an expression at the end".to_owned());
        };
        let at = self.next;
        self.next += 1;
        match token {
            Token::Text(text) => Ok(Expr::Text(text)),
            Token::Int(number) => Ok(Expr::Int(number)),
            Token::Name(name) => match &*name {
                "true" => Ok(Expr::Bool(true)),
                "false" => Ok(Expr::Bool(false)),
                "null" => Ok(Expr::Null),
                _ if self.accept("(") => self.call(None, name),
                _ => Ok(Expr::Name(name)),
            },
            Token::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => Ok(Expr::List(self.items("]")?)),
            Token::Sign("{") => Err("maps that are written out are not supported".to_owned()),
            other => {
                let place = self.tokens.get(at).map_or(0, |(_, at)| *at);
                Err(unexpected(&other, place))
            }
        }
    }
}
