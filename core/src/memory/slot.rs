//! Compact tensor descriptors: firmware has hundreds of tensors and kilobytes of memory.
//!
//! Shapes and dim orders stay in the file; a slot stores their offsets. The data location occupies
//! two words, one of which is either an address or a number. Only this module knows which, and
//! converts an address back to a [`Region`].

use super::region::Region;
use crate::dtype::ScalarType;
use crate::uses::{Uses, has};
use core::marker::PhantomData;
use core::ptr::without_provenance_mut;

/// Kind of storage of a tensor's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
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
pub(crate) const OWN_BUFFER: u16 = u16::MAX;

/// Location of a tensor's data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Data<'m> {
    /// No data yet.
    None,
    /// Offset in a planned buffer, before the buffers are allocated.
    Planned { buffer: u16, offset: usize },
    /// The data of the tensor in this slot ([`Home::View`]).
    View(u32),
    /// Data in memory.
    At(Region<'m>),
}

/// Bit flags for a tensor's home and the meaning of `start`.
mod place {
    /// `start` is a readable address.
    pub(super) const READABLE: u8 = 1;
    /// The address is also writable.
    pub(super) const WRITABLE: u8 = 2;
    /// `start` is an offset in a planned buffer.
    pub(super) const OFFSET: u8 = 4;
    /// `start` is the slot number that this tensor views.
    pub(super) const VIEW: u8 = 8;
    // Home: without either flag, the caller. The home stays the same when data is bound or removed.
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
    /// Offset of the sizes in the file; or [`CHANGING`] plus the index in the table of dynamic
    /// shapes.
    sizes: u32,
    /// Offset of the dim order in the file.
    pub(crate) dim_order: u32,
    /// Planned buffer of the offset.
    buffer: u16,
    pub(crate) scalar_type: ScalarType,
    /// [Home and data](place) flags.
    place: u8,
    lent: PhantomData<Region<'m>>,
}

/// Location of a tensor's shape.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ShapeAt {
    /// Offset in the file: the shape is static.
    File(usize),
    /// Index in the table of dynamic shapes.
    Changing(usize),
}

