//! Reads as much of PromQL as the dashboard and the alert rules use, and tells which labels the
//! result has. What Prometheus would refuse, and what could never match, panics.

use std::collections::{BTreeMap, BTreeSet};

use ngit_grasp::metrics::{Description, Kind};

pub type Metrics = BTreeMap<String, Description>;
pub type Labels = BTreeSet<String>;

/// What Prometheus adds to each series that it scrapes.
const TARGET: [&str; 2] = ["job", "instance"];
const SUMS: [&str; 3] = ["sum", "min", "max"];
const OF_RANGES: [&str; 4] = ["rate", "increase", "changes", "min_over_time"];
const SIGNS: [&str; 20] = [
    "==", "!=", ">=", "<=", "=~", "!~", "(", ")", "{", "}", "[", "]", ",", "=", "<", ">", "+", "-",
    "*", "/",
];
const OPERATORS: [&str; 10] = ["==", "!=", ">=", "<=", "<", ">", "+", "-", "*", "/"];

pub struct Read {
    /// Of each series in the result.
    pub labels: Labels,
    /// The metrics that are named.
    pub metrics: BTreeSet<String>,
}

pub fn read(text: &str, all: &Metrics) -> Read {
    let mut reader = Reader {
        text,
        all,
        tokens: tokens(text),
        at: 0,
        metrics: BTreeSet::new(),
    };
    let Type::Vector(labels) = reader.expression() else {
        panic!("no series: {text}");
    };
    assert_eq!(reader.peek(), None, "{text}");
    let metrics = reader.metrics;
    Read { labels, metrics }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number,
    Sign(&'static str),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
        let (token, length) = if first == '"' {
            let inner = rest[1..].split('"').next().unwrap();
            assert!(rest.len() > inner.len() + 1, "a quote is open: {text}");
            (Token::Text(inner.to_owned()), inner.len() + 2)
        } else if first.is_ascii_digit() {
            (
                Token::Number,
                end(|c| c == '.' || c.is_ascii_alphanumeric()),
            )
        } else if first == '$' || first == '_' || first.is_ascii_alphabetic() {
            let length = end(|c| c == '$' || c == '_' || c.is_ascii_alphanumeric());
            (Token::Name(rest[..length].to_owned()), length)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.unwrap_or_else(|| panic!("not understood at {rest}: {text}"));
            (Token::Sign(sign), sign.len())
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    found
}

#[derive(Debug)]
enum Type {
    Number,
    Vector(Labels),
    /// Of counters, or of something else.
    Range(Labels, bool),
}

struct Reader<'a> {
    text: &'a str,
    all: &'a Metrics,
    tokens: Vec<Token>,
    at: usize,
    metrics: BTreeSet<String>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().cloned();
        self.at += 1;
        token.unwrap_or_else(|| panic!("ends too soon: {}", self.text))
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str) {
        assert!(
            self.takes(sign),
            "no {sign} at {:?}: {}",
            self.peek(),
            self.text
        );
    }

    fn name(&mut self) -> String {
        match self.next() {
            Token::Name(name) => name,
            other => panic!("{other:?} is no name: {}", self.text),
        }
    }

    fn takes_name(&mut self, names: &[&str]) -> Option<String> {
        let found = match self.peek() {
            Some(Token::Name(name)) if names.contains(&name.as_str()) => name.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(found)
    }

    fn expression(&mut self) -> Type {
        let mut left = self.compared();
        while self.takes_name(&["and", "or", "unless"]).is_some() {
            let right = self.compared();
            left = self.matched(left, right);
        }
        left
    }

    fn compared(&mut self) -> Type {
        let mut left = self.operand();
        while let Some(Token::Sign(sign)) = self.peek()
            && OPERATORS.contains(sign)
        {
            self.at += 1;
            let right = self.operand();
            left = self.matched(left, right);
        }
        left
    }

    /// Series of two sides match only if they have the same labels.
    fn matched(&self, left: Type, right: Type) -> Type {
        match (left, right) {
            (Type::Vector(left), Type::Vector(right)) => {
                assert_eq!(left, right, "never match: {}", self.text);
                Type::Vector(left)
            }
            (Type::Vector(one), Type::Number) | (Type::Number, Type::Vector(one)) => {
                Type::Vector(one)
            }
            (Type::Number, Type::Number) => Type::Number,
            sides => panic!("{sides:?}: {}", self.text),
        }
    }

    fn operand(&mut self) -> Type {
        if self.takes("(") {
            let inner = self.expression();
            self.expect(")");
            return inner;
        }
        let name = match self.next() {
            Token::Number => return Type::Number,
            Token::Name(name) => name,
            other => panic!("{other:?} is no operand: {}", self.text),
        };
        match name.as_str() {
            sum if SUMS.contains(&sum) => self.sum(),
            "topk" => {
                self.expect("(");
                assert!(matches!(self.expression(), Type::Number), "{}", self.text);
                self.expect(",");
                Type::Vector(self.last_vector())
            }
            function if self.takes("(") => self.function(function),
            metric => self.series(metric),
        }
    }

    fn sum(&mut self) -> Type {
        let how = self.takes_name(&["by", "without"]);
        let named = match how {
            Some(_) => self.names(),
            None => Labels::new(),
        };
        self.expect("(");
        let labels = self.last_vector();
        let unknown: Vec<_> = named.difference(&labels).collect();
        assert!(unknown.is_empty(), "no label {unknown:?}: {}", self.text);
        Type::Vector(match how.as_deref() {
            Some("without") => &labels - &named,
            _ => named,
        })
    }

    fn names(&mut self) -> Labels {
        self.expect("(");
        let mut names = Labels::from([self.name()]);
        while self.takes(",") {
            names.insert(self.name());
        }
        self.expect(")");
        names
    }

    fn last_vector(&mut self) -> Labels {
        let found = self.expression();
        self.expect(")");
        match found {
            Type::Vector(labels) => labels,
            other => panic!("{other:?}: {}", self.text),
        }
    }

    /// The opening bracket is read.
    fn function(&mut self, name: &str) -> Type {
        match name {
            "time" => {
                self.expect(")");
                Type::Number
            }
            "absent" => {
                self.last_vector();
                Type::Vector(Labels::new())
            }
            "histogram_quantile" => {
                assert!(matches!(self.expression(), Type::Number), "{}", self.text);
                self.expect(",");
                let mut labels = self.last_vector();
                assert!(labels.remove("le"), "without le: {}", self.text);
                Type::Vector(labels)
            }
            name if OF_RANGES.contains(&name) => {
                let inner = self.expression();
                self.expect(")");
                let Type::Range(labels, counts) = inner else {
                    panic!("{name} of {inner:?}: {}", self.text);
                };
                let rises = ["rate", "increase"].contains(&name);
                assert_eq!(counts, rises, "{name}: {}", self.text);
                Type::Vector(labels)
            }
            _ => panic!("no function {name}: {}", self.text),
        }
    }

    fn series(&mut self, name: &str) -> Type {
        let metric = self.metric(name).clone();
        let own = metric.labels.iter().map(|label| label.name);
        let bucket = name.ends_with("_bucket").then_some("le");
        let labels = own.chain(TARGET).chain(bucket);
        let labels: Labels = labels.map(str::to_owned).collect();
        if self.takes("{") {
            self.matchers(&metric, &labels);
        }
        let counts = metric.kind != Kind::Gauge;
        self.metrics.insert(metric.name);
        if self.takes("[") {
            let span = self.next();
            let variable = Token::Name("$__rate_interval".to_owned());
            assert!(span == Token::Number || span == variable, "{}", self.text);
            self.expect("]");
            return Type::Range(labels, counts);
        }
        Type::Vector(labels)
    }

    /// The metric that a series belongs to.
    fn metric(&self, name: &str) -> &Description {
        let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| {
            let metric = self.all.get(name.strip_suffix(part)?)?;
            (metric.kind == Kind::Histogram).then_some(metric)
        });
        let plain = self.all.get(name).filter(|of| of.kind != Kind::Histogram);
        base.or(plain)
            .unwrap_or_else(|| panic!("no series is called {name}: {}", self.text))
    }

    fn matchers(&mut self, metric: &Description, labels: &Labels) {
        loop {
            let label = self.name();
            assert!(labels.contains(&label), "no label {label}: {}", self.text);
            let known = metric.labels.iter().find(|of| of.name == label);
            let known = known.map_or(&[][..], |of| &of.values);
            let (Token::Sign("=" | "!=" | "=~" | "!~"), Token::Text(value)) =
                (self.next(), self.next())
            else {
                panic!("{label} is compared with nothing: {}", self.text);
            };
            for value in value.split('|') {
                let found = known.is_empty() || known.contains(&value);
                assert!(found, "{label} is never {value}: {}", self.text);
            }
            if !self.takes(",") {
                return self.expect("}");
            }
        }
    }
}
