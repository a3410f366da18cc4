//! Access to JSON of unknown origin: each error names the file and the key. Does not know a schema.

use serde_json::Value;

use super::error::CompareError;
use iopath_bench::options::Kind;

/// A value of a JSON document, with its file and its key.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    file: &'a str,
    key: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    pub(crate) fn root(file: &'a str, value: &'a Value) -> Self {
        Self { file, key: String::new(), value }
    }

    /// A key that must exist.
    pub(crate) fn get(&self, name: &str) -> Result<Self, CompareError> {
        self.object()?;
        self.find(name).ok_or_else(|| self.child(name, &Value::Null).error("the key is missing"))
    }

    /// A key that may be absent or `null`.
    pub(crate) fn find(&self, name: &str) -> Option<Self> {
        self.value.get(name).filter(|value| !value.is_null()).map(|value| self.child(name, value))
    }

    /// The elements of a list that is not empty.
    pub(crate) fn elements(&self) -> Result<Vec<Self>, CompareError> {
        let list = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        if list.is_empty() {
            return Err(self.error("the list is empty"));
        }
        let element = |(index, value)| Self { file: self.file, key: format!("{}[{index}]", self.key), value };
        Ok(list.iter().enumerate().map(element).collect())
    }

    /// The keys of an object, with their values.
    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, Self)>, CompareError> {
        Ok(self.object()?.iter().map(|(name, value)| (name.as_str(), self.child(name, value))).collect())
    }

    /// A finite number that is not negative: every measured quantity is one.
    pub(crate) fn number(&self) -> Result<f64, CompareError> {
        let number = self.value.as_f64().ok_or_else(|| self.expected("a number"))?;
        if number.is_finite() && number >= 0.0 {
            return Ok(number);
        }
        Err(self.error(&format!("{number} is not a measured value: it must be finite and not negative")))
    }

    pub(crate) fn whole(&self) -> Result<u64, CompareError> {
        self.value.as_u64().ok_or_else(|| self.expected("a whole number"))
    }

    pub(crate) fn text(&self) -> Result<&'a str, CompareError> {
        self.value.as_str().ok_or_else(|| self.expected("a text"))
    }

    pub(crate) fn flag(&self) -> Result<bool, CompareError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// The value of an option as the text of a comparison.
    pub(crate) fn option(&self, kind: Kind) -> Result<String, CompareError> {
        kind.text(self.value).ok_or_else(|| self.expected(&format!("a valid {}", kind.name())))
    }

    /// An error about this key.
    pub(crate) fn error(&self, problem: &str) -> CompareError {
        let key = if self.key.is_empty() { "the document".to_owned() } else { self.key.clone() };
        CompareError::Key { file: self.file.to_owned(), key, problem: problem.to_owned() }
    }

    fn object(&self) -> Result<&'a serde_json::Map<String, Value>, CompareError> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    fn expected(&self, kind: &str) -> CompareError {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.error(&format!("expected {kind}, found {found}"))
    }

    fn child(&self, name: &str, value: &'a Value) -> Self {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        Self { file: self.file, key, value }
    }
}
