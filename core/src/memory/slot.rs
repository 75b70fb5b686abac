//! Compact tensor descriptors: firmware has hundreds of tensors and kilobytes of memory.
//!
//! Shapes and dim orders stay in the file; a slot stores their offsets. The data location occupies
//! two words, one of which is either an address or a number. Only this module knows which, and
//! converts an address back to a [`Region`].

use super::region::Region;
use crate::dtype::ScalarType;
use crate::runtime_features::{RuntimeFeatures, has};
use core::marker::PhantomData;
use core::ptr::without_provenance_mut;

/// Kind of storage of a tensor's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageKind {
    /// Constant data of the program or of external data.
    Constant,
    /// Planned memory.
    Planned,
    /// Memory that the caller binds, or a view that an instruction creates.
    Caller,
    /// View of the tensor in this slot, which is not a view itself. The view always has that
    /// tensor's data.
    View(u32),
}

/// Pseudo buffer index of unplanned state: tensors with initial data that are written but not
/// memory-planned. Loading allocates them in the method arena; until then, the offset in this
/// pseudo buffer makes them distinct.
pub(crate) const UNPLANNED_STATE_BUFFER: u16 = u16::MAX;

/// Location of a tensor's data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Data<'m> {
    /// No data yet.
    None,
    /// Offset in a planned buffer, before the buffers are allocated.
    Planned { buffer: u16, offset: usize },
    /// The data of the tensor in this slot ([`StorageKind::View`]).
    View(u32),
    /// Data in memory.
    At(Region<'m>),
}

/// Bit flags for a tensor's storage kind and the meaning of `start`.
mod location {
    /// `start` is a readable address.
    pub(super) const READABLE: u8 = 1;
    /// The address is also writable.
    pub(super) const WRITABLE: u8 = 2;
    /// `start` is an offset in a planned buffer.
    pub(super) const OFFSET: u8 = 4;
    /// `start` is the slot number that this tensor views.
    pub(super) const VIEW: u8 = 8;
    // Storage kind: without either flag, the caller. It stays the same when data is bound or
    // removed.
    pub(super) const PLANNED: u8 = 16;
    pub(super) const CONSTANT: u8 = 32;
}

/// A tensor of a method: dtype, offset of its shape in the file, location of its data.
#[derive(Debug)]
pub(crate) struct TensorSlot<'m> {
    start: *mut u8,
    /// Bytes at the address. For a fixed shape, always the size of the tensor, even without an
    /// address.
    len: usize,
    /// Offset of the sizes in the file; or [`DYNAMIC`] plus the index in the table of dynamic
    /// shapes.
    sizes: u32,
    /// Offset of the dim order in the file.
    pub(crate) dim_order: u32,
    /// Planned buffer of the offset.
    buffer: u16,
    pub(crate) scalar_type: ScalarType,
    /// [Storage kind and data](location) flags.
    location: u8,
    borrow: PhantomData<Region<'m>>,
}

/// Location of a tensor's shape.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ShapeLocation {
    /// Offset in the file: the shape is static.
    File(usize),
    /// Index in the table of dynamic shapes.
    Dynamic(usize),
}

const DYNAMIC: u32 = 1 << 31;

// SAFETY: the pointer is a number, or the address of a region, which itself is `Send` and `Sync`.
// Only `data` uses the pointer, to return that region.
unsafe impl Send for TensorSlot<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for TensorSlot<'_> {}

impl<'m> TensorSlot<'m> {
    /// Placeholder for a tensor before decoding.
    pub(crate) fn empty() -> Self {
        TensorSlot {
            start: core::ptr::null_mut(),
            len: 0,
            sizes: 0,
            dim_order: 0,
            buffer: 0,
            scalar_type: ScalarType::Byte,
            location: 0,
            borrow: PhantomData,
        }
    }

