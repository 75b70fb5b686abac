//! Shape inference and dtype promotion of operators, in integer arithmetic and shared by all
//! backends.
//!
//! Rules map sizes and options to sizes, or to `None` if PyTorch rejects the call. Each operator
//! family has its own file.

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
