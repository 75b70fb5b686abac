//! What operators do to shapes and types, in integer arithmetic: written once, for every backend.
//!
//! Rules take sizes and options and give sizes, or `None` where PyTorch refuses. Each family has
//! its file.

mod broadcast;
mod dims;
mod join;
pub mod matmul;
mod promotion;
mod reduce;
mod view;
pub mod window;

pub use broadcast::{broadcast, broadcast_all};
pub use dims::{normalize_dim, normalize_index};
pub use join::{cat, pad, repeat};
pub use promotion::{Operand, result_type};
pub use reduce::{DimSet, reduced_count, reduced_shape};
pub use view::{Steps, View, slice_range, view_sizes};
