//! Shapes and memory layouts of tensors: sizes, dim order, strides.

use crate::bounded::Bounded;
use crate::dtype::ScalarType;

/// Maximum number of dims of a tensor, as in ExecuTorch.
pub const MAX_RANK: usize = 16;

/// Size of each dim.
pub type Sizes = Bounded<i32, MAX_RANK>;
/// Dims from outermost to innermost in memory.
pub type DimOrder = Bounded<u8, MAX_RANK>;
/// Stride of each dim, in elements.
pub type Strides = Bounded<usize, MAX_RANK>;

/// Whether and how a tensor's shape can change between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ShapeDynamism {
    /// The shape never changes.
    Static,
    /// The shape in the file is an upper bound, by number of elements.
    DynamicBound,
    /// Handled like `DynamicBound`: as in ExecuTorch, the runtime never allocates tensor memory.
    DynamicUnbound,
}

impl ShapeDynamism {
    pub(crate) fn from_number(number: i8) -> Option<Self> {
        Some(match number {
            0 => ShapeDynamism::Static,
            1 => ShapeDynamism::DynamicBound,
            2 => ShapeDynamism::DynamicUnbound,
            _ => return None,
        })
    }
}

/// Dtype, shape and layout of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Dtype of the elements.
    pub scalar_type: ScalarType,
    /// Size of each dim, never negative.
    pub sizes: Sizes,
    /// Permutation of the dims, outermost first.
    pub dim_order: DimOrder,
}

/// Number of elements of a tensor with these sizes.
///
/// `None` if a size is negative, or if the product of sizes, with 0 counted as 1, exceeds
/// `isize::MAX`: strides of empty tensors stay in range too.
pub fn checked_numel(sizes: &[i32]) -> Option<usize> {
    let mut product: usize = 1;
    let mut empty = false;
    for &size in sizes {
        let size = usize::try_from(size).ok()?;
        empty |= size == 0;
        product = product.checked_mul(size.max(1))?;
    }
    if product > isize::MAX as usize {
        return None;
    }
    Some(if empty { 0 } else { product })
}

/// Size of a tensor in bytes; `None` if it exceeds `isize::MAX`.
pub fn checked_nbytes(scalar_type: ScalarType, sizes: &[i32]) -> Option<usize> {
    checked_numel(sizes)?
        .checked_mul(scalar_type.size())
        .filter(|bytes| *bytes <= isize::MAX as usize)
}

/// Whether `dim_order` is a permutation of at most [`MAX_RANK`] dims.
pub fn is_permutation(dim_order: &[u8]) -> bool {
    let mut seen: u32 = 0;
    for &dim in dim_order {
        if usize::from(dim) >= dim_order.len().min(MAX_RANK) || seen & (1 << dim) != 0 {
            return false;
        }
        seen |= 1 << dim;
    }
    true
}

/// Size in bytes of a tensor with this dtype, shape and dim order; `None` if they are inconsistent
/// or the size exceeds `isize::MAX`.
pub(crate) fn checked_layout(
    scalar_type: ScalarType,
    sizes: &[i32],
    dim_order: &[u8],
) -> Option<usize> {
    let consistent =
        sizes.len() <= MAX_RANK && dim_order.len() == sizes.len() && is_permutation(dim_order);
    if consistent { checked_nbytes(scalar_type, sizes) } else { None }
}

/// Strides of a densely packed tensor. `dim_order` must be a permutation of the dims of `sizes`,
/// with a checked number of elements.
pub fn strides_of(sizes: &[i32], dim_order: &[u8]) -> Strides {
    let mut strides = Strides::new();
    // Both slices have at most MAX_RANK entries; the result is shorter only if an invariant was
    // violated.
    let _ = strides.resize(sizes.len(), 1);
    let mut step = 1usize;
    for &dim in dim_order.iter().rev() {
        let dim = usize::from(dim);
        if let (Some(stride), Some(&size)) = (strides.get_mut(dim), sizes.get(dim)) {
            *stride = step;
            step = step.saturating_mul(usize::try_from(size).unwrap_or(1).max(1));
        }
    }
    strides
}

/// Dim order of a contiguous (row-major) tensor.
pub fn contiguous_order(rank: usize) -> DimOrder {
    (0..rank.min(MAX_RANK) as u8).collect()
}

/// Dim order of a channels-last tensor with 3 to 5 dims: batch, spatial dims, channels.
pub fn channels_last_order(rank: usize) -> Option<DimOrder> {
    let orders: &[u8] = match rank {
        3 => &[0, 2, 1],
        4 => &[0, 2, 3, 1],
        5 => &[0, 2, 3, 4, 1],
        _ => return None,
    };
    DimOrder::from_slice(orders).ok()
}

