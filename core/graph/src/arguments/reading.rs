//! Reading the arguments of an element one by one.

use super::text::split_arguments;
use super::{ArgumentError, ArgumentErrors, ArgumentFault, ArgumentNames, ArgumentValue, split_keyword};
use crate::landmark::Landmark;
use crate::nearest::nearest;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// The element whose arguments are read.
#[derive(Clone, Copy)]
pub struct ArgumentContext<'c> {
    /// The element's name.
    pub element: &'c str,
    /// The element's class.
    pub class: &'c str,
    /// The place of its declaration.
    pub landmark: &'c Landmark,
    /// The names that arguments can contain.
    pub names: &'c dyn ArgumentNames,
}

/// The state of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentUse {
    Unread,
    ByPosition,
    ByKeyword,
}

/// One argument of the configuration.
struct GivenArgument<'t> {
    text: Cow<'t, str>,
    /// Length of the keyword; 0 without one.
    keyword_len: usize,
    reading: ArgumentUse,
}

/// The arguments of an element, and the errors that were found so far.
pub struct ElementArguments<'t, 'c> {
    context: &'c ArgumentContext<'c>,
    given: Vec<GivenArgument<'t>>,
    /// The keywords that the element has asked for, for suggestions.
    keywords: Vec<&'static str>,
    errors: Vec<ArgumentError>,
}

/// The ways in which an argument can be given.
#[derive(Clone, Copy)]
struct ArgumentForm {
    by_position: bool,
    by_keyword: bool,
}

/// A check of a value that an element adds.
type ArgumentCheck<'a, T> = dyn Fn(&T) -> Result<(), ArgumentFault> + 'a;

/// One argument that is being read. The last call chooses what a missing argument means.
#[must_use]
pub struct Reading<'a, 't, 'c, T> {
    arguments: &'a mut ElementArguments<'t, 'c>,
    name: &'static str,
    form: ArgumentForm,
    check: Option<Box<ArgumentCheck<'a, T>>>,
    value: PhantomData<T>,
}

impl<'t, 'c> ElementArguments<'t, 'c> {
    /// Splits the text of a configuration into arguments.
    pub fn new(configuration: &'t str, context: &'c ArgumentContext<'c>) -> Self {
        let given = split_arguments(configuration).into_iter().map(|text| {
            let keyword_len = split_keyword(&text).map_or(0, |(keyword, _)| keyword.len());
            GivenArgument { text, keyword_len, reading: ArgumentUse::Unread }
        });
        Self { context, given: given.collect(), keywords: Vec::new(), errors: Vec::new() }
    }

    /// Returns the number of arguments that are not read yet.
    pub fn unread(&self) -> usize {
        self.given.iter().filter(|given| given.reading == ArgumentUse::Unread).count()
    }

