//! Annotations of packets: names of fields in the bytes that travel with a packet.

use super::names::in_scopes;
use super::number::parse_unsigned;
use super::{ArgumentContext, ArgumentFault, ArgumentValue};
use crate::annotations::{ANNOTATION_BYTES, ANNOTATIONS};

/// An annotation of this many bytes, as its offset: a name such as `PAINT`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnnotationField<const SIZE: usize>(pub usize);

impl<const SIZE: usize> ArgumentValue for AnnotationField<SIZE> {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let (offset, size) = match parse_unsigned(text) {
            Some(offset) => (usize::try_from(offset).unwrap_or(usize::MAX), SIZE),
            None => in_scopes(text, context.element, |name| context.names.annotation(name))
                .or_else(|| {
                    let known = ANNOTATIONS.iter().find(|known| known.name == text)?;
                    Some((usize::from(known.offset), usize::from(known.size)))
                })
                .ok_or(ArgumentFault::Type("annotation"))?,
        };
        let ends = offset.checked_add(SIZE).is_some_and(|end| end <= ANNOTATION_BYTES);
        if size != SIZE || !ends { Err(ArgumentFault::AnnotationSize(SIZE)) } else { Ok(Self(offset)) }
    }

    fn placeholder() -> Self {
        Self(0)
    }
}
