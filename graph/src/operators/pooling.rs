//! Operators for pooling, resizing and grid sampling.

use super::describe::*;
use super::*;

operators! {
    pooling;
    ADAPTIVE_AVG_POOL2D(AdaptivePoolArgs { input: Tensor, output_size: Ints })
        = aten::_adaptive_avg_pool2d.default <- out { folds: false };
    ADAPTIVE_AVG_POOL2D_BACKWARD(grad_output: Tensor, input: Tensor)
        = aten::_adaptive_avg_pool2d_backward.default <- out;
    ADAPTIVE_AVG_POOL3D(AdaptivePoolArgs) = aten::_adaptive_avg_pool3d.default <- out
        { folds: false };
    ADAPTIVE_AVG_POOL3D_BACKWARD(grad_output: Tensor, input: Tensor)
        = aten::_adaptive_avg_pool3d_backward.default <- out;
    UPSAMPLE_BICUBIC2D_AA(UpsampleAntialiasArgs {
        input: Tensor, output_size: Ints, align_corners: Bool, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    }) = aten::_upsample_bicubic2d_aa.default <- out { folds: false };
    UPSAMPLE_BICUBIC2D_AA_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::_upsample_bicubic2d_aa_backward.default <- grad_input;
    UPSAMPLE_BILINEAR2D_AA(UpsampleAntialiasArgs) = aten::_upsample_bilinear2d_aa.default <- out
        { folds: false };
    UPSAMPLE_BILINEAR2D_AA_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::_upsample_bilinear2d_aa_backward.default <- grad_input;
    UPSAMPLE_LANCZOS2D_AA(UpsampleAntialiasArgs) = aten::_upsample_lanczos2d_aa.default <- out
        { folds: false };
    UPSAMPLE_LANCZOS2D_AA_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::_upsample_lanczos2d_aa_backward.default <- grad_input;
    UPSAMPLE_NEAREST_EXACT1D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales: OptionalFloat = None
    ) = aten::_upsample_nearest_exact1d_backward.default <- grad_input;
    UPSAMPLE_NEAREST_EXACT2D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    ) = aten::_upsample_nearest_exact2d_backward.default <- grad_input;
    UPSAMPLE_NEAREST_EXACT3D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales_d: OptionalFloat = None,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::_upsample_nearest_exact3d_backward.default <- grad_input;
    ADAPTIVE_AVG_POOL1D(AdaptivePoolArgs) = aten::adaptive_avg_pool1d.default <- out
        { folds: false };
    ADAPTIVE_MAX_POOL2D(AdaptivePoolArgs) = aten::adaptive_max_pool2d.default <- out
        { folds: false, range: Range::OnlyIndices };
    ADAPTIVE_MAX_POOL2D_BACKWARD(grad_output: Tensor, input: Tensor, indices: Tensor)
        = aten::adaptive_max_pool2d_backward.default <- grad_input { folds: false };
    ADAPTIVE_MAX_POOL3D(AdaptivePoolArgs) = aten::adaptive_max_pool3d.default <- out
        { folds: false };
    ADAPTIVE_MAX_POOL3D_BACKWARD(grad_output: Tensor, input: Tensor, indices: Tensor)
        = aten::adaptive_max_pool3d_backward.default <- grad_input { folds: false };
    AVG_POOL1D(AvgPool1dArgs {
        input: Tensor, kernel_size: Ints, stride: Ints = [], padding: Ints = [0],
        ceil_mode: Bool = false, count_include_pad: Bool = true
    }) = aten::avg_pool1d.default <- out { folds: false };
    AVG_POOL2D(AvgPoolArgs {
        input: Tensor, kernel_size: Ints, stride: Ints = [], padding: Ints = 0,
        ceil_mode: Bool = false, count_include_pad: Bool = true,
        divisor_override: OptionalInt = None
    }) = aten::avg_pool2d.default <- out { folds: false };
    AVG_POOL2D_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints,
        ceil_mode: Bool, count_include_pad: Bool, divisor_override: OptionalInt
    ) = aten::avg_pool2d_backward.default <- grad_input;
    AVG_POOL3D(AvgPoolArgs) = aten::avg_pool3d.default <- out { folds: false };
    AVG_POOL3D_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints,
        ceil_mode: Bool, count_include_pad: Bool, divisor_override: OptionalInt
    ) = aten::avg_pool3d_backward.default <- grad_input;
    FRACTIONAL_MAX_POOL2D(
        input: Tensor, kernel_size: Ints, output_size: Ints, random_samples: Tensor
    ) = aten::fractional_max_pool2d.default <- output { folds: false };
    FRACTIONAL_MAX_POOL2D_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, output_size: Ints, indices: Tensor
    ) = aten::fractional_max_pool2d_backward.default <- grad_input;
    FRACTIONAL_MAX_POOL3D(
        input: Tensor, kernel_size: Ints, output_size: Ints, random_samples: Tensor
    ) = aten::fractional_max_pool3d.default <- output { folds: false };
    FRACTIONAL_MAX_POOL3D_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, output_size: Ints, indices: Tensor
    ) = aten::fractional_max_pool3d_backward.default <- grad_input;
    GRID_SAMPLER_2D(GridSamplerArgs {
        input: Tensor, grid: Tensor, interpolation_mode: Int, padding_mode: Int,
        align_corners: Bool
    }) = aten::grid_sampler_2d.default <- out;
    GRID_SAMPLER_2D_BACKWARD(
        grad_output: Tensor, input: Tensor, grid: Tensor, interpolation_mode: Int,
        padding_mode: Int, align_corners: Bool, output_mask: Bools
    ) = aten::grid_sampler_2d_backward.default <- out;
    GRID_SAMPLER_3D(GridSamplerArgs) = aten::grid_sampler_3d.default <- out;
    GRID_SAMPLER_3D_BACKWARD(
        grad_output: Tensor, input: Tensor, grid: Tensor, interpolation_mode: Int,
        padding_mode: Int, align_corners: Bool, output_mask: Bools
    ) = aten::grid_sampler_3d_backward.default <- out;
    MAX_POOL2D(MaxPoolArgs {
        input: Tensor, kernel_size: Ints, stride: Ints = [], padding: Ints = 0,
        dilation: Ints = 1, ceil_mode: Bool = false
    }) = aten::max_pool2d.default;
    MAX_POOL2D_WITH_INDICES(MaxPoolArgs) = aten::max_pool2d_with_indices.default <- out
        { folds: false, range: Range::OnlyIndices };
    MAX_POOL2D_WITH_INDICES_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints,
        dilation: Ints, ceil_mode: Bool, indices: Tensor
    ) = aten::max_pool2d_with_indices_backward.default <- grad_input { folds: false };
    MAX_POOL3D_WITH_INDICES(MaxPoolArgs) = aten::max_pool3d_with_indices.default <- out
        { folds: false };
    MAX_POOL3D_WITH_INDICES_BACKWARD(
        grad_output: Tensor, input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints,
        dilation: Ints, ceil_mode: Bool, indices: Tensor
    ) = aten::max_pool3d_with_indices_backward.default <- grad_input { folds: false };
    UPSAMPLE_BICUBIC2D_VEC(UpsampleBilinearArgs {
        input: Tensor, output_size: OptionalInts, align_corners: Bool,
        scale_factors: OptionalFloats
    }) = aten::upsample_bicubic2d.vec <- vec_out;
    UPSAMPLE_BICUBIC2D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::upsample_bicubic2d_backward.default <- grad_input;
    UPSAMPLE_BILINEAR2D_VEC(UpsampleBilinearArgs) = aten::upsample_bilinear2d.vec <- vec_out;
    UPSAMPLE_BILINEAR2D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::upsample_bilinear2d_backward.default <- grad_input;
    UPSAMPLE_LINEAR1D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales: OptionalFloat = None
    ) = aten::upsample_linear1d_backward.default <- grad_input;
    UPSAMPLE_NEAREST1D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales: OptionalFloat = None
    ) = aten::upsample_nearest1d_backward.default <- grad_input;
    UPSAMPLE_NEAREST2D_VEC(UpsampleNearestArgs {
        input: Tensor, output_size: OptionalInts, scale_factors: OptionalFloats
    }) = aten::upsample_nearest2d.vec <- vec_out { moves_elements: true };
    UPSAMPLE_NEAREST2D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    ) = aten::upsample_nearest2d_backward.default <- grad_input;
    UPSAMPLE_NEAREST3D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, scales_d: OptionalFloat = None,
        scales_h: OptionalFloat = None, scales_w: OptionalFloat = None
    ) = aten::upsample_nearest3d_backward.default <- grad_input;
    UPSAMPLE_TRILINEAR3D_BACKWARD(
        grad_output: Tensor, output_size: Ints, input_size: Ints, align_corners: Bool,
        scales_d: OptionalFloat = None, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    ) = aten::upsample_trilinear3d_backward.default <- grad_input;
    ET_VK_GRID_PRIORS(GridPriorsArgs { input: Tensor, stride: Int, offset: Float })
        = et_vk::grid_priors.default;
    PREPROCESS_TILE_CROP(input: Tensor, tile_size: Int) = preprocess::tile_crop.default <- out;
}
