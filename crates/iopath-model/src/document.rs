//! Reads parameters from a TOML file, from its preset, and from overrides by the caller. An error names file, line,
//! parameter, range and unit. `model.rs` and the file of each kind define the parameters.

use std::cell::{Cell, RefCell};
use std::ops::Range as Span;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ModelError, Position};
use crate::parameter::{Choice, Parameter, Setting, Values};

/// A model file and the presets below it. A value in the file overrides the value in the preset.
#[derive(Debug)]
pub(crate) struct Document<'t> {
    /// The file, then its presets.
    layers: Vec<Layer<'t>>,
    overrides: Vec<Override<'t>>,
    /// The parameters read so far.
    settings: RefCell<Vec<Setting>>,
}

#[derive(Debug)]
struct Layer<'t> {
    file: &'t str,
    text: &'t str,
    table: DeTable<'t>,
    /// The path of the table that the preset provides, with a dot at the end; empty if it provides the whole model.
    path: String,
}

/// A value set by the caller, with the path of its parameter: `seek_average_ms`, `zone.0.cylinders`.
#[derive(Debug)]
struct Override<'t> {
    path: &'t str,
    value: &'t str,
    is_used: Cell<bool>,
}

impl<'t> Document<'t> {
    pub(crate) fn parse(
        file: &'t str,
        text: &'t str,
        overrides: &[(&'t str, &'t str)],
    ) -> Result<Self, ModelError> {
        let overrides =
            overrides.iter().map(|&(path, value)| Override { path, value, is_used: Cell::new(false) });
        let layers = Vec::new();
        let settings = RefCell::default();
        let mut document = Self { layers, overrides: overrides.collect(), settings };
        document.add_layer(file, text, String::new())?;
        Ok(document)
    }

    /// Adds a file below all others: its values apply to parameters that the other files do not set. `path` names the
    /// table that it provides (`device.`); if empty, it provides the whole model.
    pub(crate) fn add_layer(&mut self, file: &'t str, text: &'t str, path: String) -> Result<(), ModelError> {
        let table = DeTable::parse(text).map_err(|error| ModelError::Syntax {
            at: position(file, text, error.span()),
            message: error.message().trim().replace('\n', " "),
        })?;
        self.layers.push(Layer { file, text, table: table.into_inner(), path });
        Ok(())
    }

    /// The whole file.
    pub(crate) fn root(&self) -> Section<'_> {
        Section { document: self, path: String::new(), tables: self.places("").collect() }
    }

    /// The files that provide a table.
    fn places(&self, path: &str) -> impl Iterator<Item = Place<'_>> {
        let layers = self.layers.iter().filter(move |layer| layer.path == path);
        layers.map(|layer| Place { layer, table: &layer.table, span: 0..0, source: None })
    }

    /// The parameters read so far, with their values and sources.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        self.settings.take()
    }

    /// Refuses an override that no parameter used.
    pub(crate) fn check_overrides(&self) -> Result<(), ModelError> {
        let Some(unused) = self.overrides.iter().find(|one| !one.is_used.get()) else { return Ok(()) };
        let at = Position { file: self.layers[0].file.to_owned(), line: 0 };
        let known = "the parameters of its file, those in tables as `table.parameter`".to_owned();
        Err(ModelError::Unknown { at, name: unused.path.to_owned(), known })
    }
}

/// A table of the file, and the same table of the files below it.
#[derive(Debug)]
pub(crate) struct Section<'d> {
    document: &'d Document<'d>,
    /// The names of the tables that contain it, each with a dot.
    path: String,
    /// The table of the uppermost file first; never empty.
    tables: Vec<Place<'d>>,
}

#[derive(Debug, Clone)]
struct Place<'d> {
    layer: &'d Layer<'d>,
    table: &'d DeTable<'d>,
    span: Span<usize>,
    /// The source of all values of this table, if the table that contains it states one.
    source: Option<&'d str>,
}

