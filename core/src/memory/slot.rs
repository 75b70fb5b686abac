//! The tensors of a method, in few bytes each: firmware has hundreds of them, and kilobytes of
//! memory.
//!
//! What the file says of a tensor stays there, and a slot says where. Where its data is takes two
//! words, of which one is an address or a number; this module alone knows which, and makes a
//! [`Region`] of the former again.

use super::region::Region;
use crate::dtype::ScalarType;
use crate::uses::{Uses, has};
use core::marker::PhantomData;
use core::ptr::without_provenance_mut;

/// What decides where a tensor's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// Part of the program or of external data.
    Constant,
    /// A place in planned memory.
    Planned,
    /// The caller binds memory to it, or an instruction makes it a view.
    Caller,
    /// It is a view of the tensor in this slot, which is none itself: that one's data is its own,
    /// and it has no other.
    View(u32),
}

/// Pseudo buffer index of state that has initial data but no place in the memory plan. When the
/// method is loaded, its memory comes from the method arena; before, its offset in this buffer
/// tells it apart from all other tensors.
pub(crate) const OWN_BUFFER: u16 = u16::MAX;

/// Where a tensor's data is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Data<'m> {
    /// Nowhere yet.
    None,
    /// At an offset in a planned buffer, until the buffers are there.
    Planned { buffer: u16, offset: usize },
    /// Where that of the tensor in this slot is ([`Home::View`]).
    View(u32),
    /// Here.
    At(Region<'m>),
}

/// A tensor's home and what its data is, as bits, and with them what `start` is.
mod place {
    /// At an address, to be read.
    pub(super) const READABLE: u8 = 1;
    /// There, to be written, too.
    pub(super) const WRITABLE: u8 = 2;
    /// At an offset in a planned buffer.
    pub(super) const OFFSET: u8 = 4;
    /// A view of the slot of this number.
    pub(super) const VIEW: u8 = 8;
    // The home: none of these is the caller. It stays what it is where data comes and goes.
    pub(super) const PLANNED: u8 = 16;
    pub(super) const CONSTANT: u8 = 32;
}

/// A tensor of a method: its type, where the file has its shape, and where its data is.
#[derive(Debug)]
pub(crate) struct TensorSlot<'m> {
    start: *mut u8,
    /// Bytes at the address. Those of a tensor of fixed shape are as many as it has, whether there
    /// is an address or not.
    len: usize,
    /// Where the list of its sizes is in the file; or [`CHANGING`] and where its shape is among
    /// those that change.
    sizes: u32,
    /// Where its dim order is in the file.
    pub(crate) dim_order: u32,
    /// The planned buffer that it has an offset in.
    buffer: u16,
    pub(crate) scalar_type: ScalarType,
    /// [Home and data](place).
    place: u8,
    lent: PhantomData<Region<'m>>,
}

/// Where the shape of a tensor is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ShapeAt {
    /// In the file, as it never changes.
    File(usize),
    /// Among those that change.
    Changing(usize),
}

const CHANGING: u32 = 1 << 31;

// SAFETY: the pointer is a number, or the address of a region, which may move to and be shared with
// other threads itself; `data` gives that region, and nothing else uses the pointer.
unsafe impl Send for TensorSlot<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for TensorSlot<'_> {}

impl<'m> TensorSlot<'m> {
    /// What stands for a tensor until it is decoded.
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

    /// A tensor without data, of as many bytes in its shape in the file; `None` if what the file
    /// says of it is too far away.
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

    /// Where its shape is.
    pub(crate) fn shape_at(&self) -> ShapeAt {
        match self.is_fixed() {
            true => ShapeAt::File(self.sizes as usize),
            false => ShapeAt::Changing((self.sizes ^ CHANGING) as usize),
        }
    }

    /// Whether its shape may change, by what the file says: programs with such may be refused for
    /// it.
    pub(crate) fn varies(&self) -> bool {
        self.sizes & CHANGING != 0
    }

    /// Whether its shape never changes.
    pub(crate) fn is_fixed(&self) -> bool {
        !has(Uses::VARIABLE) || !self.varies()
    }

    /// Bytes of a tensor of fixed shape.
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        self.is_fixed().then_some(self.len)
    }

    /// Where its data is.
    #[inline(never)]
    pub(crate) fn data(&self) -> Data<'m> {
        if self.place & place::READABLE == 0 {
            return match self.place {
                // It was the number of a slot.
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
        // SAFETY: `put` alone makes a slot readable, with address and length of one region for 'm,
        // and writable if that region is. Whatever else changes `start` says that there is no
        // address.
        Data::At(unsafe { Region::join(self.start, self.len, writable) })
    }

    /// Gives it data at this place, or takes it away. A tensor of fixed shape has as many bytes of
    /// it as it needs, or none.
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
            // It was the number of a slot.
            place if place & place::VIEW != 0 => Home::View(self.start.addr() as u32),
            place if place & place::PLANNED != 0 => Home::Planned,
            place if place & place::CONSTANT != 0 => Home::Constant,
            _ => Home::Caller,
        }
    }

    /// Makes it a constant, without data yet.
    pub(crate) fn become_constant(&mut self) {
        self.place = place::CONSTANT;
    }

    /// Gives it a place in planned memory.
    pub(crate) fn plan(&mut self, buffer: u16, offset: usize) {
        (self.place, self.start) = (place::PLANNED | place::OFFSET, without_provenance_mut(offset));
        self.buffer = buffer;
    }

    /// Makes it a view, or the caller's again.
    pub(crate) fn view(&mut self, root: Option<u32>) {
        let number = |root: u32| (place::VIEW, without_provenance_mut(root as usize));
        (self.place, self.start) = root.map_or((0, core::ptr::null_mut()), number);
    }

    /// What its data must be a multiple of: as views of elements ask for, at most 8.
    pub(crate) fn alignment(&self) -> usize {
        self.scalar_type.size().clamp(1, 8)
    }

    /// Whether it has a place in planned memory, wherever its data is.
    pub(crate) fn is_planned(&self) -> bool {
        self.place & place::PLANNED != 0
    }

    /// Whether it is the caller's: no view, and not planned.
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
        // SAFETY: `bytes` is borrowed by the region, and by nothing else.
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
