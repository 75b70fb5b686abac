//! Sizes of the types of a SPIR-V module, for limits on shared memory and push constants.
//!
//! The size of a type is known from the instruction that defines it, whose parts are defined
//! before it, so nothing recurses.

use crate::error::Error;
use std::collections::{HashMap, HashSet};

/// Opcodes of the types and constants that have a size or are part of one.
const TYPE_BOOL: u16 = 20;
const TYPE_INT: u16 = 21;
const TYPE_FLOAT: u16 = 22;
const TYPE_VECTOR: u16 = 23;
const TYPE_MATRIX: u16 = 24;
const TYPE_ARRAY: u16 = 28;
const TYPE_STRUCT: u16 = 30;
const CONSTANT: u16 = 43;
const CONSTANT_COMPOSITE: u16 = 44;
const SPEC_CONSTANT: u16 = 50;
const SPEC_CONSTANT_COMPOSITE: u16 = 51;

/// Decorations.
const ROW_MAJOR: u32 = 4;
const COLUMN_MAJOR: u32 = 5;
const ARRAY_STRIDE: u32 = 6;
const MATRIX_STRIDE: u32 = 7;
const OFFSET: u32 = 35;

fn bad(what: &str) -> Error {
    Error::Invalid(format!("SPIR-V: {what}"))
}

/// The last part of a value in explicit layout.
#[derive(Debug, Clone, Copy)]
enum Last {
    Bytes(u64),
    /// A matrix: the structure around it states its stride.
    Matrix {
        columns: u64,
        rows: u64,
        component: u64,
    },
}

/// Sizes of a type.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Size and alignment without explicit layout: those of std430, in which booleans have four
    /// bytes. Drivers pack at most as loosely.
    size: u64,
    align: u64,
    /// For vectors: components, and bytes of one.
    vector: (u64, u64),
    /// In explicit layout: bytes before the last part, and that part. `None` if the module states
    /// no such layout.
    explicit: Option<(u64, Last)>,
}

impl Shape {
    fn plain(size: u64, align: u64, vector: (u64, u64)) -> Self {
        Shape { size, align, vector, explicit: Some((0, Last::Bytes(vector.0 * vector.1))) }
    }
}

/// Types, integer constants and decorations of a module.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    shapes: HashMap<u32, Shape>,
    /// Types of integers of 32 bits, and constants of such types.
    ints: HashSet<u32>,
    constants: HashMap<u32, u32>,
    composites: HashMap<u32, Vec<u32>>,
    strides: HashMap<u32, u32>,
    /// Decorations of members, by structure, member and decoration.
    members: HashMap<(u32, u32, u32), u32>,
}

impl Layouts {
    /// Notes a decoration of a type.
    ///
    /// # Errors
    /// It has another length than its kind, or is repeated.
    pub(super) fn decorate(&mut self, id: u32, kind: u32, operands: &[u32]) -> Result<(), Error> {
        match (kind, operands) {
            (ARRAY_STRIDE, [stride]) => match self.strides.insert(id, *stride) {
                None => Ok(()),
                Some(_) => Err(bad("an array with two strides")),
            },
            (ARRAY_STRIDE, _) => Err(bad("a decoration of another length")),
            _ => Ok(()),
        }
    }

    /// Notes a decoration of a member.
    ///
    /// # Errors
    /// It has another length than its kind, or is repeated.
    pub(super) fn decorate_member(&mut self, operands: &[u32]) -> Result<(), Error> {
        let (id, member, kind, value) = match *operands {
            [id, member, kind @ (OFFSET | MATRIX_STRIDE), value] => (id, member, kind, value),
            [id, member, kind @ (ROW_MAJOR | COLUMN_MAJOR)] => (id, member, kind, 0),
            [_, _, ROW_MAJOR | COLUMN_MAJOR | OFFSET | MATRIX_STRIDE, ..] | [] | [_] | [_, _] => {
                return Err(bad("a decoration of another length"));
            }
            _ => return Ok(()),
        };
        match self.members.insert((id, member, kind), value) {
            None => Ok(()),
            Some(_) => Err(bad("a member that is decorated twice")),
        }
    }

