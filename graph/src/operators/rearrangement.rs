//! Composite operators that rearrange elements: splits, stacks, diagonals, rotations.

use super::describe::*;
use super::*;

operators! {
    rearrangement;
    ATLEAST_1D(UnaryArgs) = aten::atleast_1d.default;
    ATLEAST_1D_SEQUENCE(StackedArgs) = aten::atleast_1d.Sequence;
    ATLEAST_2D(UnaryArgs) = aten::atleast_2d.default;
    ATLEAST_2D_SEQUENCE(StackedArgs) = aten::atleast_2d.Sequence;
    ATLEAST_3D(UnaryArgs) = aten::atleast_3d.default;
    ATLEAST_3D_SEQUENCE(StackedArgs) = aten::atleast_3d.Sequence;
    BLOCK_DIAG(StackedArgs) = aten::block_diag.default;
    BROADCAST_TENSORS(StackedArgs) = aten::broadcast_tensors.default;
    CARTESIAN_PROD(StackedArgs) = aten::cartesian_prod.default;
    COMBINATIONS(CombinationsArgs { input: Tensor, r: Int = 2, with_replacement: Bool = false })
        = aten::combinations.default;
    DIAG(DiagArgs { input: Tensor, diagonal: Int = 0 }) = aten::diag.default;
    DIAGFLAT(DiagArgs) = aten::diagflat.default;
    DIAG_EMBED(DiagEmbedArgs { input: Tensor, offset: Int = 0, dim1: Int = -2, dim2: Int = -1 })
        = aten::diag_embed.default;
    DSPLIT_ARRAY(SplitArrayArgs { input: Tensor, indices: Ints }) = aten::dsplit.array;
    DSPLIT_INT(SplitIntArgs { input: Tensor, sections: Int }) = aten::dsplit.int;
    DSTACK(StackedArgs) = aten::dstack.default;
    FFT_FFTSHIFT(FftShiftArgs { input: Tensor, dim: OptionalInts = None })
        = aten::fft_fftshift.default;
    FFT_IFFTSHIFT(FftShiftArgs) = aten::fft_ifftshift.default;
    FILL_DIAGONAL(FillDiagonalArgs { input: Tensor, fill_value: Scalar, wrap: Bool = false })
        = aten::fill_diagonal.default;
    FLIPLR(UnaryArgs) = aten::fliplr.default;
    FLIPUD(UnaryArgs) = aten::flipud.default;
    HSPLIT_ARRAY(SplitArrayArgs) = aten::hsplit.array;
    HSPLIT_INT(SplitIntArgs) = aten::hsplit.int;
    ROT90(Rot90Args { input: Tensor, k: Int = 1, dims: Ints = [0, 1] }) = aten::rot90.default;
    TAKE(TakeArgs { input: Tensor, index: Tensor }) = aten::take.default;
    VSPLIT_ARRAY(SplitArrayArgs) = aten::vsplit.array;
    VSPLIT_INT(SplitIntArgs) = aten::vsplit.int;
    WHERE(UnaryArgs) = aten::where.default;
}