    /// Reads the next argument without a keyword. `name` is for messages.
    pub fn positional<T: ArgumentValue>(&mut self, name: &'static str) -> Reading<'_, 't, 'c, T> {
        self.reading(name, ArgumentForm { by_position: true, by_keyword: false })
    }

    /// Reads the argument with a keyword: `NAME value`. Of several, the last one counts.
    pub fn keyword<T: ArgumentValue>(&mut self, name: &'static str) -> Reading<'_, 't, 'c, T> {
        self.reading(name, ArgumentForm { by_position: false, by_keyword: true })
    }

    /// Reads the argument with a keyword, or else the next argument without a keyword.
    pub fn either<T: ArgumentValue>(&mut self, name: &'static str) -> Reading<'_, 't, 'c, T> {
        self.reading(name, ArgumentForm { by_position: true, by_keyword: true })
    }

    /// Reads a boolean argument with a keyword, which is false by default.
    pub fn flag(&mut self, name: &'static str) -> bool {
        self.keyword(name).or(false)
    }

    /// Reads all arguments with a keyword, in their order.
    pub fn all<T: ArgumentValue>(&mut self, name: &'static str) -> Vec<T> {
        self.note_keyword(name);
        let mut values = Vec::new();
        for index in 0..self.given.len() {
            if self.is_keyword(index, name) {
                self.given[index].reading = ArgumentUse::ByKeyword;
                let text = split_keyword(&self.given[index].text).map_or("", |(_, value)| value).to_owned();
                values.extend(self.parse(name, &text, None));
            }
        }
        values
    }

    /// Reads all remaining arguments, as text. Arguments with a keyword are among them.
    pub fn rest(&mut self) -> Vec<String> {
        let unread = self.given.iter_mut().filter(|given| given.reading == ArgumentUse::Unread);
        unread
            .map(|given| {
                given.reading = ArgumentUse::ByPosition;
                given.text.to_string()
            })
            .collect()
    }

    /// Adds an error that the element has found, about an argument or, with an empty name, about all.
    pub fn error(&mut self, argument: &str, text: impl Into<String>) {
        self.push_error(argument, ArgumentFault::Other(text.into()));
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// All errors of the arguments, also about those that were not read.
    pub fn end(mut self) -> Result<(), ArgumentErrors> {
        let mut has_too_many = false;
        let unread: Vec<String> = self
            .given
            .iter()
            .filter(|given| given.reading == ArgumentUse::Unread)
            .map(|given| given.text[..given.keyword_len].to_owned())
            .collect();
        for keyword in unread {
            if keyword.is_empty() {
                has_too_many = true;
                continue;
            }
            let nearest = nearest(&keyword, self.keywords.iter().copied());
            self.errors.push(ArgumentError { argument: keyword, fault: ArgumentFault::Unknown, nearest });
        }
        if has_too_many {
            self.push_error("", ArgumentFault::TooMany);
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(ArgumentErrors {
            element: self.context.element.to_owned(),
            class: self.context.class.to_owned(),
            landmark: self.context.landmark.clone(),
            errors: self.errors,
        })
    }

    fn reading<T>(&mut self, name: &'static str, form: ArgumentForm) -> Reading<'_, 't, 'c, T> {
        if form.by_keyword {
            self.note_keyword(name);
        }
        Reading { arguments: self, name, form, check: None, value: PhantomData }
    }

    fn note_keyword(&mut self, name: &'static str) {
        if !self.keywords.contains(&name) {
            self.keywords.push(name);
        }
    }

    fn is_keyword(&self, index: usize, name: &str) -> bool {
        let given = &self.given[index];
        given.reading == ArgumentUse::Unread
            && given.keyword_len > 0
            && given.text[..given.keyword_len] == *name
    }

    /// Takes the text of an argument, as Click does: of several arguments that can be meant, the last one counts. A
    /// required argument can be one that looks as if it had a keyword.
    fn take(&mut self, name: &str, form: ArgumentForm, is_required: bool) -> Option<String> {
        // Arguments without a keyword are not read after one that was read by its keyword.
        let next = self.given.iter().position(|given| given.reading != ArgumentUse::ByPosition);
        let next = next.filter(|index| self.given[*index].reading == ArgumentUse::Unread);
        let mut found = None;
        if form.by_keyword {
            for index in 0..self.given.len() {
                if self.is_keyword(index, name) {
                    self.given[index].reading = ArgumentUse::ByKeyword;
                    found = Some(index);
                }
            }
        }
        if form.by_position
            && let Some(index) = next
        {
            let given = &mut self.given[index];
            let fits = given.reading == ArgumentUse::Unread
                && (given.keyword_len == 0 || (found.is_none() && is_required));
            if fits {
                given.reading = ArgumentUse::ByPosition;
                if found.is_none_or(|keyword| keyword < index) {
                    return Some(given.text.to_string());
                }
            }
        }
        let text = &self.given[found?].text;
        Some(split_keyword(text).map_or("", |(_, value)| value).to_owned())
    }

    fn parse<T: ArgumentValue>(
        &mut self,
        name: &str,
        text: &str,
        check: Option<&ArgumentCheck<'_, T>>,
    ) -> Option<T> {
        let parsed = T::parse_argument(text, self.context);
        let checked = parsed.and_then(|value| match check {
            Some(check) => check(&value).map(|()| value),
            None => Ok(value),
        });
        checked.map_err(|fault| self.push_error(name, fault)).ok()
    }

    fn push_error(&mut self, argument: &str, fault: ArgumentFault) {
        self.errors.push(ArgumentError { argument: argument.to_owned(), fault, nearest: None });
    }
}

impl<'a, T: ArgumentValue> Reading<'a, '_, '_, T> {
    /// Accepts only values of a range.
    pub fn within<R>(self, range: R) -> Self
    where
        R: RangeBounds<T> + 'a,
        T: PartialOrd + Copy + Into<i128>,
    {
        self.checked(move |value| {
            if range.contains(value) {
                return Ok(());
            }
            use std::ops::Bound::{Excluded, Included, Unbounded};
            let bound = |bound: std::ops::Bound<&T>, inward: i128| match bound {
                Included(bound) => Some(Into::<i128>::into(*bound)),
                Excluded(bound) => Some(Into::<i128>::into(*bound) + inward),
                Unbounded => None,
            };
            let (start, end) = (bound(range.start_bound(), 1), bound(range.end_bound(), -1));
            let value = (*value).into();
            let missed = start.filter(|start| value < *start).or(end).or(start).unwrap_or_default();
            Err(ArgumentFault::OutOfRange(missed))
        })
    }

    /// Accepts only values that pass a check of the element.
    pub fn checked(mut self, check: impl Fn(&T) -> Result<(), ArgumentFault> + 'a) -> Self {
        self.check = Some(Box::new(check));
        self
    }

    /// Returns the value. A missing argument is an error.
    pub fn required(self) -> T {
        let (name, form) = (self.name, self.form);
        match self.arguments.take(name, form, true) {
            Some(text) => {
                self.arguments.parse(name, &text, self.check.as_deref()).unwrap_or_else(T::placeholder)
            }
            None => {
                self.arguments.push_error(name, ArgumentFault::Missing);
                T::placeholder()
            }
        }
    }

    /// Returns the value, or `default` if the argument is missing.
    pub fn or(self, default: T) -> T {
        self.optional().unwrap_or(default)
    }

    /// Returns the value, if the argument is there.
    pub fn optional(self) -> Option<T> {
        let text = self.arguments.take(self.name, self.form, false)?;
        self.arguments.parse(self.name, &text, self.check.as_deref())
    }
}
