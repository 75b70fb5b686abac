//! The list of all shaders. To add a shader, write a GLSL file and an entry here.

use crate::{Constant, ConstantField, Element, Field, Module, Pipeline, PushConstants, PushField};

/// The maximum number of dims of a shader's strided access, after merging of dims with
/// compatible strides.
pub const MAX_DIMS: usize = 8;

/// Counts repetitions in macros: each list of names counts as one.
const fn one(_: &[&str]) -> usize {
    1
}

/// Declares pipelines. An entry has the module's name, its number of buffers, its specialisation
/// constants in order of their ids from 3 on, its push constants in the order of the shader's
/// block, and the device features that it needs.
///
/// After `and` follow parameters that change from run to run and are therefore in an additional
/// buffer. After `or` follow faster modules with the same function, best first, with the features
/// that they need. After `replayed` follows the name of a module that is derived from this one and
/// reads all parameters from memory. Every declaration is compared with the SPIR-V.
macro_rules! pipelines {
    ($($(#[$doc:meta])* $name:ident, $push:ident = $file:literal, $bindings:literal buffers, {
        $($constant:ident: $constant_type:ty),* $(,)?
    }, {
        $($field:ident: $field_type:ty),* $(,)?
    } $(, and {$($memory:ident: $memory_type:ty),* $(,)?})? $(, needs $($feature:ident)&+)?
    $(, or $other:literal needs $($other_feature:ident)&+)*
    $(, replayed $replayed:literal)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[allow(missing_docs, reason = "the fields are those of the shader")]
            pub struct $name {
                $(pub $constant: $constant_type,)*
            }

            #[doc = concat!("The parameters of [`", stringify!($name), "`].")]
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are those of the shader")]
            pub struct $push {
                $(pub $field: $field_type,)*
                $($(pub $memory: $memory_type,)*)?
            }

            impl Pipeline for $name {
                const MODULE: Module = Module {
                    name: $file,
                    spirv: include_bytes!(concat!("../spv/", $file, ".spv")),
                    bindings: $bindings $(+ one(&[$(stringify!($memory)),*]))?,
                    push: <$push as PushConstants>::FIELDS,
                    in_memory: 0 $($(+ one(&[stringify!($memory)]))*)?,
                    moves: false,
                    constants: &[$(ConstantField {
                        name: stringify!($constant),
                        count: <$constant_type as Constant>::COUNT,
                    }),*],
                    features: &[$($(crate::Feature::$feature),+)?],
                };
                const BETTER: &'static [Module] = &[$(Self::MODULE.instead(
                    $other,
                    include_bytes!(concat!("../spv/", $other, ".spv")),
                    &[$(crate::Feature::$other_feature),+],
                )),*];
                const REPLAYED: Option<Module> = {
                    let replayed: &[Module] = &[$(Self::MODULE.replayed($replayed))?];
                    replayed.first().copied()
                };
                type Bindings<B> = [B; $bindings];
                type Push = $push;

                fn constants(&self) -> Vec<u32> {
                    #[allow(unused_mut, reason = "some shaders have no constants")]
                    let mut bits = Vec::new();
                    $(self.$constant.append_to(&mut bits);)*
                    bits
                }
            }

            impl PushConstants for $push {
                const FIELDS: &'static [Field] = &[$(Field {
                    name: stringify!($field),
                    scalar: <$field_type as PushField>::SCALAR,
                    count: <$field_type as PushField>::COUNT,
                },)* $($(Field {
                    name: stringify!($memory),
                    scalar: <$memory_type as PushField>::SCALAR,
                    count: <$memory_type as PushField>::COUNT,
                },)*)?];
                fn bytes(&self) -> Vec<u8> {
                    let mut bytes = Vec::with_capacity(size_of::<Self>());
                    $(self.$field.append(&mut bytes);)*
                    $($(self.$memory.append(&mut bytes);)*)?
                    bytes
                }
            }

            impl $name {
                const AGREES_WITH_ITS_SHADER: () =
                    if let Some(point) = crate::check::mismatch(&$name::MODULE) {
                        panic!("{}", point)
                    } else if let Some(point) = crate::check::first_mismatch($name::BETTER) {
                        panic!("{}", point)
                    };
            }
            const _: () = $name::AGREES_WITH_ITS_SHADER;
        )*

        /// All compiled modules; those derived at load time are in [`REPLAYED_MODULES`].
        pub const MODULES: &[Module] = &[$(
            $name::MODULE,
            $($name::MODULE.instead(
                $other,
                include_bytes!(concat!("../spv/", $other, ".spv")),
                &[$(crate::Feature::$other_feature),+],
            ),)*
        )*];

        /// Modules derived at load time, which read their push constants from a buffer, so that
        /// recorded commands can be reused.
        pub const REPLAYED_MODULES: &[Module] = &[$($($name::MODULE.replayed($replayed),)?)*];
    };
}