/// Whether two dim orders describe the same layout for tensors of these sizes. Dims of size 1 are
/// ignored.
pub fn same_layout(sizes: &[i32], a: &[u8], b: &[u8]) -> bool {
    let significant = |dim: &&u8| sizes.get(usize::from(**dim)).is_some_and(|&size| size > 1);
    a == b || a.iter().filter(significant).eq(b.iter().filter(significant))
}

impl TensorInfo {
    /// Creates the description of a tensor in a file, from its dtype number, sizes (`None` if
    /// unreadable) and dim order. `None` if they are inconsistent or the tensor exceeds
    /// `isize::MAX` bytes.
    pub(crate) fn checked(
        scalar_type: i64,
        sizes: impl Iterator<Item = Option<i32>>,
        dim_order: &[u8],
    ) -> Option<Self> {
        let scalar_type = ScalarType::from_number(scalar_type)?;
        let mut list = Sizes::new();
        for size in sizes {
            list.push(size?).ok()?;
        }
        checked_layout(scalar_type, &list, dim_order)?;
        let dim_order = DimOrder::from_slice(dim_order).ok()?;
        Some(TensorInfo { scalar_type, sizes: list, dim_order })
    }

    /// Creates a contiguous layout; `None` if it has more than [`MAX_RANK`] dims or exceeds
    /// `isize::MAX` bytes.
    pub fn contiguous(scalar_type: ScalarType, sizes: &[i32]) -> Option<Self> {
        checked_nbytes(scalar_type, sizes)?;
        let dim_order = contiguous_order(sizes.len());
        Some(TensorInfo { scalar_type, sizes: Sizes::from_slice(sizes).ok()?, dim_order })
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        checked_numel(&self.sizes).unwrap_or(0)
    }

    /// Size of the elements in bytes.
    pub fn nbytes(&self) -> usize {
        checked_nbytes(self.scalar_type, &self.sizes).unwrap_or(0)
    }

    /// Size of dim `dim`, 1 beyond the rank.
    pub fn size(&self, dim: usize) -> usize {
        self.sizes.get(dim).map_or(1, |&size| usize::try_from(size).unwrap_or(0))
    }

    /// Stride of each dim, in elements.
    pub fn strides(&self) -> Strides {
        strides_of(&self.sizes, &self.dim_order)
    }

    /// Whether the layout is row-major. Dims of size 1 are ignored.
    pub fn is_contiguous(&self) -> bool {
        same_layout(&self.sizes, &self.dim_order, &contiguous_order(self.rank()))
    }

    /// Whether the layout is batch, spatial dims, channels. Dims of size 1 are ignored, so a tensor
    /// can be both channels-last and contiguous.
    pub fn is_channels_last(&self) -> bool {
        channels_last_order(self.rank())
            .is_some_and(|order| same_layout(&self.sizes, &self.dim_order, &order))
    }

    /// Whether elements of equal index have equal offsets in both tensors: same sizes, same memory
    /// order.
    pub fn same_layout_as(&self, other: &TensorInfo) -> bool {
        self.sizes == other.sizes && same_layout(&self.sizes, &self.dim_order, &other.dim_order)
    }
}

impl core::fmt::Display for TensorInfo {
    /// Formats as `float32[1, 3, 224, 224]`, with the dim order unless row-major.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}{:?}", self.scalar_type, self.sizes.as_slice())?;
        if !self.is_contiguous() {
            write!(f, " dim order {:?}", self.dim_order.as_slice())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numel_checks_range() {
        assert_eq!(checked_numel(&[]), Some(1));
        assert_eq!(checked_numel(&[2, 3]), Some(6));
        assert_eq!(checked_numel(&[2, 0, 3]), Some(0));
        assert_eq!(checked_numel(&[2, -1]), None);
        assert_eq!(checked_numel(&[0, i32::MAX, i32::MAX, i32::MAX]), None);
    }

    #[test]
    fn strides_follow_dim_order() {
        assert_eq!(strides_of(&[2, 3, 4, 5], &[0, 1, 2, 3]).as_slice(), [60, 20, 5, 1]);
        assert_eq!(strides_of(&[2, 3, 4, 5], &[0, 2, 3, 1]).as_slice(), [60, 1, 15, 3]);
        assert_eq!(strides_of(&[], &[]).as_slice(), [] as [usize; 0]);
    }

    #[test]
    fn layouts_ignore_dims_of_size_1() {
        let mut info = TensorInfo::contiguous(ScalarType::Float, &[1, 1, 4, 4]).unwrap();
        assert!(info.is_contiguous() && info.is_channels_last());
        info.sizes[1] = 2;
        assert!(info.is_contiguous() && !info.is_channels_last());
        info.dim_order = channels_last_order(4).unwrap();
        assert!(!info.is_contiguous() && info.is_channels_last());
    }

    #[test]
    fn permutations() {
        assert!(is_permutation(&[]) && is_permutation(&[1, 0, 2]));
        assert!(!is_permutation(&[0, 0]) && !is_permutation(&[1]));
    }
}