impl<'d> Place<'d> {
    /// The source that this table states for `name`, one of its parameters or tables.
    fn source_of(&self, name: &str) -> Option<&'d str> {
        let Some(stated) = self.table.get("source") else { return self.source };
        match stated.get_ref() {
            DeValue::String(text) => Some(text),
            DeValue::Table(sources) => match sources.get(name)?.get_ref() {
                DeValue::String(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    fn position(&self, span: Span<usize>) -> Position {
        position(self.layer.file, self.layer.text, Some(span))
    }
}

impl<'d> Section<'d> {
    /// The values of `parameters`. The table may contain only these keys and `others`.
    pub(crate) fn read(
        &self,
        parameters: &'static [Parameter],
        others: &[&str],
    ) -> Result<Values, ModelError> {
        for place in &self.tables {
            for key in place.table.keys() {
                let name: &str = key.get_ref();
                let is_known = parameters.iter().any(|parameter| parameter.name == name)
                    || others.contains(&name)
                    || name == "source";
                if !is_known {
                    let names = parameters.iter().map(|parameter| parameter.name);
                    let known = names.chain(others.iter().copied()).collect::<Vec<_>>().join(", ");
                    let at = place.position(key.span());
                    return Err(ModelError::Unknown { at, name: self.full(name), known });
                }
            }
            self.check_sources(place, parameters)?;
        }
        let mut values = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let value = self.value(parameter)?;
            values.push((parameter, value));
            let source = self.source(parameter.name).map(str::to_owned);
            let setting = Setting { path: self.full(parameter.name), parameter: *parameter, value, source };
            self.document.settings.borrow_mut().push(setting);
        }
        Ok(Values(values))
    }

    /// The name with the tables that contain it.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The table `name`; `None` if no file has this table. A table with a `kind` or `base` replaces that of the files
    /// below, which may have parameters of another kind.
    pub(crate) fn table(&self, name: &str) -> Result<Option<Section<'d>>, ModelError> {
        let mut tables = Vec::new();
        for place in &self.tables {
            let Some(value) = place.table.get(name) else { continue };
            let DeValue::Table(table) = value.get_ref() else {
                return Err(self.wrong_type(place, name, value, "a table"));
            };
            let source = place.source_of(name);
            tables.push(Place { layer: place.layer, table, span: value.span(), source });
            if table.contains_key("kind") || table.contains_key("base") {
                break;
            }
        }
        let path = format!("{}{name}.", self.path);
        tables.extend(self.document.places(&path));
        Ok((!tables.is_empty()).then_some(Section { document: self.document, path, tables }))
    }

    /// The tables `[[name]]` of the uppermost file that has such tables.
    pub(crate) fn tables(&self, name: &str) -> Result<Vec<Section<'d>>, ModelError> {
        let found = self.tables.iter().find_map(|place| Some((place, place.table.get(name)?)));
        let Some((place, value)) = found else { return Ok(Vec::new()) };
        let wrong = || self.wrong_type(place, name, value, "a list of tables: `[[…]]`");
        let DeValue::Array(array) = value.get_ref() else { return Err(wrong()) };
        let section = |(index, value): (usize, &'d Spanned<DeValue<'d>>)| {
            let DeValue::Table(table) = value.get_ref() else { return Err(wrong()) };
            let source = place.source_of(name);
            let tables = vec![Place { layer: place.layer, table, span: value.span(), source }];
            Ok(Section { document: self.document, path: format!("{}{name}.{index}.", self.path), tables })
        };
        array.iter().enumerate().map(section).collect()
    }