    /// Creates a tensor without data. `bytes` is the size of its exported shape. `None` if a file
    /// offset does not fit.
    #[inline(always)]
    pub(crate) fn new(
        scalar_type: ScalarType,
        shape: ShapeLocation,
        dim_order: usize,
        bytes: usize,
    ) -> Option<Self> {
        let (at, dynamic) = match shape {
            ShapeLocation::File(at) => (at, 0),
            ShapeLocation::Dynamic(at) => (at, DYNAMIC),
        };
        let at = u32::try_from(at).ok().filter(|at| at & DYNAMIC == 0)?;
        Some(TensorSlot {
            scalar_type,
            len: bytes,
            sizes: at | dynamic,
            dim_order: u32::try_from(dim_order).ok()?,
            ..TensorSlot::empty()
        })
    }

    /// Location of the shape.
    pub(crate) fn shape_location(&self) -> ShapeLocation {
        match self.is_fixed() {
            true => ShapeLocation::File(self.sizes as usize),
            false => ShapeLocation::Dynamic((self.sizes ^ DYNAMIC) as usize),
        }
    }

    /// Whether the file declares the shape as dynamic. An image without
    /// [`RuntimeFeatures::VARIABLE`] rejects programs with such tensors.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.sizes & DYNAMIC != 0
    }

    /// Whether the shape never changes.
    pub(crate) fn is_fixed(&self) -> bool {
        !has(RuntimeFeatures::VARIABLE) || !self.is_dynamic()
    }

    /// Size in bytes of a tensor with a fixed shape.
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        self.is_fixed().then_some(self.len)
    }

    /// Location of the data.
    #[inline(never)]
    pub(crate) fn data(&self) -> Data<'m> {
        if self.location & location::READABLE == 0 {
            return match self.location {
                // Lossless: the value was a slot number.
                flags if flags & location::VIEW != 0 && has(RuntimeFeatures::VIEWS) => {
                    Data::View(self.start.addr() as u32)
                }
                flags if flags & location::OFFSET != 0 => {
                    Data::Planned { buffer: self.buffer, offset: self.start.addr() }
                }
                _ => Data::None,
            };
        }
        let writable = self.location & location::WRITABLE != 0;
        // SAFETY: only `set_data` makes a slot readable, with address and length of one region for
        // 'm, and writable only if that region is. All other writes to `start` clear the readable
        // flag.
        Data::At(unsafe { Region::join(self.start, self.len, writable) })
    }

    /// Sets or removes the data. A tensor with a fixed shape gets exactly its size, or nothing if
    /// the region is too small.
    #[inline(never)]
    pub(crate) fn set_data(&mut self, region: Option<Region<'m>>) {
        let bytes = self.fixed_bytes();
        let region = region.and_then(|region| region.part(0, bytes.unwrap_or(region.len())));
        self.location &= location::PLANNED | location::CONSTANT;
        if let Some((start, len, writable)) = region.map(Region::split) {
            (self.start, self.len) = (start, len);
            self.location |= location::READABLE | if writable { location::WRITABLE } else { 0 };
        }
    }

    pub(crate) fn storage_kind(&self) -> StorageKind {
        match self.location {
            // Lossless: the value was a slot number.
            flags if flags & location::VIEW != 0 => StorageKind::View(self.start.addr() as u32),
            flags if flags & location::PLANNED != 0 => StorageKind::Planned,
            flags if flags & location::CONSTANT != 0 => StorageKind::Constant,
            _ => StorageKind::Caller,
        }
    }

    /// Makes the tensor a constant, without data yet.
    pub(crate) fn set_constant(&mut self) {
        self.location = location::CONSTANT;
    }

    /// Sets the planned buffer and offset.
    pub(crate) fn set_planned(&mut self, buffer: u16, offset: usize) {
        (self.location, self.start) =
            (location::PLANNED | location::OFFSET, without_provenance_mut(offset));
        self.buffer = buffer;
    }

    /// Makes the tensor a view of slot `root`, or caller-bound for `None`.
    pub(crate) fn set_view(&mut self, root: Option<u32>) {
        let number = |root: u32| (location::VIEW, without_provenance_mut(root as usize));
        (self.location, self.start) = root.map_or((0, core::ptr::null_mut()), number);
    }

    /// Required alignment of the data in bytes, at most 8.
    pub(crate) fn alignment(&self) -> usize {
        self.scalar_type.size().clamp(1, 8)
    }

    /// Whether the tensor is memory-planned, wherever its data is.
    pub(crate) fn is_planned(&self) -> bool {
        self.location & location::PLANNED != 0
    }

    /// Whether the caller binds the memory: neither a view nor planned nor constant.
    pub(crate) fn is_caller_bound(&self) -> bool {
        self.location & (location::VIEW | location::PLANNED | location::CONSTANT) == 0
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.location & location::CONSTANT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(shape: ShapeLocation, bytes: usize) -> Option<TensorSlot<'static>> {
        TensorSlot::new(ScalarType::Byte, shape, 0, bytes)
    }

    #[test]
    fn data_round_trips() {
        let mut bytes = [1u8, 2, 3];
        let constant = [4u8, 5];
        let mut slot = slot(ShapeLocation::Dynamic(5), 3).unwrap();
        assert!(!slot.is_fixed());
        assert!(matches!(slot.data(), Data::None));
        slot.set_planned(7, 48);
        assert!(matches!(slot.data(), Data::Planned { buffer: 7, offset: 48 }));
        assert_eq!(slot.storage_kind(), StorageKind::Planned);
        slot.set_view(Some(u32::MAX));
        assert_eq!(slot.storage_kind(), StorageKind::View(u32::MAX));
        slot.set_view(None);
        slot.set_data(Some(Region::read_only(&constant)));
        let Data::At(region) = slot.data() else { panic!() };
        // SAFETY: nothing writes to `constant`.
        assert_eq!(unsafe { (region.bytes(), region.bytes_mut()) }, (&[4u8, 5][..], None));
        slot.set_data(Some(Region::writable(&mut bytes)));
        let Data::At(region) = slot.data() else { panic!() };
        // SAFETY: `bytes` is borrowed only by the region.
        unsafe { region.bytes_mut() }.unwrap()[1] = 9;
        assert_eq!(bytes, [1, 9, 3]);
    }

    #[test]
    fn fixed_shape_has_exact_size_or_no_data() {
        let constant = [1u8, 2, 3, 4];
        let mut slot = slot(ShapeLocation::File(0), 3).unwrap();
        slot.set_constant();
        slot.set_data(Some(Region::read_only(&constant)));
        assert!(matches!(slot.data(), Data::At(region) if region.len() == 3));
        slot.set_data(Some(Region::read_only(&constant[..2])));
        assert!(matches!(slot.data(), Data::None) && slot.is_constant());
        assert_eq!(slot.fixed_bytes(), Some(3));
    }

    #[test]
    fn planned_tensors_stay_planned() {
        let constant = [1u8, 2, 3];
        let mut slot = slot(ShapeLocation::File(0), 3).unwrap();
        slot.set_planned(0, 16);
        slot.set_data(Some(Region::read_only(&constant)));
        assert!(matches!(slot.data(), Data::At(region) if region.len() == 3));
        assert_eq!(slot.storage_kind(), StorageKind::Planned);
        slot.set_data(None);
        assert!(matches!(slot.data(), Data::None));
        assert_eq!(slot.storage_kind(), StorageKind::Planned);
    }

    #[test]
    fn shape_offsets_must_fit() {
        assert!(slot(ShapeLocation::File(DYNAMIC as usize - 1), 0).unwrap().is_fixed());
        assert!(slot(ShapeLocation::File(DYNAMIC as usize), 0).is_none());
        assert!(slot(ShapeLocation::Dynamic(usize::MAX), 0).is_none());
    }
}