    /// Reads the definition of a type or constant. Those without a known size are skipped.
    ///
    /// # Errors
    /// The instruction has another length than its kind.
    pub(super) fn define(&mut self, opcode: u16, operands: &[u32]) -> Result<(), Error> {
        let scalar = |bytes: u64| Shape::plain(bytes, bytes, (1, bytes));
        let (id, shape) = match (opcode, operands) {
            (TYPE_BOOL, [id]) => (*id, Some(Shape { explicit: None, ..scalar(4) })),
            (TYPE_INT, [id, width, _]) => {
                if *width == 32 {
                    self.ints.insert(*id);
                }
                (*id, bytes_of(*width).map(scalar))
            }
            (TYPE_FLOAT, [id, width]) => (*id, bytes_of(*width).map(scalar)),
            (TYPE_VECTOR, [id, of, count]) => (*id, self.vector(*of, *count)),
            (TYPE_MATRIX, [id, of, count]) => (*id, self.matrix(*of, *count)),
            (TYPE_ARRAY, [id, of, len]) => (*id, self.array(*id, *of, *len)),
            (TYPE_STRUCT, [id, members @ ..]) => (*id, self.structure(*id, members)),
            (CONSTANT | SPEC_CONSTANT, [of, id, value, rest @ ..]) => {
                // No specialization is passed, so the defaults of such constants hold.
                if self.ints.contains(of) {
                    if !rest.is_empty() {
                        return Err(bad("a constant of another length"));
                    }
                    self.constants.insert(*id, *value);
                }
                return Ok(());
            }
            (CONSTANT_COMPOSITE | SPEC_CONSTANT_COMPOSITE, [_, id, items @ ..]) => {
                // Of interest are sizes of workgroups only.
                if items.len() == 3 {
                    self.composites.insert(*id, items.to_vec());
                }
                return Ok(());
            }
            (
                TYPE_BOOL
                | TYPE_INT
                | TYPE_FLOAT
                | TYPE_VECTOR
                | TYPE_MATRIX
                | TYPE_ARRAY
                | TYPE_STRUCT
                | CONSTANT
                | SPEC_CONSTANT
                | CONSTANT_COMPOSITE
                | SPEC_CONSTANT_COMPOSITE,
                _,
            ) => return Err(bad("a type or constant of another length")),
            _ => return Ok(()),
        };
        if let Some(shape) = shape {
            self.shapes.insert(id, shape);
        }
        Ok(())
    }

    fn vector(&self, of: u32, count: u32) -> Option<Shape> {
        let of = self.shapes.get(&of).filter(|of| of.vector.0 == 1)?;
        let count = Some(u64::from(count)).filter(|count| (2..=4).contains(count))?;
        let padded = of.size * count.next_power_of_two();
        let shape = Shape::plain(padded, padded, (count, of.size));
        Some(Shape { explicit: of.explicit.and(shape.explicit), ..shape })
    }

    fn matrix(&self, of: u32, count: u32) -> Option<Shape> {
        let of = self.shapes.get(&of).filter(|of| of.vector.0 > 1)?;
        let columns = Some(u64::from(count)).filter(|count| (2..=4).contains(count))?;
        let (rows, component) = of.vector;
        let explicit = Some((0, Last::Matrix { columns, rows, component }));
        Some(Shape { size: of.size * columns, align: of.align, vector: (0, 0), explicit })
    }

    fn array(&self, id: u32, of: u32, len: u32) -> Option<Shape> {
        let (of, len) = (self.shapes.get(&of)?, u64::from(*self.constants.get(&len)?));
        let size = of.size.checked_next_multiple_of(of.align)?.checked_mul(len)?;
        let explicit =
            of.explicit.zip(self.strides.get(&id)).and_then(|((before, last), stride)| {
                let start = len.checked_sub(1)?.checked_mul(u64::from(*stride))?;
                Some((start.checked_add(before)?, last))
            });
        Some(Shape { size, align: of.align, vector: (0, 0), explicit })
    }

    fn structure(&self, id: u32, members: &[u32]) -> Option<Shape> {
        let (mut size, mut align) = (0u64, 1);
        for member in members {
            let of = self.shapes.get(member)?;
            size = size.checked_next_multiple_of(of.align)?.checked_add(of.size)?;
            align = align.max(of.align);
        }
        let size = size.checked_next_multiple_of(align)?;
        let ends = (0u32..).zip(members).map(|(at, member)| {
            let decorated = |kind: u32| self.members.get(&(id, at, kind)).map(|it| u64::from(*it));
            let (before, last) = self.shapes.get(member)?.explicit?;
            let last = match last {
                Last::Bytes(bytes) => bytes,
                Last::Matrix { columns, rows, component } => {
                    let order = [ROW_MAJOR, COLUMN_MAJOR].map(|order| decorated(order).is_some());
                    let (vectors, components) = match order {
                        [true, false] => (rows, columns),
                        [false, true] => (columns, rows),
                        _ => return None,
                    };
                    let start = decorated(MATRIX_STRIDE)?.checked_mul(vectors - 1)?;
                    start.checked_add(components * component)?
                }
            };
            decorated(OFFSET)?.checked_add(before)?.checked_add(last)
        });
        let end = ends.collect::<Option<Vec<u64>>>().map(|it| it.into_iter().max().unwrap_or(0));
        let explicit = end.map(|end| (0, Last::Bytes(end)));
        Some(Shape { size, align, vector: (0, 0), explicit })
    }

    /// Size and alignment of a type without explicit layout.
    pub(super) fn size(&self, id: u32) -> Option<(u64, u64)> {
        self.shapes.get(&id).map(|it| (it.size, it.align))
    }

    /// Bytes of a structure with explicit layout, up to the end of its last member.
    pub(super) fn extent(&self, id: u32) -> Option<u64> {
        match self.shapes.get(&id)?.explicit? {
            (before, Last::Bytes(bytes)) => before.checked_add(bytes),
            (_, Last::Matrix { .. }) => None,
        }
    }

    /// The values of a constant that is a vector of three integers.
    pub(super) fn triple(&self, id: u32) -> Option<[u32; 3]> {
        let [x, y, z] = self.composites.get(&id)?[..] else { return None };
        let value = |id: u32| self.constants.get(&id).copied();
        Some([value(x)?, value(y)?, value(z)?])
    }
}

/// Bytes of a scalar of `width` bits.
fn bytes_of(width: u32) -> Option<u64> {
    matches!(width, 8 | 16 | 32 | 64).then(|| u64::from(width / 8))
}
