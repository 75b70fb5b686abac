//! Composite operators that place elements: affine grids, unpooling, bags of embeddings.

use super::describe::*;
use super::*;

operators! {
    sampling;
    AFFINE_GRID_GENERATOR(AffineGridArgs { theta: Tensor, size: Ints, align_corners: Bool })
        = aten::affine_grid_generator.default;
    EMBEDDING_BAG_COMPOSITE(EmbeddingBagArgs {
        weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: Bool = false,
        mode: Int = 0, sparse: Bool = false, per_sample_weights: OptionalTensor = None,
        include_last_offset: Bool = false, padding_idx: OptionalInt = None
    }) = aten::embedding_bag.padding_idx;
    LOGSPACE(LogspaceArgs {
        start: Scalar, end: Scalar, steps: Int, base: Float = 10.0, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::logspace.default;
    MAX_UNPOOL2D(MaxUnpoolArgs { input: Tensor, indices: Tensor, output_size: Ints })
        = aten::max_unpool2d.default;
}
