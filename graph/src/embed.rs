//! Embeds external data into programs, and removes unused named data.

use crate::emit::first_bytes;
use crate::error::Error;
use crate::front::delegate;
use crate::method::{MethodTensor, MethodValue, Program, TensorData};
use crate::read;
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use torchlet_core::DataMap;

impl<'p> Program<'p> {
    /// Embeds external data: tensors that these files contain become tensors with data in the
    /// program, and the data that delegates read by key becomes named data. Returns the names of
    /// tensors that stay external.
    ///
    /// # Errors
    /// A file is malformed.
    pub fn embed(&mut self, data: &[DataMap<'p>]) -> Result<BTreeSet<String>, Error> {
        let (mut left, mut tensors) = (BTreeSet::new(), BTreeSet::new());
        let values = self.methods.iter_mut().flat_map(|method| &mut method.values);
        for value in values {
            let MethodValue::Tensor(tensor) = value else { continue };
            if !matches!(tensor.data, TensorData::Outside) {
                continue;
            }
            tensors.extend(tensor.name.clone());
            match external(tensor, data)? {
                Some(bytes) => tensor.data = TensorData::Inside(first_bytes(&bytes, &tensor.info)?),
                None => left.extend(tensor.name.clone()),
            }
        }
        self.embed_named(data, &tensors)?;
        Ok(left)
    }

    /// Embeds the named data that delegates read. With delegates of unknown formats, embeds
    /// everything except tensors of the program.
    fn embed_named(
        &mut self,
        data: &[DataMap<'p>],
        tensors: &BTreeSet<String>,
    ) -> Result<(), Error> {
        if data.is_empty() || self.methods.iter().all(|method| method.delegates.is_empty()) {
            return Ok(());
        }
        let asked = self.keys_of_delegates()?;
        let mut known: BTreeSet<String> = self.named.iter().map(|(key, _)| key.clone()).collect();
        for map in data {
            for name in map.names()? {
                let name = name?;
                let is_wanted = match &asked {
                    Some(asked) => asked.contains(name),
                    None => !tensors.contains(name),
                };
                if !is_wanted || known.contains(name) {
                    continue;
                }
                if let Some(blob) = map.get(name)? {
                    self.named.push((name.to_owned(), read::bytes(&blob)?));
                    known.insert(name.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Returns the keys that delegates read; `None` if the format of a delegate is unknown.
    fn keys_of_delegates(&self) -> Result<Option<BTreeSet<String>>, Error> {
        let mut used: BTreeSet<String> = BTreeSet::new();
        for delegate in self.methods.iter().flat_map(|method| &method.delegates) {
            let Some(keys) = delegate::keys(&delegate.processed)? else { return Ok(None) };
            used.extend(keys.into_iter().map(ToOwned::to_owned));
        }
        Ok(Some(used))
    }

    /// Removes named data that no delegate reads. Keeps everything if the format of a delegate is
    /// unknown, because its keys are unknown too.
    pub(crate) fn forget_unused_data(&mut self) -> Result<(), Error> {
        if self.named.is_empty() {
            return Ok(());
        }
        if let Some(used) = self.keys_of_delegates()? {
            self.named.retain(|(key, _)| used.contains(key));
        }
        Ok(())
    }

    /// Returns a key prefix that no named data of the program uses. A program that was compiled
    /// before already has keys of this form.
    pub(crate) fn unused_prefix(&self) -> String {
        let prefixes = (0..).map(|number: usize| format!("graph{number}/"));
        let is_free =
            |prefix: &String| self.named.iter().all(|(key, _)| !key.starts_with(prefix.as_str()));
        // Each key rules out at most one prefix.
        prefixes.take(self.named.len() + 1).find(is_free).unwrap_or_default()
    }
}

/// Returns the data of an external tensor, if one of these files contains it.
pub(crate) fn external<'p>(
    tensor: &MethodTensor<'_>,
    data: &[DataMap<'p>],
) -> Result<Option<Cow<'p, [u8]>>, Error> {
    let Some(name) = &tensor.name else { return Ok(None) };
    for map in data {
        let same = map.layout(name)?.is_some_and(|layout| layout == tensor.info);
        if let Some(blob) = map.get(name)?.filter(|_| same) {
            return Ok(Some(read::bytes(&blob)?));
        }
    }
    Ok(None)
}
