//! Moves constants and named data of a program into a file of external data (`.ptd`).
//! [`Program::embed`] is the inverse.

use crate::error::Error;
use crate::method::{MethodTensor, MethodValue, Program, TensorData};
use crate::package::{DATA_ALIGN, Package};
use crate::tables::{Fields, Offset, table, with_header};
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use flatbuffers::FlatBufferBuilder;
use torchlet_core::{DataLoader, TensorInfo};

/// Size of the header in bytes: magic, header length, and offset and size of the flatbuffer and of
/// the segments.
const HEADER_BYTES: usize = 40;

/// A file of external data under construction.
#[derive(Default)]
struct Outside<'p> {
    /// Contents of the segments, in order.
    segments: Vec<Cow<'p, [u8]>>,
    /// Name, segment and, for tensors, layout of each entry.
    names: Vec<(String, usize, Option<TensorInfo>)>,
    taken: BTreeSet<String>,
    /// For each name with conflicts, the next suffix to try; lower ones are in use.
    numbers: BTreeMap<String, usize>,
    /// Maps the address and length of borrowed data to its segment.
    places: BTreeMap<(usize, usize), usize>,
    /// Maps a segment and a printed layout to the entry of its tensors.
    known: BTreeMap<(usize, String), usize>,
}

impl<'p> Program<'p> {
    /// Moves constants and named data into a file of external data, where the program finds them by
    /// name. The initial contents of state stay in the program, as runtimes require, and so do
    /// empty constants. Returns `None` if no data can be moved.
    ///
    /// # Errors
    /// The data is larger than the format allows.
    pub fn split(&mut self) -> Result<Option<Package<'p>>, Error> {
        let mut outside = Outside::default();
        // Names of data that the program already expects in an external file.
        for value in self.methods.iter().flat_map(|method| &method.values) {
            if let MethodValue::Tensor(MethodTensor { data: TensorData::Outside, name, .. }) = value
            {
                outside.taken.extend(name.clone());
            }
        }
        for (key, bytes) in core::mem::take(&mut self.named) {
            outside.taken.insert(key.clone());
            let segment = outside.segment(bytes);
            outside.names.push((key, segment, None));
        }
        for value in self.methods.iter_mut().flat_map(|method| &mut method.values) {
            let MethodValue::Tensor(tensor) = value else { continue };
            let is_constant = tensor.location.is_none() && tensor.info.nbytes() > 0;
            match core::mem::take(&mut tensor.data) {
                TensorData::Inside(bytes) if is_constant => {
                    tensor.name = Some(outside.tensor(tensor, bytes));
                    tensor.data = TensorData::Outside;
                }
                data => tensor.data = data,
            }
        }
        if outside.names.is_empty() {
            return Ok(None);
        }
        outside.write().map(Some)
    }
}

impl<'p> Outside<'p> {
    fn segment(&mut self, bytes: Cow<'p, [u8]>) -> usize {
        let next = self.segments.len();
        if let Cow::Borrowed(lent) = &bytes {
            let place = (lent.as_ptr() as usize, lent.len());
            if let Some(known) = self.places.get(&place) {
                return *known;
            }
            self.places.insert(place, next);
        }
        self.segments.push(bytes);
        next
    }

    /// Adds the data of a tensor, and returns the name of its entry: the tensor's name, with a
    /// suffix if that is in use.
    fn tensor(&mut self, tensor: &MethodTensor<'_>, bytes: Cow<'p, [u8]>) -> String {
        let segment = self.segment(bytes);
        let next = self.names.len();
        let layout = format!("{} {:?}", tensor.info, tensor.info.dim_order);
        let entry = *self.known.entry((segment, layout)).or_insert(next);
        if let Some((name, ..)) = self.names.get(entry) {
            return name.clone();
        }
        let wanted = tensor.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("constant");
        let name = match self.taken.contains(wanted) {
            false => wanted.to_owned(),
            true => {
                let number = self.numbers.entry(wanted.to_owned()).or_insert(1);
                loop {
                    let name = format!("{wanted}.{number}");
                    *number += 1;
                    // Terminates: each name in use rejects at most one suffix.
                    if !self.taken.contains(&name) {
                        break name;
                    }
                }
            }
        };
        self.taken.insert(name.clone());
        self.names.push((name.clone(), segment, Some(tensor.info.clone())));
        name
    }

    fn write(self) -> Result<Package<'p>, Error> {
        let mut data = Package::default();
        let mut b = FlatBufferBuilder::new();
        let mut places = Vec::new();
        for bytes in self.segments {
            let size = bytes.len() as u64;
            places.push((data.push(bytes), size));
        }
        let mut tables: Vec<Offset> = Vec::new();
        for (start, size) in places {
            tables.push(table(&mut b, |t| {
                t.scalar(0, start);
                t.scalar(1, size);
            }));
        }
        let segments = b.create_vector(&tables);
        tables.clear();
        for (name, segment, layout) in &self.names {
            let layout = layout.as_ref().map(|info| layout_table(&mut b, info));
            let key = b.create_string(name);
            let segment = u32::try_from(*segment)
                .map_err(|_| Error::invalid("a .ptd file has more than 2^32 segments"))?;
            tables.push(table(&mut b, |t: &mut Fields<'_>| {
                t.offset(0, key);
                t.scalar(1, segment);
                if let Some(layout) = layout {
                    t.offset(2, layout);
                }
            }));
        }
        let named = b.create_vector(&tables);
        let root = table(&mut b, |t| {
            t.offset(1, segments);
            t.offset(2, named);
        });
        b.finish(root, Some("FT01"));
        let flatbuffer = b.finished_data();
        let end = (flatbuffer.len() + HEADER_BYTES) as u64;
        // The flatbuffer begins after the header, but its offsets count from the start of the file.
        let start = (8 + HEADER_BYTES) as u64;
        let numbers = [start, end - start, end.next_multiple_of(DATA_ALIGN), data.size()];
        let mut package = Package::default();
        package.push(Cow::Owned(with_header(flatbuffer, *b"FH01", &numbers)));
        package.append(data);
        Ok(package)
    }
}

fn layout_table(b: &mut FlatBufferBuilder<'static>, info: &TensorInfo) -> Offset {
    let (sizes, order) = (b.create_vector(&info.sizes), b.create_vector(&info.dim_order));
    table(b, |t| {
        t.offset(1, sizes);
        t.offset(2, order);
        t.scalar(0, info.scalar_type as i8);
    })
}