pipelines! {
    /// A unary function of a tensor; four elements per invocation.
    Unary, UnaryPush = "unary", 2 buffers, {
        function: u32, input: Element, output: Element,
    }, {
        numel: u32, a: f32, a_int: i32, b: f32, b_int: i32, c: f32, d: f32,
    };

    /// A rare unary function of a tensor; four elements per invocation.
    Special, SpecialPush = "special", 2 buffers, {
        function: u32, input: Element, output: Element,
    }, {
        numel: u32,
    };

    /// A binary function of two tensors, broadcast to the output's shape; four elements per
    /// invocation.
    Binary, BinaryPush = "binary", 3 buffers, {
        function: u32, a: Element, b: Element, output: Element, same_layout: bool,
    }, {
        numel: u32, alpha: f32, alpha_int: i32, sizes: [u32; MAX_DIMS], a_strides: [u32; MAX_DIMS],
        b_strides: [u32; MAX_DIMS],
    };

    /// A chain of element-wise functions of up to five tensors; four elements per invocation.
    /// Buffers: five inputs, output, and a second output for the result of stage `kept_stage`.
    Pointwise, PointwisePush = "pointwise", 7 buffers, {
        output: Element, kept: Element, kept_stage: u32, types: [Element; 5], layouts: [u32; 5],
        functions: [u32; 9], operands: [u32; 9],
    }, {
        numel: u32, parameters: [f32; 18], sizes: [u32; 2], strides: [i32; 9],
    };

    /// Gathers the elements of a strided view of the input: permutes, slices, expands, converts.
    Gather, GatherPush = "gather", 2 buffers, {
        input: Element, output: Element, contiguous: bool, by_four: bool,
    }, {
        numel: u32, base: i32, rank: u32, sizes: [u32; MAX_DIMS], strides: [i32; MAX_DIMS],
    }, replayed "gather_replayed";

    /// Reads the input in order to load it into the device's cache. The output is never used.
    Prefetch, PrefetchPush = "prefetch", 2 buffers, {}, {
        quads: u32,
    };

    /// Fills a tensor with a scalar.
    Fill, FillPush = "fill", 1 buffers, {
        output: Element,
    }, {
        numel: u32, value: f32, value_int: i32, step: f32, step_int: i32,
    };

    /// Writes the input into a range of the output over one dim.
    Insert, InsertPush = "insert", 2 buffers, {
        input: Element, output: Element,
    }, {
        numel: u32, out_size: u32, in_size: u32, inner: u32, start: u32, step: u32, quads: u32,
    };

    /// Pads the input with a constant or with elements of the input.
    Pad, PadPush = "pad", 2 buffers, {
        input: Element, output: Element, around: u32,
    }, {
        numel: u32, value: f32, value_int: i32, first: u32, out_sizes: [u32; MAX_DIMS],
        in_sizes: [u32; MAX_DIMS], before: [i32; MAX_DIMS],
    };

    /// Resizes the middle of three dims by interpolation, with antialiasing.
    Resample, ResamplePush = "resample", 2 buffers, {
        input: Element, output: Element, filter: u32,
    }, {
        numel: u32, in_size: u32, out_size: u32, inner: u32, scale: f32,
    };

    /// Reduces the middle of three dims. Some functions first subtract an element of the
    /// second buffer, which has one element per output.
    Reduce, ReducePush = "reduce", 3 buffers, {
        function: u32, input: Element, other: Element, output: Element,
    }, {
        numel: u32, count: u32, inner: u32, parts: u32, scale: f32,
    };

    /// Argmax of each row; -1 for an empty row. The workgroups in x divide a row; each searches
    /// `share` elements. If several workgroups divide a row, each writes a key and an index, and
    /// another dispatch combines these.
    Argmax, ArgmaxPush = "argmax", 2 buffers, {
        input: Element, combines: bool,
    }, {
        rows: u32, count: u32, share: u32,
    };

    /// Softmax and normalisations, given the statistics of each row (two buffers of `F32`).
    Normalize, NormalizePush = "normalize", 6 buffers, {
        function: u32, input: Element, weight: Element, output: Element, has_weight: bool,
        has_bias: bool,
    }, {
        numel: u32, row_size: u32, row_inner: u32, weight_step: u32, weight_count: u32,
        epsilon: f32,
    };

    /// Softmax and normalisations of contiguous rows, with one workgroup of up to 256 invocations
    /// per row. Each invocation keeps up to `kept` groups of four elements in registers, at most 4;
    /// if `kept` is 0, it reads them from memory each time. The rows may be sums of two tensors
    /// ([`functions::row`](crate::functions::row)). Buffers: input, weight, bias, output, tensor
    /// added to the input, the sum.
    Row, RowPush = "row", 6 buffers, {
        function: u32, input: Element, weight: Element, output: Element, has_weight: bool,
        has_bias: bool, kept: u32,
        weights_aligned: bool, aligned: bool, sum: u32,
    }, {
        rows: u32, count: u32, aligned: u32, weight_step: u32, weight_count: u32, epsilon: f32,
        added_rows: u32,
    }, or "row_subgroups" needs SubgroupArithmetic;

    /// Upsamples planes by bilinear or nearest-neighbour interpolation.
    Upsample, UpsamplePush = "upsample", 2 buffers, {
        bilinear: bool, align_corners: bool, element: Element,
    }, {
        numel: u32, in_height: u32, in_width: u32, out_height: u32, out_width: u32, scale_y: f32,
        scale_x: f32,
    };

    /// Selects elements over one dim by an index tensor (the second buffer).
    Take, TakePush = "take", 3 buffers, {
        input: Element, output: Element, by_element: bool,
    }, {
        numel: u32, in_size: u32, out_size: u32, inner: u32, in_outer_step: u32, in_inner: u32,
    };

    /// Computes the indices that sort the middle of three dims, or the index of its median;
    /// one invocation per input element.
    Order, OrderPush = "order", 2 buffers, {
        input: Element, descending: bool, function: u32,
    }, {
        numel: u32, count: u32, inner: u32, first: u32,
    };

    /// A step of merge sort: merges sorted runs of indices in pairs, or creates the first runs.
    /// Buffers: elements, input indices, output indices.
    Merge, MergePush = "merge", 3 buffers, {
        input: Element, descending: bool, first_step: bool,
    }, {
        numel: u32, count: u32, inner: u32, run: u32,
    };

    /// `searchsorted`: for each value (the second buffer), counts the elements of a sorted row (the
    /// first buffer) that precede it.
    Search, SearchPush = "search", 3 buffers, {
        sequence: Element, values: Element, right: bool,
    }, {
        numel: u32, count: u32, row: u32,
    };

    /// Distances between the rows of two matrices; all elements are `F32`.
    Distances, DistancesPush = "distances", 3 buffers, {
        function: u32, aligned: bool,
    }, {
        numel: u32, rows: u32, columns: u32, width: u32, p: f32,
    };

    /// Prefix scans (cumulative sums, products and similar) over the middle of three dims;
    /// four outputs per invocation.
    Scan, ScanPush = "scan", 2 buffers, {
        function: u32, input: Element, output: Element, form: u32,
    }, {
        numel: u32, count: u32, inner: u32,
    };

    /// Scatters elements of the third buffer over the middle of three dims, by an index
    /// tensor (the second buffer). The other elements of the output come from the first buffer.
    Scatter, ScatterPush = "scatter", 4 buffers, {
        function: u32, input: Element, source: Element, output: Element, one_source: bool,
    }, {
        numel: u32, size: u32, count: u32, inner: u32,
    };

    /// Writes rows into the output, in place, at indices of one dim (the second buffer).
    Put, PutPush = "put", 3 buffers, {
        input: Element, output: Element, by_rows: bool,
    }, {
        numel: u32, out_size: u32, count: u32, inner: u32,
    };

    /// Quantizes or dequantizes blocks of elements with scales (the second buffer) and zero points
    /// (the third).
    Affine, AffinePush = "affine", 4 buffers, {
        function: u32, input: Element, scale: Element, zero: Element, output: Element,
        has_zero: bool,
    }, {
        numel: u32, low: f32, high: f32, sizes: [u32; MAX_DIMS], strides: [u32; MAX_DIMS],
    };

    /// Computes scales and zero points (the last two buffers) from minima and maxima.
    Qparams, QparamsPush = "qparams", 4 buffers, {
        mapping: u32, scale: Element, zero: Element,
    }, {
        numel: u32, low: f32, high: f32, epsilon: f32,
    };

    /// Requantizes a tensor to another scale and zero point, or adds or multiplies two quantized
    /// tensors.
    Requantize, RequantizePush = "requantize", 3 buffers, {
        function: u32, a: Element, b: Element, output: Element,
    }, {
        numel: u32, a_scale: f32, a_zero: f32, b_scale: f32, b_zero: f32, out_inverse: f32,
        out_zero: f32,
        low: f32, high: f32,
    };

    /// A GEMM with 8-bit or 4-bit weights. Buffers: input, weights, scales, bias, the input's scale
    /// per row (or the residual), the input's zero points, output.
    LinearQuantized, LinearQuantizedPush = "linear_quantized", 7 buffers, {
        input: Element, scale: Element, bias: Element, input_scale: Element, input_zero: Element,
        output: Element,
        weight: u32, has_bias: bool, by_row: bool, aligned: bool, grouped: bool, rows: u32,
        activation: u32, residual: Element,
        has_residual: bool,
    }, {
        m: u32, n: u32, k: u32, weight_row: u32, group: u32, scale_row: u32, input_scale: f32,
        input_zero: i32,
        out_inverse: f32, out_zero: f32, a: f32, b: f32,
    }, or "linear_quantized_dot" needs IntegerDotProduct;

    /// A GEMV: the product of a few rows of floats and quantized weights. One workgroup of up to
    /// 128 invocations computes `quads` times four neighbouring outputs. The weights may also be
    /// floats, without scales. Buffers: input, weights, scales by row of the weights, bias,
    /// residual, weights of a norm of the input, output.
    Gemv, GemvPush = "gemv", 7 buffers, {
        input: Element, scale: Element, norm: Element, output: Element, weight: u32, grouped: bool,
        wide: bool, has_norm: bool,
        activation: u32, quads: u32, teams: u32, staged: u32, bias: Element, has_bias: bool,
        residual: Element, has_residual: bool,
    }, {
        m: u32, n: u32, k: u32, weight_row: u32, group_shift: u32, scale_row: u32, a: f32, b: f32,
        epsilon: f32,
    }, or "gemv_halves" needs Float16Arithmetic & SubgroupArithmetic & SubgroupShuffle,
        or "gemv_subgroups" needs SubgroupArithmetic;

    /// A gated GEMV: the activation of one GEMV, multiplied by another GEMV of the same input.
    /// Buffers: input, weights and scales of the first GEMV, weights and scales of the second GEMV,
    /// weights of a norm of the input, output.
    GemvGated, GemvGatedPush = "gemv_gated", 7 buffers, {
        input: Element, scale: Element, norm: Element, output: Element, weight: u32, grouped: bool,
        wide: bool, has_norm: bool,
        activation: u32, quads: u32, teams: u32, staged: u32,
    }, {
        m: u32, n: u32, k: u32, weight_row: u32, group_shift: u32, scale_row: u32, a: f32, b: f32,
        epsilon: f32,
    }, or "gemv_gated_halves" needs Float16Arithmetic & SubgroupArithmetic & SubgroupShuffle,
        or "gemv_gated_subgroups" needs SubgroupArithmetic;

    /// A GEMV whose result is written to an offset of the output. Each group of `depth` result
    /// elements is rotated before, according to `rotation`. Buffers: input, weights, scales, bias,
    /// cosines, weights of a norm of the input, output, sines.
    GemvPlaced, GemvPlacedPush = "gemv_placed", 8 buffers, {
        input: Element, scale: Element, norm: Element, output: Element, weight: u32, grouped: bool,
        wide: bool, has_norm: bool,
        rotation: u32, quads: u32, teams: u32, staged: u32, bias: Element, has_bias: bool,
        angle: Element,
    }, {
        m: u32, n: u32, k: u32, weight_row: u32, group_shift: u32, scale_row: u32, epsilon: f32,
        depth: u32, positions: u32,
        rotated: u32, angle_row: u32, angle_head: u32, out_batch: u32,
    }, and {
        start: u32, out_start: u32,
    }, needs SubgroupArithmetic,
    or "gemv_placed_halves" needs Float16Arithmetic & SubgroupArithmetic & SubgroupShuffle;

    /// Dequantizes 8-bit or 4-bit weights to floats and transposes them. Buffers: weights, scales
    /// by row of the weights, output.
    UnpackWeights, UnpackWeightsPush = "unpack_weights", 3 buffers, {
        scale: Element, output: Element, weight: u32, grouped: bool,
    }, {
        n: u32, k: u32, weight_row: u32, group_shift: u32, scale_row: u32,
    };

    /// A convolution with 8-bit weights. Buffers: input, weights, scales, bias, output.
    ConvolutionQuantized, ConvolutionQuantizedPush = "convolution_quantized", 5 buffers, {
        input: Element, scale: Element, bias: Element, output: Element, has_bias: bool,
        depthwise: bool,
        transposed: bool, tile: u32, by_four: bool, relu: bool,
    }, {
        numel: u32, in_channels: u32, in_height: u32, in_width: u32, out_channels: u32,
        out_height: u32, out_width: u32,
        kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32, pad_y: i32, pad_x: i32,
        dilation_y: i32, dilation_x: i32, group_in: u32, group_out: u32, weight_row: u32,
        scales: u32,
        input_scale: f32, input_zero: i32, out_inverse: f32, out_zero: f32,
    };

    /// Converts int8 images to channels-last layout, padded with zeros to groups of 16 channels;
    /// one group per invocation.
    PackInt8, PackInt8Push = "pack_int8", 2 buffers, {
    }, {
        numel: u32, channels: u32, plane: u32,
    };

    /// int8 convolutions, and GEMMs of int8 rows, with integer sums. A workgroup of `lanes`
    /// invocations computes `tile_m` rows of `tile_n` columns, `tile_k` units of 16 terms at a
    /// time. `form` determines the meaning of rows and columns. If several workgroups share a tile
    /// (`shared`), they add up their sums in the sixth buffer, with counters in the seventh.
    /// Buffers: row operand, column operand, scales, bias, output, sums, counters, and a lookup
    /// table for `recoded` outputs. Each row of weights is followed by one more unit, whose first
    /// word is the sum of the row.
    ConvolutionInt8, ConvolutionInt8Push = "convolution_int8", 8 buffers, {
        scale: Element, bias: Element, output: Element, out_aligned: bool, has_bias: bool,
        form: u32, tile_m: u32, tile_n: u32,
        tile_k: u32, shared: bool, lanes: u32, matrix_k: u32, recoded: bool,
    }, {
        m: u32, n: u32, pitch: u32, units: u32, splits: u32, split_units: u32, groups: u32,
        place_units: u32, in_y: i32, in_x: i32,
        out_x: i32, kernel_x: i32, stride_y: i32, stride_x: i32, dilation_y: i32, dilation_x: i32,
        padding_y: i32, padding_x: i32,
        zero: i32, scale: f32, out_inverse: f32, out_zero: f32, low: f32, high: f32, base_z: u32,
    }, needs IntegerDotProduct,
    or "convolution_int8_cooperative" needs CooperativeMatrix & Int8Arithmetic;

    /// Maps int8 values by a lookup table of 256 entries. Buffers: input, table, output.
    Lookup, LookupPush = "lookup", 3 buffers, {
    }, {
        numel: u32,
    };

    /// Depthwise int8 convolutions in channels-last layout: an invocation computes four channels of
    /// `across` neighbours. Buffers: input, weights, scales, bias, output, lookup table.
    DepthwiseInt8, DepthwiseInt8Push = "depthwise_int8", 6 buffers, {
        scale: Element, bias: Element, has_bias: bool, across: u32, recoded: bool, relu: bool,
    }, {
        count: u32, channels: u32, quads: u32, weight_row: u32, in_y: i32, in_x: i32, out_y: u32,
        out_x: u32, kernel_y: i32, kernel_x: i32,
        stride_y: i32, stride_x: i32, dilation_y: i32, dilation_x: i32, padding_y: i32,
        padding_x: i32,
        zero: i32, scale: f32, out_inverse: f32, out_zero: f32,
    };

    /// Selects rows of a 4-bit embedding table. Buffers: weights, scales, indices, output.
    EmbeddingQ4, EmbeddingQ4Push = "embedding_q4", 4 buffers, {
        scale: Element, output: Element, low_first: bool,
    }, {
        numel: u32, rows: u32, depth: u32, group: u32, scale_row: u32,
    };

    /// Scaled dot-product attention, with one workgroup of 128 invocations per query row. Buffers:
    /// queries, keys, values, mask, output.
    Attention, AttentionPush = "attention", 5 buffers, {
        query: Element, key: Element, value: Element, mask: Element, output: Element,
        has_mask: bool, causal: bool,
        aligned: bool, row: u32, hidden_zeros: bool,
    }, {
        heads: u32, heads_per_key: u32, keys: u32, depth: u32, value_start: u32, value_end: u32,
        offset: u32, scale: f32,
        q_strides: [u32; 3], k_strides: [u32; 3], v_strides: [u32; 3], mask_strides: [u32; 4],
        out_strides: [u32; 3],
        base_z: u32,
    }, replayed "attention_replayed";

    /// Scaled dot-product attention for few query rows and many keys. Workgroups of 128 invocations
    /// divide the keys, and the query heads that share a key head: each computes one share of the
    /// keys for `group` query heads; `groups` is the number of such groups. Buffers: queries, keys,
    /// values, mask, output, and counters (zeros) with partial results. A head has `quads` groups
    /// of four elements.
    AttentionSplit, AttentionSplitPush = "attention_split", 6 buffers, {
        query: Element, key: Element, value: Element, mask: Element, has_mask: bool, causal: bool,
        quads: u32, value_quads: u32,
        group: u32, tile: u32, output: Element, hidden_zeros: bool, groups: u32,
    }, {
        groups: u32, keys: u32, offset: u32, scale: f32, q_strides: [u32; 3], k_strides: [u32; 3],
        v_strides: [u32; 3],
        mask_strides: [u32; 4], out_strides: [u32; 3], first_share: u32, base_z: u32,
    }, replayed "attention_split_replayed";

    /// Scaled dot-product attention for many query rows. A workgroup of 128 invocations computes
    /// `rows` rows: 4, 8, 16 or 32. A head has `quads` groups of four elements.
    AttentionTiled, AttentionTiledPush = "attention_tiled", 5 buffers, {
        query: Element, key: Element, value: Element, mask: Element, output: Element,
        has_mask: bool, causal: bool,
        hidden_zeros: bool, quads: u32, value_quads: u32, rows: u32,
    }, {
        heads: u32, heads_per_key: u32, rows: u32, keys: u32, offset: u32, scale: f32,
        q_strides: [u32; 3], k_strides: [u32; 3], v_strides: [u32; 3], mask_strides: [u32; 4],
        out_strides: [u32; 3],
        base_z: u32,
    }, replayed "attention_tiled_replayed";

    /// Scaled dot-product attention for many query rows in fp16, with cooperative matrices. A
    /// workgroup computes 16 rows for each of its `parts`. It has 32 invocations for each
    /// combination of a part, one of `key_parts` that divide the keys, and one of `value_parts`
    /// that divide the elements of values. Heads have `sides` groups of 16 elements, in values
    /// `value_sides`.
    AttentionCooperative, AttentionCooperativePush = "attention_cooperative", 5 buffers, {
        mask: Element, output: Element, has_mask: bool, causal: bool, hidden_zeros: bool,
        sides: u32, value_sides: u32, parts: u32,
        key_parts: u32, value_parts: u32,
    }, {
        heads: u32, heads_per_key: u32, rows: u32, keys: u32, offset: u32, scale: f32,
        q_strides: [u32; 3], k_strides: [u32; 3], v_strides: [u32; 3], mask_strides: [u32; 4],
        out_strides: [u32; 3],
        base_z: u32,
    }, needs CooperativeMatrix & Float16Arithmetic & SubgroupVote,
    replayed "attention_cooperative_replayed";

    /// The scores of causal attention, without softmax and values.
    AttentionScores, AttentionScoresPush = "attention_scores", 3 buffers, {
        query: Element, key: Element, output: Element,
    }, {
        numel: u32, heads: u32, heads_per_key: u32, rows: u32, columns: u32, q_rows: u32, keys: u32,
        depth: u32,
        offset: u32, scale: f32, q_strides: [u32; 3], k_strides: [u32; 3],
    };

    /// Overwrites a range of elements in each batch of another tensor.
    Overwrite, OverwritePush = "overwrite", 2 buffers, {
        input: Element, output: Element,
    }, {
        numel: u32, start: u32, from: u32, batch: u32, out_batch: u32,
    }, replayed "overwrite_replayed";

    /// Rotates pairs of elements (RoPE). Buffers: input, cosines, sines, output.
    Rotary, RotaryPush = "rotary", 4 buffers, {
        form: u32, input: Element, angle: Element, output: Element,
    }, {
        numel: u32, depth: u32, heads: u32, positions: u32, start: u32, rotated: u32,
        angle_row: u32, angle_head: u32, out_start: u32,
        out_batch: u32,
    }, replayed "rotary_replayed";

    /// All steps of a recurrent layer ([`functions::recurrent`](crate::functions::recurrent)), with
    /// one workgroup per batch row. Buffers: input projection, hidden state, cell state, recurrent
    /// weights, bias, output states, last cell state.
    Recurrent, RecurrentPush = "recurrent", 7 buffers, {
        cell: u32, input: Element, state: Element, weight: Element, bias: Element, output: Element,
        has_bias: bool,
        hidden: u32, sums: u32, kept: u32, keeps_cell: bool, parts: u32,
    }, {
        batch: u32, steps: u32, pitch: u32, first_in: i32, next_in: i32, first_out: i32,
        next_out: i32,
    }, or "recurrent_storage16" needs Float16Storage;

    /// One step of a recurrent layer ([`functions::recurrent`](crate::functions::recurrent)), with
    /// one workgroup of 256 invocations per eight state elements of each batch row. Buffers: input
    /// projection, previous hidden state, previous cell state, recurrent weights, bias, output
    /// states, next cell state.
    RecurrentStep, RecurrentStepPush = "recurrent_step", 7 buffers, {
        cell: u32, input: Element, state: Element, cell_input: Element, weight: Element,
        bias: Element, output: Element, cell_output: Element,
        has_bias: bool, hidden: u32,
    }, {
        batch: u32, place_in: u32, place_before: u32, place_out: u32,
    }, or "recurrent_step_storage16" needs Float16Storage;

    /// Gradients of a GEMM. Buffers: gradient of the output, the other operand, scales, gradient.
    LinearBackward, LinearBackwardPush = "linear_backward", 4 buffers, {
        function: u32, gradient: Element, factor: Element, scale: Element, output: Element,
    }, {
        numel: u32, m: u32, n: u32, k: u32, row: u32, group: u32, scale_row: u32,
    };

    /// Packs weights to 4 bits. Buffers: weights, scales, packed weights.
    PackQ4, PackQ4Push = "pack_q4", 3 buffers, {
        input: Element, scale: Element,
    }, {
        numel: u32, k: u32, row: u32, group: u32, scale_row: u32,
    };

    /// A step of AdamW, in place. Buffers: parameters, first and second moments, gradients.
    Adamw, AdamwPush = "adamw", 4 buffers, {
    }, {
        numel: u32, rate: f32, beta1: f32, beta2: f32, epsilon: f32, decay: f32, correction1: f32,
        correction2: f32,
    };

    /// Cross entropy and its gradient. Buffers: logits, maxima, sums of exponentials, labels,
    /// output.
    CrossEntropy, CrossEntropyPush = "cross_entropy", 5 buffers, {
        function: u32, input: Element, output: Element,
    }, {
        numel: u32, classes: u32, inverse: f32,
    };

    /// Samples planes at the coordinates in a grid (the second buffer).
    GridSample, GridSamplePush = "grid_sample", 3 buffers, {
        input: Element, grid: Element, output: Element, mode: u32, padding: u32,
        align_corners: bool,
    }, {
        numel: u32, channels: u32, height: u32, width: u32, out_plane: u32,
    };

    /// The coordinates of the elements of a plane.
    GridPriors, GridPriorsPush = "grid_priors", 1 buffers, {
        output: Element,
    }, {
        numel: u32, width: u32, stride: f32, offset: f32,
    };

    /// Selects between two tensors by a condition.
    Where, WherePush = "where", 4 buffers, {
        condition: Element, a: Element, b: Element, output: Element,
    }, {
        numel: u32, sizes: [u32; 6], c_strides: [u32; 6], a_strides: [u32; 6], b_strides: [u32; 6],
    };

    /// GEMM with bias, residual and activation. An invocation computes `rows` rows of `quads` times
    /// four columns. `shares` invocations of a workgroup, in z, share a sum through `partials`
    /// vectors of shared memory. Buffers of all GEMM shaders: bias, residual, output, then the
    /// operands.
    Matmul, MatmulPush = "matmul", 5 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool, a: Element, b: Element, a_transposed: bool, a_aligned: bool,
        b_aligned: bool,
        rows: u32, shares: u32, partials: u32, quads: u32,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        k: u32, a_pitch: u32, b_pitch: u32, a_batch: u32, b_batch: u32, base_z: u32,
    }, or "matmul_storage16" needs Float16Storage;

    /// GEMM for large matrices. A workgroup of `lanes` invocations computes `tile_m` rows of
    /// `tile_n` columns over `terms` terms, `tile_k` at a time. If `partial` is 1, partial sums are
    /// written for [`MatmulSum`]. If it is 2, they are written to the sixth buffer, and the last
    /// workgroup of a tile adds them up, according to counters in the seventh. The other modules
    /// are for fp16 operands, and for operands rounded to `bfloat16`. `normed`: the rows of the
    /// first operand are normalised while they are loaded, with constants in the sixth buffer.
    /// `exact`: workgroups consist of the expected number of subgroups. fp16 operands are `direct`
    /// if the distance from one step to the next is the same for all invocations.
    MatmulTiled, MatmulTiledPush = "matmul_tiled", 7 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool, a: Element, b: Element, a_transposed: bool, a_aligned: u32,
        b_aligned: u32,
        tile_m: u32, tile_n: u32, partial: u32, tile_k: u32, b_transposed: bool, lanes: u32,
        term_parts: u32, normed: bool,
        exact: bool, a_direct: bool, b_direct: bool, unguarded: bool,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        k: u32, a_pitch: u32, b_pitch: u32, a_batch: u32, b_batch: u32, splits: u32, terms: u32,
        base_z: u32,
    }, or "matmul_cooperative" needs CooperativeMatrix & Float16Arithmetic & Float16Storage,
    or "matmul_bfloat16" needs CooperativeMatrix & Bfloat16Matrix & Float16Storage;

    /// A convolution as an implicit GEMM, otherwise like [`MatmulTiled`]: the second operand
    /// consists of the windows of an image, which are read directly. Images are 2D if `kernel_z`
    /// is 0.
    ConvolutionTiled, ConvolutionTiledPush = "convolution_tiled", 7 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool, a: Element, b: Element, a_transposed: bool, a_aligned: u32,
        b_aligned: u32,
        tile_m: u32, tile_n: u32, partial: u32, tile_k: u32,
        kernel_y: u32, kernel_x: u32, stride_y: u32, stride_x: u32, dilation_y: u32,
        dilation_x: u32, lanes: u32,
        term_parts: u32, kernel_z: u32, stride_z: u32, dilation_z: u32, exact: bool, a_direct: bool,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        k: u32, a_pitch: u32, b_pitch: u32, a_batch: u32, b_batch: u32, splits: u32, terms: u32,
        base_z: u32,
        in_y: i32, in_x: i32, out_x: i32, padding_y: i32, padding_x: i32, in_z: i32, out_y: i32,
        padding_z: i32,
    }, or "convolution_cooperative" needs CooperativeMatrix & Float16Arithmetic & Float16Storage;

    /// An fp16 convolution with stride one and overlapping windows. A workgroup stages `places`
    /// times `lanes` pixels of the image in shared memory, and reads them from there for all taps.
    /// The weights are transposed. Images are 2D if `kernel_z` is 0.
    ConvolutionStaged, ConvolutionStagedPush = "convolution_staged", 7 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool, tile_m: u32, tile_n: u32, partial: u32, lanes: u32,
        kernel_y: u32, kernel_x: u32, dilation_y: u32, dilation_x: u32, places: u32,
        kernel_z: u32, stride_z: u32, dilation_z: u32,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        k: u32, a_pitch: u32, a_batch: u32, b_batch: u32, splits: u32, channels: u32,
        in_y: i32, in_x: i32, out_y: u32, out_x: u32, padding_y: i32, padding_x: i32, pitch: u32,
        strip: u32, tiles: u32,
        in_z: i32, out_z: u32, padding_z: i32, base_z: u32,
    }, needs CooperativeMatrix & Float16Arithmetic & Float16Storage;

    /// Adds up the partial sums of [`MatmulTiled`], which are in the last buffer.
    MatmulSum, MatmulSumPush = "matmul_sum", 4 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        batches: u32, splits: u32,
    }, or "matmul_sum_storage16" needs Float16Storage;

    /// A 2D or 3D (`deep`) convolution. An invocation computes four neighbouring outputs in `rows`
    /// channels; sums are shared as in [`Matmul`].
    Convolution, ConvolutionPush = "convolution", 5 buffers, {
        input: Element, weight: Element, bias: Element, output: Element, rows: u32,
        kernel_x: u32, stride_x: u32, dilation_x: u32, by_row: bool, has_bias: bool, shares: u32,
        partials: u32,
        activation: u32, residual: Element, has_residual: bool, deep: bool,
    }, {
        groups: u32, in_channels: u32, out_channels: u32, pitch: u32, in_y: i32, in_x: i32,
        out_y: u32, out_x: u32,
        kernel_y: u32, stride_y: i32, padding_y: i32, padding_x: i32, dilation_y: i32, a: f32,
        b: f32,
        in_z: i32, out_z: u32, kernel_z: u32, stride_z: i32, padding_z: i32, dilation_z: i32,
        base_z: u32,
    };

    /// A depthwise convolution. An invocation computes four neighbouring outputs in `rows` rows.
    ConvolutionDepthwise, ConvolutionDepthwisePush = "convolution_depthwise", 5 buffers, {
        input: Element, weight: Element, bias: Element, output: Element, rows: u32,
        kernel_x: u32, kernel_y: u32, stride_x: u32, stride_y: u32, dilation_x: u32,
        dilation_y: u32,
        by_row: bool, has_bias: bool,
        activation: u32, residual: Element, has_residual: bool, deep: bool,
    }, {
        planes: u32, channels: u32, multiplier: u32, in_y: i32, in_x: i32, out_y: u32, out_x: u32,
        padding_y: i32, padding_x: i32, a: f32, b: f32,
        in_z: i32, out_z: u32, kernel_z: u32, stride_z: i32, padding_z: i32, dilation_z: i32,
    }, or "convolution_depthwise_storage16" needs Float16Storage;

    /// A depthwise convolution in channels-last layout. An invocation computes four channels of
    /// `columns` neighbours. Buffers: input, weights, bias, output.
    DepthwiseLast, DepthwiseLastPush = "depthwise_last", 4 buffers, {
        input: Element, weight: Element, bias: Element, output: Element, columns: u32,
        kernel_x: u32, stride_x: u32, dilation_x: u32, neighbours: u32, has_bias: bool,
    }, {
        batch: u32, channels: u32, pitch: u32, in_y: i32, in_x: i32, out_y: u32, out_x: u32,
        padding_y: i32, padding_x: i32, kernel_y: u32, stride_y: u32, dilation_y: u32,
    }, or "depthwise_last_storage16" needs Float16Storage;

    /// A depthwise convolution fused with the following pointwise convolution. A workgroup of
    /// `tile_m / sums * (tile_x * tile_y / 4) * shares` invocations computes `tile_m` channels of
    /// `tile_y` rows of `tile_x` outputs, `channels` terms at a time; `shares` invocations share a
    /// sum. `staged_32`, `staged_16` and `partials` are sizes in shared memory, in groups of four.
    /// Buffers: bias and residual of the pointwise convolution, output, weights of the pointwise
    /// convolution (transposed), input, weights of the depthwise convolution (transposed), bias of
    /// the depthwise convolution. `shift` concerns the bias of the depthwise convolution; `between`
    /// is its activation, with parameters `c` and `d`.
    ConvolutionSeparable, ConvolutionSeparablePush = "convolution_separable", 7 buffers, {
        bias: Element, output: Element, out_aligned: bool, has_bias: bool, activation: u32,
        residual: Element,
        has_residual: bool, a: Element, x: Element, w: Element, shift: Element, has_shift: bool,
        between: u32, rounded: bool,
        kernel_x: u32, kernel_y: u32, stride_x: u32, stride_y: u32, dilation_x: u32,
        dilation_y: u32, padding_x: u32,
        x_aligned: bool, tile_x: u32, tile_y: u32, tile_m: u32, sums: u32, channels: u32,
        shares: u32,
        staged_32: u32, staged_16: u32, partials: u32,
    }, {
        m: u32, n: u32, bias_batch: u32, period: u32, bias_row: u32, bias_column: u32, alpha: f32,
        beta: f32, a: f32, b: f32,
        k: u32, a_pitch: u32, w_pitch: u32, in_y: i32, in_x: i32, out_y: u32, out_x: u32,
        padding_y: i32, last: i32, c: f32, d: f32,
        base_z: u32,
    }, needs Float16Storage;

    /// A transposed 2D or 3D convolution. An invocation computes four neighbouring outputs in
    /// `rows` channels.
    ConvolutionTransposed, ConvolutionTransposedPush = "convolution_transposed", 5 buffers, {
        input: Element, weight: Element, bias: Element, output: Element, rows: u32, has_bias: bool,
        activation: u32, residual: Element, has_residual: bool,
    }, {
        groups: u32, in_channels: u32, out_channels: u32, pitch: u32, in_y: i32, in_x: i32,
        out_y: u32, out_x: u32,
        kernel_y: i32, kernel_x: i32, stride_y: i32, stride_x: i32, padding_y: i32, padding_x: i32,
        dilation_y: i32, dilation_x: i32, in_z: i32, out_z: u32, kernel_z: i32, stride_z: i32,
        padding_z: i32, dilation_z: i32, a: f32, b: f32,
        base_z: u32,
    };

    /// The fold (col2im) of a transposed convolution: each output element is a sum of products of
    /// weights and input elements. Four outputs per invocation.
    ConvolutionFold, ConvolutionFoldPush = "convolution_fold", 4 buffers, {
        products: Element, bias: Element, output: Element, has_bias: bool, stride_y: u32,
        stride_x: u32,
        dilation_y: u32, dilation_x: u32, step_y: u32, step_x: u32, activation: u32,
        residual: Element, has_residual: bool,
    }, {
        numel: u32, channels: u32, in_y: u32, in_x: u32, out_y: u32, out_x: u32, kernel_y: u32,
        kernel_x: u32,
        padding_y: u32, padding_x: u32, a: f32, b: f32,
    };

    /// Max or average pooling over two dims; four outputs per invocation.
    Pool, PoolPush = "pool", 3 buffers, {
        input: Element, output: Element, indices: Element, kind: u32, count_padding: bool,
        adaptive: bool,
    }, {
        numel: u32, in_y: i32, in_x: i32, out_y: u32, out_x: u32, kernel_y: i32, kernel_x: i32,
        stride_y: i32, stride_x: i32, padding_y: i32, padding_x: i32, dilation_y: i32,
        dilation_x: i32, divisor: i32,
    };
}