const CHANGING: u32 = 1 << 31;

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
            place: 0,
            lent: PhantomData,
        }
    }

    /// Creates a tensor without data. `bytes` is the size of its exported shape. `None` if a file
    /// offset does not fit.
    #[inline(always)]
    pub(crate) fn new(
        scalar_type: ScalarType,
        shape: ShapeAt,
        dim_order: usize,
        bytes: usize,
    ) -> Option<Self> {
        let (at, changing) = match shape {
            ShapeAt::File(at) => (at, 0),
            ShapeAt::Changing(at) => (at, CHANGING),
        };
        let at = u32::try_from(at).ok().filter(|at| at & CHANGING == 0)?;
        Some(TensorSlot {
            scalar_type,
            len: bytes,
            sizes: at | changing,
            dim_order: u32::try_from(dim_order).ok()?,
            ..TensorSlot::empty()
        })
    }

    /// Location of the shape.
    pub(crate) fn shape_at(&self) -> ShapeAt {
        match self.is_fixed() {
            true => ShapeAt::File(self.sizes as usize),
            false => ShapeAt::Changing((self.sizes ^ CHANGING) as usize),
        }
    }

    /// Whether the file declares the shape as dynamic. An image without [`Uses::VARIABLE`] rejects
    /// programs with such tensors.
    pub(crate) fn varies(&self) -> bool {
        self.sizes & CHANGING != 0
    }

    /// Whether the shape never changes.
    pub(crate) fn is_fixed(&self) -> bool {
        !has(Uses::VARIABLE) || !self.varies()
    }

    /// Size in bytes of a tensor with a fixed shape.
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        self.is_fixed().then_some(self.len)
    }

    /// Location of the data.
    #[inline(never)]
    pub(crate) fn data(&self) -> Data<'m> {
        if self.place & place::READABLE == 0 {
            return match self.place {
                // Lossless: the value was a slot number.
                place if place & place::VIEW != 0 && has(Uses::VIEWS) => {
                    Data::View(self.start.addr() as u32)
                }
                place if place & place::OFFSET != 0 => {
                    Data::Planned { buffer: self.buffer, offset: self.start.addr() }
                }
                _ => Data::None,
            };
        }
        let writable = self.place & place::WRITABLE != 0;
        // SAFETY: only `put` makes a slot readable, with address and length of one region for 'm,
        // and writable only if that region is. All other writes to `start` clear the readable flag.
        Data::At(unsafe { Region::join(self.start, self.len, writable) })
    }

    /// Sets or removes the data. A tensor with a fixed shape gets exactly its size, or nothing if
    /// the region is too small.
    #[inline(never)]
    pub(crate) fn put(&mut self, region: Option<Region<'m>>) {
        let bytes = self.fixed_bytes();
        let region = region.and_then(|region| region.part(0, bytes.unwrap_or(region.len())));
        self.place &= place::PLANNED | place::CONSTANT;
        if let Some((start, len, writable)) = region.map(Region::split) {
            (self.start, self.len) = (start, len);
            self.place |= place::READABLE | if writable { place::WRITABLE } else { 0 };
        }
    }

    pub(crate) fn home(&self) -> Home {
        match self.place {
            // Lossless: the value was a slot number.
            place if place & place::VIEW != 0 => Home::View(self.start.addr() as u32),
            place if place & place::PLANNED != 0 => Home::Planned,
            place if place & place::CONSTANT != 0 => Home::Constant,
            _ => Home::Caller,
        }
    }

    /// Makes the tensor a constant, without data yet.
    pub(crate) fn become_constant(&mut self) {
        self.place = place::CONSTANT;
    }

    /// Sets the planned buffer and offset.
    pub(crate) fn plan(&mut self, buffer: u16, offset: usize) {
        (self.place, self.start) = (place::PLANNED | place::OFFSET, without_provenance_mut(offset));
        self.buffer = buffer;
    }

    /// Makes the tensor a view of slot `root`, or caller-bound for `None`.
    pub(crate) fn view(&mut self, root: Option<u32>) {
        let number = |root: u32| (place::VIEW, without_provenance_mut(root as usize));
        (self.place, self.start) = root.map_or((0, core::ptr::null_mut()), number);
    }

    /// Required alignment of the data in bytes, at most 8.
    pub(crate) fn alignment(&self) -> usize {
        self.scalar_type.size().clamp(1, 8)
    }

    /// Whether the tensor is memory-planned, wherever its data is.
    pub(crate) fn is_planned(&self) -> bool {
        self.place & place::PLANNED != 0
    }

    /// Whether the caller binds the memory: neither a view nor planned nor constant.
    pub(crate) fn is_callers(&self) -> bool {
        self.place & (place::VIEW | place::PLANNED | place::CONSTANT) == 0
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.place & place::CONSTANT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(shape: ShapeAt, bytes: usize) -> Option<TensorSlot<'static>> {
        TensorSlot::new(ScalarType::Byte, shape, 0, bytes)
    }

    #[test]
    fn data_comes_back_as_it_was_put() {
        let mut bytes = [1u8, 2, 3];
        let constant = [4u8, 5];
        let mut slot = slot(ShapeAt::Changing(5), 3).unwrap();
        assert!(!slot.is_fixed());
        assert!(matches!(slot.data(), Data::None));
        slot.plan(7, 48);
        assert!(matches!(slot.data(), Data::Planned { buffer: 7, offset: 48 }));
        assert_eq!(slot.home(), Home::Planned);
        slot.view(Some(u32::MAX));
        assert_eq!(slot.home(), Home::View(u32::MAX));
        slot.view(None);
        slot.put(Some(Region::read_only(&constant)));
        let Data::At(region) = slot.data() else { panic!() };
        // SAFETY: nothing writes to `constant`.
        assert_eq!(unsafe { (region.bytes(), region.bytes_mut()) }, (&[4u8, 5][..], None));
        slot.put(Some(Region::writable(&mut bytes)));
        let Data::At(region) = slot.data() else { panic!() };
        // SAFETY: `bytes` is borrowed only by the region.
        unsafe { region.bytes_mut() }.unwrap()[1] = 9;
        assert_eq!(bytes, [1, 9, 3]);
    }

    #[test]
    fn fixed_tensors_have_all_of_their_bytes_or_none() {
        let constant = [1u8, 2, 3, 4];
        let mut slot = slot(ShapeAt::File(0), 3).unwrap();
        slot.become_constant();
        slot.put(Some(Region::read_only(&constant)));
        assert!(matches!(slot.data(), Data::At(region) if region.len() == 3));
        slot.put(Some(Region::read_only(&constant[..2])));
        assert!(matches!(slot.data(), Data::None) && slot.is_constant());
        assert_eq!(slot.fixed_bytes(), Some(3));
    }

    #[test]
    fn planned_tensors_stay_planned() {
        let constant = [1u8, 2, 3];
        let mut slot = slot(ShapeAt::File(0), 3).unwrap();
        slot.plan(0, 16);
        slot.put(Some(Region::read_only(&constant)));
        assert!(matches!(slot.data(), Data::At(region) if region.len() == 3));
        assert_eq!(slot.home(), Home::Planned);
        slot.put(None);
        assert!(matches!(slot.data(), Data::None));
        assert_eq!(slot.home(), Home::Planned);
    }

    #[test]
    fn shapes_are_near_enough() {
        assert!(slot(ShapeAt::File(CHANGING as usize - 1), 0).unwrap().is_fixed());
        assert!(slot(ShapeAt::File(CHANGING as usize), 0).is_none());
        assert!(slot(ShapeAt::Changing(usize::MAX), 0).is_none());
    }
}
