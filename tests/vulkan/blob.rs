//! Layout of a delegate's blob: header (`VH00`), flatbuffer (`VK00`), constants.

// Each test target uses only a part.
#![allow(dead_code)]

/// A meaningful field in a file, with its offset.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Site {
    /// Kind of a value, one byte.
    Kind(usize),
    /// Dtype, one byte.
    ElementType(usize),
    /// Size of a tensor's dim, 32 bits.
    Size(usize),
    /// Length of a vector, 32 bits.
    Count(usize),
    /// Id of a value, 32 bits.
    Id(usize),
    /// Index of a constant, 32 bits.
    Constant(usize),
    /// Offset or size of a constant, 64 bits.
    Offset(usize),
    /// An integer, 64 bits.
    Int(usize),
    /// A floating-point number, 64 bits.
    Double(usize),
    /// Symbolic integer, 32 bits.
    Short(usize),
    /// Name of an operator: 32-bit length, followed by the bytes.
    Name(usize),
}

/// A blob in a file, by file offsets.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) start: usize,
    /// End of the graph.
    pub(crate) graph_end: usize,
    /// End of the constants.
    pub(crate) end: usize,
    pub(crate) sites: Vec<Site>,
    /// Number of values.
    pub(crate) values: usize,
}

/// Reader of a well-formed file: all accesses succeed.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn number(&self, at: usize, width: usize) -> usize {
        self.0[at..at + width].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
    }

    /// Resolves the 32-bit offset at this position.
    fn follow(&self, at: usize) -> usize {
        at + self.number(at, 4)
    }

    /// Position of a table's field.
    fn field(&self, table: usize, field: usize) -> Option<usize> {
        let offset = self.number(table, 4) as u32 as i32;
        let vtable = (table as i64 - i64::from(offset)) as usize;
        let place = 4 + 2 * field;
        let present = place + 2 <= self.number(vtable, 2);
        let offset = if present { self.number(vtable + place, 2) } else { 0 };
        (offset != 0).then_some(table + offset)
    }

    /// Positions of a vector's length and elements.
    fn vector(&self, table: usize, field: usize, width: usize) -> (Option<usize>, Vec<usize>) {
        let Some(field) = self.field(table, field) else { return (None, Vec::new()) };
        let vector = self.follow(field);
        let count = self.number(vector, 4);
        (Some(vector), (0..count).map(|index| vector + 4 + index * width).collect())
    }
}

impl Blob {
    /// Finds all blobs of a file.
    pub(crate) fn find(file: &[u8]) -> Vec<Blob> {
        let marks = file.windows(4).enumerate().filter(|(_, bytes)| *bytes == b"VH00");
        let starts: Vec<usize> = marks.filter_map(|(at, _)| at.checked_sub(4)).collect();
        starts.into_iter().map(|start| Blob::read(file, start)).collect()
    }

    fn read(file: &[u8], start: usize) -> Blob {
        let reader = Reader(file);
        let graph = start + reader.number(start + 10, 4);
        let graph_end = graph + reader.number(start + 14, 4);
        let data = start + reader.number(start + 18, 4);
        let end = (data + reader.number(start + 22, 8)).min(file.len());
        let mut blob =
            Blob { start, graph_end, end: end.max(graph_end), sites: Vec::new(), values: 0 };
        let root = reader.follow(graph);
        for call in reader.vector(root, 1, 4).1 {
            let call = reader.follow(call);
            if let Some(name) = reader.field(call, 1) {
                blob.sites.push(Site::Name(reader.follow(name)));
            }
            blob.list(&reader, call, 2, 4, Site::Id);
        }
        let (_, values) = reader.vector(root, 2, 4);
        blob.values = values.len();
        for value in values {
            blob.value(&reader, reader.follow(value));
        }
        blob.list(&reader, root, 3, 4, Site::Id);
        blob.list(&reader, root, 4, 4, Site::Id);
        for constant in reader.vector(root, 5, 4).1 {
            let constant = reader.follow(constant);
            let places = [reader.field(constant, 0), reader.field(constant, 1)];
            blob.sites.extend(places.into_iter().flatten().map(Site::Offset));
        }
        blob
    }

    fn list(
        &mut self,
        reader: &Reader<'_>,
        table: usize,
        field: usize,
        width: usize,
        site: fn(usize) -> Site,
    ) {
        let (count, elements) = reader.vector(table, field, width);
        self.sites.extend(count.map(Site::Count));
        self.sites.extend(elements.into_iter().map(site));
    }

    fn value(&mut self, reader: &Reader<'_>, value: usize) {
        let (Some(kind), Some(table)) = (reader.field(value, 0), reader.field(value, 1)) else {
            return;
        };
        self.sites.push(Site::Kind(kind));
        let table = reader.follow(table);
        let first = reader.field(table, 0);
        match reader.0[kind] {
            2 => self.sites.extend(first.map(Site::Int)),
            3 => self.sites.extend(first.map(Site::Double)),
            5 => {
                self.sites.extend(first.map(Site::ElementType));
                self.list(reader, table, 1, 4, Site::Size);
                self.sites.extend(reader.field(table, 2).map(Site::Constant));
                self.sites.extend(reader.field(table, 6).map(Site::ElementType));
            }
            6 => self.list(reader, table, 0, 8, Site::Int),
            7 => self.list(reader, table, 0, 8, Site::Double),
            9 => self.list(reader, table, 0, 4, Site::Id),
            11 => self.sites.extend(first.map(Site::Short)),
            _ => {}
        }
    }
}