    /// The string `name`; `None` if no file has this key.
    pub(crate) fn string(&self, name: &str) -> Result<Option<&'d str>, ModelError> {
        let found = self.tables.iter().find_map(|place| Some((place, place.table.get(name)?)));
        let Some((place, value)) = found else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) => Ok(Some(text)),
            _ => Err(self.wrong_type(place, name, value, "a string")),
        }
    }

    /// The number of parameters read so far in the whole file.
    pub(crate) fn settings_read(&self) -> usize {
        self.document.settings.borrow().len()
    }

    /// Swaps two groups of parameters: those from position `first` to `second`, and those from `second` to the end.
    pub(crate) fn swap_settings(&self, first: usize, second: usize) {
        self.document.settings.borrow_mut()[first..].rotate_left(second - first);
    }

    /// The value of a choice; its default if no file sets it.
    pub(crate) fn choice(&self, choice: &Choice) -> Result<&'static str, ModelError> {
        let written = match self.overrides(choice.name) {
            Some(outside) => {
                outside.is_used.set(true);
                Some(outside.value)
            }
            None => self.string(choice.name)?,
        };
        let Some(written) = written else { return Ok(choice.values[0]) };
        choice.values.iter().find(|value| **value == written).copied().ok_or_else(|| {
            let message = format!("there is no `{written}`; one of: {}", choice.values.join(", "));
            self.conflict(choice.name, message)
        })
    }

    /// The number of tables `name` that contain this table, itself included.
    pub(crate) fn nested(&self, name: &str) -> usize {
        self.path.split('.').filter(|one| *one == name).count()
    }

    /// The source of a value, as stated in the file that sets it.
    fn source(&self, name: &str) -> Option<&'d str> {
        if self.overrides(name).is_some() {
            return Some("set from outside the file");
        }
        let place = self.tables.iter().find(|place| place.table.contains_key(name))?;
        place.source_of(name)
    }

    /// The error of a value that is within its range but invalid.
    pub(crate) fn conflict(&self, name: &str, message: impl Into<String>) -> ModelError {
        let at = self.position_of(name);
        ModelError::Conflict { at, name: self.full(name), message: message.into() }
    }

    /// The line of `name`, or that of the table.
    fn position_of(&self, name: &str) -> Position {
        if self.overrides(name).is_some() {
            return Position { file: self.document.layers[0].file.to_owned(), line: 0 };
        }
        let found = self.tables.iter().find_map(|place| Some((place, place.table.get_key_value(name)?)));
        match found {
            Some((place, (key, _))) => place.position(key.span()),
            None => self.tables[0].position(self.tables[0].span.clone()),
        }
    }

    fn value(&self, parameter: &'static Parameter) -> Result<f64, ModelError> {
        let name = parameter.name;
        let written = if let Some(outside) = self.overrides(name) {
            outside.is_used.set(true);
            Some((outside.value.to_owned(), outside.value.trim().parse().ok()))
        } else {
            let found = self.tables.iter().find_map(|place| Some((place, place.table.get(name)?)));
            found.map(|(place, value)| {
                let text = place.layer.text.get(value.span()).unwrap_or_default();
                (text.to_owned(), number(value.get_ref()))
            })
        };
        let Some((text, value)) = written else {
            return parameter.default.ok_or_else(|| ModelError::Missing {
                at: self.position_of(name),
                name: self.full(name),
                meaning: parameter.meaning,
                range: parameter.into(),
            });
        };
        let is_allowed = |value: &f64| {
            (parameter.min..=parameter.max).contains(value) && !(parameter.is_whole && value.fract() != 0.0)
        };
        value.filter(is_allowed).ok_or_else(|| ModelError::Range {
            at: self.position_of(name),
            name: self.full(name),
            value: text,
            range: parameter.into(),
        })
    }

    fn overrides(&self, name: &str) -> Option<&'d Override<'d>> {
        let is_this = |path: &str| path.strip_prefix(self.path.as_str()).is_some_and(|rest| rest == name);
        self.document.overrides.iter().rev().find(|one| is_this(one.path))
    }

    /// Checks the key `source`: one string for the whole table, or a table with a string for each parameter or nested
    /// table.
    fn check_sources(&self, place: &Place<'d>, parameters: &[Parameter]) -> Result<(), ModelError> {
        let Some(value) = place.table.get("source") else { return Ok(()) };
        match value.get_ref() {
            DeValue::String(_) => Ok(()),
            DeValue::Table(sources) => {
                let is_known = |name: &str| match place.table.get(name).map(Spanned::get_ref) {
                    Some(DeValue::Table(_) | DeValue::Array(_)) => true,
                    Some(_) => parameters.iter().any(|one| one.name == name),
                    None => false,
                };
                match sources.keys().find(|key| !is_known(key.get_ref())) {
                    None => Ok(()),
                    Some(key) => Err(ModelError::Conflict {
                        at: place.position(key.span()),
                        name: self.full(&format!("source.{}", key.get_ref())),
                        message: "the table has no parameter of this name, so it needs no source".to_owned(),
                    }),
                }
            }
            _ => Err(self.wrong_type(place, "source", value, "a string, or a table of strings")),
        }
    }

    fn wrong_type(
        &self,
        place: &Place<'d>,
        name: &str,
        value: &Spanned<DeValue<'d>>,
        wanted: &str,
    ) -> ModelError {
        let at = place.position(value.span());
        ModelError::Conflict { at, name: self.full(name), message: format!("this must be {wanted}") }
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(integer) => {
            Some(i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as f64)
        }
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}

fn position(file: &str, text: &str, span: Option<Span<usize>>) -> Position {
    let start = span.map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or(text).matches('\n').count() + 1;
    Position { file: file.to_owned(), line }
}
