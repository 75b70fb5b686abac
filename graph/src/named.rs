//! Named data: data that a program stores by key, such as the constants of delegates.

use crate::error::Error;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Blob, DataMap, Program, ProgramError};

/// Lookup of named data by key, in a program and its external files.
pub type Named<'n, 'p> = dyn Fn(&str) -> Result<Option<Blob<'p>>, ProgramError> + 'n;

/// Returns a lookup over the named data of a program and its external files.
pub(crate) fn of_program<'n, 'p>(
    program: &'n Program<'p>,
    data: &'n [DataMap<'p>],
) -> impl Fn(&str) -> Result<Option<Blob<'p>>, ProgramError> + 'n {
    move |key| {
        if let Some(blob) = program.named_data(key)? {
            return Ok(Some(blob));
        }
        for map in data {
            if let Some(blob) = map.get(key)? {
                return Ok(Some(blob));
            }
        }
        Ok(None)
    }
}

/// Returns the first `bytes` bytes of named data, borrowed if possible.
pub(crate) fn read_named<'p>(
    named: &Named<'_, 'p>,
    key: &str,
    bytes: usize,
) -> Result<Cow<'p, [u8]>, Error> {
    let missing = || {
        Error::Invalid(format!(
            "named data '{key}' is missing; pass the .ptd file that contains it"
        ))
    };
    let blob = named(key)?.ok_or_else(missing)?;
    let size = blob.size();
    if size < bytes {
        return Err(Error::Invalid(format!(
            "named data '{key}': expected {bytes} bytes, found {size}"
        )));
    }
    if let Some(lent) = blob.lend() {
        return Ok(Cow::Borrowed(lent.get(..bytes).unwrap_or(lent)));
    }
    let mut copy = vec![0; bytes];
    blob.read(0, &mut copy)?;
    Ok(Cow::Owned(copy))
}

/// Collects constants into the named data of a program. Constants that borrow the same bytes share
/// a key.
#[derive(Debug, Default)]
pub struct Constants<'p> {
    /// Prefix of all keys.
    prefix: String,
    named: Vec<(String, Cow<'p, [u8]>)>,
    /// Index into `named` by address and length. The bytes must stay at their address.
    known: BTreeMap<(usize, usize), usize>,
}

impl<'p> Constants<'p> {
    /// Creates an empty collection. No other key of the program may start with `prefix`.
    pub fn new(prefix: &str) -> Self {
        Constants { prefix: String::from(prefix), ..Self::default() }
    }

    /// Adds a constant and returns its key.
    pub(crate) fn add(&mut self, data: Cow<'p, [u8]>) -> &str {
        let next = self.named.len();
        let place = *self.known.entry((data.as_ptr() as usize, data.len())).or_insert(next);
        if place == next {
            self.named.push((format!("{}{place}", self.prefix), data));
        }
        self.named.get(place).map_or("", |(key, _)| key)
    }

    /// Returns the collected data, as pairs of key and bytes.
    pub fn into_named(self) -> Vec<(String, Cow<'p, [u8]>)> {
        self.named
    }
}
