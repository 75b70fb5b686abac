//! The operators: every one that a front-end can meet, resolved once to an entry of this table.
//!
//! Names are those of functional ATen, as PyTorch's exporter writes them (`aten.add.Tensor`), and of the operators that
//! lowerings to a processor add. A program's instructions call the forms with outputs among their arguments
//! (`aten::add.out`); the table tells which is which. `torchlet.*` are forms that passes make of several calls:
//!
//! - `torchlet.attention(q, k, v, mask, scale, offset)` is `softmax(q · kᵀ · scale + mask) · v` with sums in `f32` at least. `q` is `[batch,
//!   heads, rows, width]`, `k` `[batch, key heads, keys, width]` and `v` `[batch, key heads, keys, value width]`; heads are a
//!   multiple of key heads, and as many neighbours share each. The mask, if it is not none, is of floating-point numbers that
//!   broadcast to `[batch, heads, rows, keys]`. The offset, if there is one and it is not none, is no less than zero: row `i` sees keys
//!   up to `offset + i`, and of these what the mask shows. A row of which every score is minus infinity has zeros. (`et_vk.sdpa.default` is
//!   the same with as many key heads as heads, and such rows are not numbers.)
//! - `torchlet.dynamic_convolution(input, codes, scales, bias, kernel, stride, padding, output_padding, dilation, groups, transposed)` is
//!   `convolution` over height and width with `input` as it is when each picture of the batch is quantized to 8 bits by
//!   `choose_qparams_per_token_asymmetric`. `codes` `[outputs, row]` are constant, rows of all taps of the channels of a group each, by
//!   place and then by channel, and stand for themselves times `scales` `[outputs]`.
//! - `torchlet.dynamic_linear(input, codes, scales, sums, bias, bits)` is `linear` with `input` as it is when its rows are quantized to 8
//!   bits by `choose_qparams_per_token_asymmetric`. `codes` `[outputs, inputs]` are constant, of so many bits, and stand for themselves times
//!   `scales` `[outputs, groups]`, of as many neighbours each; `sums` are those of what each row of them stands for.
//! - `torchlet.linear_of_codes(input, codes, scales, bias, bits)` is `linear` with such codes and scales, and `input` as it is.
//! - `torchlet.packed(data, form)` is constant weights, whose elements `data` has in the order in which one kind of machine reads them;
//!   `form` says which, in numbers that the back-end gives a meaning. It stands only in regions that are compiled for the machine that
//!   they run on.
//! - `torchlet.places(codes)` `[batch, height * width, channels and what pads them to 16]` has the channels of each place of `codes` `[batch, channels,
//!   height, width]` beside each other; `torchlet.planes` is the way back. What pads them may be anything. `torchlet.convolution_by_place` is a convolution
//!   of codes that takes and gives such, perhaps with what makes codes of another scale of its result. They are what a back-end makes of calls.
//! - `torchlet.q8ta_lookup(codes, table)` is the code of 8 bits that `table` `[256]` has for each code, the one for -128 first.
//! - `torchlet.q8ta_mul(a, b, scale, zero, scale, zero, scale, zero)` is the product of what codes of 8 bits stand for, `(code - zero) *
//!   scale` by the first two pairs, which broadcast, in codes by the third.
//! - `torchlet.recurrent(x, h, c, weight, bias, cell, steps, first, next, first_out, next_out)` is so many steps of a recurrent layer, whose
//!   cell is one of LSTM, GRU, tanh and ReLU, in this order, as PyTorch defines them. `x` `[places, rows, gates * hidden]` are the inputs times
//!   their weights, of which the steps take place `first` and each one `next` places further; `h` and, of LSTMs, `c` `[1, rows, hidden]` are the
//!   states before; `weight` `[gates * hidden, hidden]` and, if it is not none, `bias` are those of the state. The states behind the steps go
//!   to the places of the result that the last two numbers say; of LSTMs, a second result may be the cell's last one.
//! - `torchlet.rotary(x, cosine, sine, form)` rotates pairs of elements of `x` `[batch, a, b, depth]` by angles that broadcast to `[1, a, b,
//!   angles]`. Form 0: of neighbours, with an angle for each pair, and `x` is `[batch, a, b, pairs, 2]`; form 1: of element `i` of the first half
//!   with element `i` of the second, with an angle for each element.
//! - `torchlet.rounded_rows(x)` is what is left of `x` when its rows are quantized to 8 bits by `choose_qparams_per_token_asymmetric`.

/// An operator of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operator(u16);

/// What the table says of an operator.
struct Entry {
    /// The name of the functional form.
    name: &'static str,
    /// The form that instructions call, with the outputs behind the inputs.
    instruction: Option<&'static str>,
    /// Arguments of the functional form, from the first number and before the second, that the other lacks: what the output
    /// tells anyway, such as its type.
    lacking: (u8, u8),
}

impl Operator {
    /// How many operators there are.
    pub const COUNT: usize = TABLE.len();

    /// The operator of this functional name.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.binary_search_by(|entry| entry.name.cmp(name)).ok().map(Self::at)
    }

    /// The operator that instructions call by this name, such as `aten::add.out`.
    pub fn of_instruction(name: &str) -> Option<Self> {
        TABLE.iter().position(|entry| entry.instruction == Some(name)).map(Self::at)
    }

    /// All operators.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self::at)
    }

    fn at(index: usize) -> Self {
        Operator(index as u16)
    }

    fn entry(self) -> &'static Entry {
        &TABLE[self.index()]
    }

    /// Its number in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name of its functional form.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The name of the form that instructions call, if there is one.
    pub fn instruction(self) -> Option<&'static str> {
        self.entry().instruction
    }

    /// The arguments of the functional form that the form of instructions lacks.
    pub fn lacking(self) -> core::ops::Range<usize> {
        let (first, end) = self.entry().lacking;
        first.into()..end.into()
    }
}

impl core::fmt::Debug for Operator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// The table: constant, functional name, name in instructions, and arguments that those lack. Sorted by functional name.
macro_rules! operators {
    ($($constant:ident = $name:literal
        $(<- $instruction:literal $(without $first:literal .. $end:literal)?)?;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "they number the constants")]
        #[repr(u16)]
        enum Index { $($constant),* }

        impl Operator {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $constant: Operator = Operator(Index::$constant as u16);
            )*
        }

        static TABLE: [Entry; [$(Index::$constant as u16),*].len()] = [$(
            Entry {
                name: $name,
                instruction: operators!(@instruction $($instruction)?),
                lacking: operators!(@lacking $($($first $end)?)?),
            }
        ),*];
    };
    (@instruction) => { None };
    (@instruction $instruction:literal) => { Some($instruction) };
    (@lacking) => { (0, 0) };
    (@lacking $first:literal $end:literal) => { ($first, $end) };
}

operators! {
    SYM_ADD = "add" <- "executorch_prim::add.Scalar";
    LSHIFT_SCALAR = "aten.__lshift__.Scalar" <- "aten::__lshift__.Scalar_out";
    LSHIFT_TENSOR = "aten.__lshift__.Tensor" <- "aten::__lshift__.Tensor_out";
    RSHIFT_SCALAR = "aten.__rshift__.Scalar" <- "aten::__rshift__.Scalar_out";
    RSHIFT_TENSOR = "aten.__rshift__.Tensor" <- "aten::__rshift__.Tensor_out";
    ADAPTIVE_AVG_POOL2D = "aten._adaptive_avg_pool2d.default" <- "aten::_adaptive_avg_pool2d.out";
    ADAPTIVE_AVG_POOL2D_BACKWARD = "aten._adaptive_avg_pool2d_backward.default" <- "aten::_adaptive_avg_pool2d_backward.out";
    ADAPTIVE_AVG_POOL3D = "aten._adaptive_avg_pool3d.default" <- "aten::_adaptive_avg_pool3d.out";
    ADAPTIVE_AVG_POOL3D_BACKWARD = "aten._adaptive_avg_pool3d_backward.default" <- "aten::_adaptive_avg_pool3d_backward.out";
    ASSERT_ASYNC_MSG = "aten._assert_async.msg" <- "aten::_assert_async.msg";
    ASSERT_SCALAR = "aten._assert_scalar.default" <- "aten::_assert_scalar";
    BATCH_NORM_NO_UPDATE = "aten._batch_norm_no_update.default" <- "aten::_batch_norm_no_update.out";
    CDIST_BACKWARD = "aten._cdist_backward.default" <- "aten::_cdist_backward.out";
    CDIST_FORWARD = "aten._cdist_forward.default" <- "aten::_cdist_forward.out";
    CONJ_COPY = "aten._conj_copy.default" <- "aten::_conj_copy.out";
    CONJ_PHYSICAL = "aten._conj_physical.default" <- "aten::_conj_physical.out";
    EMBEDDING_BAG = "aten._embedding_bag.default" <- "aten::_embedding_bag.out";
    EMBEDDING_BAG_FORWARD_ONLY = "aten._embedding_bag_forward_only.default" <- "aten::_embedding_bag_forward_only.out";
    FAKE_QUANTIZE_PER_TENSOR_TENSOR = "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default" <- "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.out";
    FFT_C2C = "aten._fft_c2c.default" <- "aten::_fft_c2c.out";
    FFT_C2R = "aten._fft_c2r.default" <- "aten::_fft_c2r.out";
    FFT_R2C = "aten._fft_r2c.default" <- "aten::_fft_r2c.out";
    HISTOGRAMDD_BIN_EDGES = "aten._histogramdd_bin_edges.default" <- "aten::_histogramdd_bin_edges.out";
    HISTOGRAMDD_FROM_BIN_CTS = "aten._histogramdd_from_bin_cts.default" <- "aten::_histogramdd_from_bin_cts.out";
    HISTOGRAMDD_FROM_BIN_TENSORS = "aten._histogramdd_from_bin_tensors.default" <- "aten::_histogramdd_from_bin_tensors.out";
    INT_MM = "aten._int_mm.default" <- "aten::_int_mm.out";
    LINALG_DET = "aten._linalg_det.default" <- "aten::_linalg_det.result";
    LINALG_EIGH = "aten._linalg_eigh.default" <- "aten::_linalg_eigh.eigenvalues";
    LINALG_SLOGDET = "aten._linalg_slogdet.default" <- "aten::_linalg_slogdet.sign";
    LINALG_SOLVE_EX = "aten._linalg_solve_ex.default" <- "aten::_linalg_solve_ex.result";
    LINALG_SVD = "aten._linalg_svd.default" <- "aten::_linalg_svd.U";
    LOCAL_SCALAR_DENSE = "aten._local_scalar_dense.default" <- "aten::_local_scalar_dense";
    LOG_SOFTMAX = "aten._log_softmax.default" <- "aten::_log_softmax.out";
    NATIVE_BATCH_NORM_LEGIT = "aten._native_batch_norm_legit.default" <- "aten::_native_batch_norm_legit.out";
    NATIVE_BATCH_NORM_LEGIT_NO_STATS = "aten._native_batch_norm_legit.no_stats" <- "aten::_native_batch_norm_legit.no_stats_out";
    NATIVE_BATCH_NORM_LEGIT_NO_TRAINING = "aten._native_batch_norm_legit_no_training.default" <- "aten::_native_batch_norm_legit_no_training.out";
    PDIST_BACKWARD = "aten._pdist_backward.default" <- "aten::_pdist_backward.out";
    PDIST_FORWARD = "aten._pdist_forward.default" <- "aten::_pdist_forward.out";
    RESHAPE_ALIAS_COPY = "aten._reshape_alias_copy.default" <- "aten::_reshape_alias_copy.out";
    SOFTMAX = "aten._softmax.default" <- "aten::_softmax.out";
    TO_COPY = "aten._to_copy.default" <- "aten::_to_copy.out" without 1..5;
    TRILINEAR = "aten._trilinear.default" <- "aten::_trilinear.out";
    UNIQUE2 = "aten._unique2.default" <- "aten::_unique2.out";
    UPSAMPLE_BICUBIC2D_AA = "aten._upsample_bicubic2d_aa.default" <- "aten::_upsample_bicubic2d_aa.out";
    UPSAMPLE_BICUBIC2D_AA_BACKWARD = "aten._upsample_bicubic2d_aa_backward.default" <- "aten::_upsample_bicubic2d_aa_backward.grad_input";
    UPSAMPLE_BILINEAR2D_AA = "aten._upsample_bilinear2d_aa.default" <- "aten::_upsample_bilinear2d_aa.out";
    UPSAMPLE_BILINEAR2D_AA_BACKWARD = "aten._upsample_bilinear2d_aa_backward.default" <- "aten::_upsample_bilinear2d_aa_backward.grad_input";
    UPSAMPLE_LANCZOS2D_AA = "aten._upsample_lanczos2d_aa.default" <- "aten::_upsample_lanczos2d_aa.out";
    UPSAMPLE_LANCZOS2D_AA_BACKWARD = "aten._upsample_lanczos2d_aa_backward.default" <- "aten::_upsample_lanczos2d_aa_backward.grad_input";
    UPSAMPLE_NEAREST_EXACT1D_BACKWARD = "aten._upsample_nearest_exact1d_backward.default" <- "aten::_upsample_nearest_exact1d_backward.grad_input";
    UPSAMPLE_NEAREST_EXACT2D_BACKWARD = "aten._upsample_nearest_exact2d_backward.default" <- "aten::_upsample_nearest_exact2d_backward.grad_input";
    UPSAMPLE_NEAREST_EXACT3D_BACKWARD = "aten._upsample_nearest_exact3d_backward.default" <- "aten::_upsample_nearest_exact3d_backward.grad_input";
    WEIGHT_INT8PACK_MM = "aten._weight_int8pack_mm.default";
    ABS = "aten.abs.default" <- "aten::abs.out";
    ACOS = "aten.acos.default" <- "aten::acos.out";
    ACOSH = "aten.acosh.default" <- "aten::acosh.out";
    ADAPTIVE_AVG_POOL1D = "aten.adaptive_avg_pool1d.default" <- "aten::adaptive_avg_pool1d.out";
    ADAPTIVE_MAX_POOL2D = "aten.adaptive_max_pool2d.default" <- "aten::adaptive_max_pool2d.out";
    ADAPTIVE_MAX_POOL2D_BACKWARD = "aten.adaptive_max_pool2d_backward.default" <- "aten::adaptive_max_pool2d_backward.grad_input";
    ADAPTIVE_MAX_POOL3D = "aten.adaptive_max_pool3d.default" <- "aten::adaptive_max_pool3d.out";
    ADAPTIVE_MAX_POOL3D_BACKWARD = "aten.adaptive_max_pool3d_backward.default" <- "aten::adaptive_max_pool3d_backward.grad_input";
    ADD_SCALAR = "aten.add.Scalar" <- "aten::add.Scalar_out";
    ADD_TENSOR = "aten.add.Tensor" <- "aten::add.out";
    ADDBMM = "aten.addbmm.default" <- "aten::addbmm.out";
    ADDMM = "aten.addmm.default" <- "aten::addmm.out";
    ADDMV = "aten.addmv.default" <- "aten::addmv.out";
    ALIAS_COPY = "aten.alias_copy.default" <- "aten::alias_copy.out";
    ALL = "aten.all.default" <- "aten::all.all_out";
    ALL_DIM = "aten.all.dim" <- "aten::all.out";
    ALL_DIMS = "aten.all.dims" <- "aten::all.dims_out";
    ALLCLOSE = "aten.allclose.default" <- "aten::allclose.out";
    AMAX = "aten.amax.default" <- "aten::amax.out";
    AMIN = "aten.amin.default" <- "aten::amin.out";
    ANGLE = "aten.angle.default" <- "aten::angle.out";
    ANY = "aten.any.default" <- "aten::any.all_out";
    ANY_DIM = "aten.any.dim" <- "aten::any.out";
    ANY_DIMS = "aten.any.dims" <- "aten::any.dims_out";
    ARANGE = "aten.arange.default" <- "aten::arange.out" without 1..5;
    ARANGE_START_STEP = "aten.arange.start_step" <- "aten::arange.start_out" without 3..7;
    ARGMAX = "aten.argmax.default" <- "aten::argmax.out";
    ARGMIN = "aten.argmin.default" <- "aten::argmin.out";
    AS_STRIDED_COPY = "aten.as_strided_copy.default" <- "aten::as_strided_copy.out";
    AS_STRIDED_SCATTER = "aten.as_strided_scatter.default" <- "aten::as_strided_scatter.out";
    ASIN = "aten.asin.default" <- "aten::asin.out";
    ASINH = "aten.asinh.default" <- "aten::asinh.out";
    ATAN = "aten.atan.default" <- "aten::atan.out";
    ATAN2 = "aten.atan2.default" <- "aten::atan2.out";
    ATANH = "aten.atanh.default" <- "aten::atanh.out";
    AVG_POOL1D = "aten.avg_pool1d.default" <- "aten::avg_pool1d.out";
    AVG_POOL2D = "aten.avg_pool2d.default" <- "aten::avg_pool2d.out";
    AVG_POOL2D_BACKWARD = "aten.avg_pool2d_backward.default" <- "aten::avg_pool2d_backward.grad_input";
    AVG_POOL3D = "aten.avg_pool3d.default" <- "aten::avg_pool3d.out";
    AVG_POOL3D_BACKWARD = "aten.avg_pool3d_backward.default" <- "aten::avg_pool3d_backward.grad_input";
    BADDBMM = "aten.baddbmm.default" <- "aten::baddbmm.out";
    BINCOUNT = "aten.bincount.default" <- "aten::bincount.out";
    BITWISE_AND_SCALAR = "aten.bitwise_and.Scalar" <- "aten::bitwise_and.Scalar_out";
    BITWISE_AND_SCALAR_TENSOR = "aten.bitwise_and.Scalar_Tensor" <- "aten::bitwise_and.Scalar_Tensor_out";
    BITWISE_AND_TENSOR = "aten.bitwise_and.Tensor" <- "aten::bitwise_and.Tensor_out";
    BITWISE_LEFT_SHIFT_SCALAR_TENSOR = "aten.bitwise_left_shift.Scalar_Tensor" <- "aten::bitwise_left_shift.Scalar_Tensor_out";
    BITWISE_LEFT_SHIFT_TENSOR = "aten.bitwise_left_shift.Tensor" <- "aten::bitwise_left_shift.Tensor_out";
    BITWISE_LEFT_SHIFT_TENSOR_SCALAR = "aten.bitwise_left_shift.Tensor_Scalar" <- "aten::bitwise_left_shift.Tensor_Scalar_out";
    BITWISE_NOT = "aten.bitwise_not.default" <- "aten::bitwise_not.out";
    BITWISE_OR_SCALAR = "aten.bitwise_or.Scalar" <- "aten::bitwise_or.Scalar_out";
    BITWISE_OR_SCALAR_TENSOR = "aten.bitwise_or.Scalar_Tensor" <- "aten::bitwise_or.Scalar_Tensor_out";
    BITWISE_OR_TENSOR = "aten.bitwise_or.Tensor" <- "aten::bitwise_or.Tensor_out";
    BITWISE_RIGHT_SHIFT_SCALAR_TENSOR = "aten.bitwise_right_shift.Scalar_Tensor" <- "aten::bitwise_right_shift.Scalar_Tensor_out";
    BITWISE_RIGHT_SHIFT_TENSOR = "aten.bitwise_right_shift.Tensor" <- "aten::bitwise_right_shift.Tensor_out";
    BITWISE_RIGHT_SHIFT_TENSOR_SCALAR = "aten.bitwise_right_shift.Tensor_Scalar" <- "aten::bitwise_right_shift.Tensor_Scalar_out";
    BITWISE_XOR_SCALAR = "aten.bitwise_xor.Scalar" <- "aten::bitwise_xor.Scalar_out";
    BITWISE_XOR_SCALAR_TENSOR = "aten.bitwise_xor.Scalar_Tensor" <- "aten::bitwise_xor.Scalar_Tensor_out";
    BITWISE_XOR_TENSOR = "aten.bitwise_xor.Tensor" <- "aten::bitwise_xor.Tensor_out";
    BMM = "aten.bmm.default" <- "aten::bmm.out";
    BUCKETIZE_TENSOR = "aten.bucketize.Tensor" <- "aten::bucketize.Tensor_out";
    CAT = "aten.cat.default" <- "aten::cat.out";
    CAUCHY = "aten.cauchy.default" <- "aten::cauchy.out";
    CEIL = "aten.ceil.default" <- "aten::ceil.out";
    CHOLESKY_INVERSE = "aten.cholesky_inverse.default" <- "aten::cholesky_inverse.out";
    CHOLESKY_SOLVE = "aten.cholesky_solve.default" <- "aten::cholesky_solve.out";
    CLAMP_TENSOR = "aten.clamp.Tensor" <- "aten::clamp.Tensor_out";
    CLAMP = "aten.clamp.default" <- "aten::clamp.out";
    CLAMP_MIN = "aten.clamp_min.default" <- "aten::clamp_min.out";
    CLONE = "aten.clone.default" <- "aten::clone.out";
    COL2IM = "aten.col2im.default" <- "aten::col2im.out";
    COMPLEX = "aten.complex.default" <- "aten::complex.out";
    CONSTANT_PAD_ND = "aten.constant_pad_nd.default" <- "aten::constant_pad_nd.out";
    CONVOLUTION = "aten.convolution.default" <- "aten::convolution.out";
    CONVOLUTION_BACKWARD = "aten.convolution_backward.default" <- "aten::convolution_backward.out";
    COPY = "aten.copy.default" <- "aten::copy.out";
    COPY_ATEN = "aten.copy_.default" <- "aten::copy_";
    COPYSIGN_SCALAR = "aten.copysign.Scalar" <- "aten::copysign.Scalar_out";
    COPYSIGN = "aten.copysign.Tensor" <- "aten::copysign.out";
    COS = "aten.cos.default" <- "aten::cos.out";
    COSH = "aten.cosh.default" <- "aten::cosh.out";
    CUMMAX = "aten.cummax.default" <- "aten::cummax.out";
    CUMMIN = "aten.cummin.default" <- "aten::cummin.out";
    CUMPROD = "aten.cumprod.default" <- "aten::cumprod.out";
    CUMSUM = "aten.cumsum.default" <- "aten::cumsum.out";
    DEQUANTIZE_SELF = "aten.dequantize.self" <- "aten::dequantize.self_out";
    DETACH_COPY = "aten.detach_copy.default" <- "aten::detach_copy.out";
    DIAGONAL_COPY = "aten.diagonal_copy.default" <- "aten::diagonal_copy.out";
    DIAGONAL_SCATTER = "aten.diagonal_scatter.default" <- "aten::diagonal_scatter.out";
    DIGAMMA = "aten.digamma.default" <- "aten::digamma.out";
    DIST = "aten.dist.default" <- "aten::dist.out";
    DIV_SCALAR = "aten.div.Scalar" <- "aten::div.Scalar_out";
    DIV_SCALAR_MODE = "aten.div.Scalar_mode" <- "aten::div.Scalar_mode_out";
    DIV_TENSOR = "aten.div.Tensor" <- "aten::div.out";
    DIV_TENSOR_MODE = "aten.div.Tensor_mode" <- "aten::div.out_mode";
    DOT = "aten.dot.default" <- "aten::dot.out";
    ELU = "aten.elu.default" <- "aten::elu.out";
    EMBEDDING = "aten.embedding.default" <- "aten::embedding.out";
    EMBEDDING_DENSE_BACKWARD = "aten.embedding_dense_backward.default" <- "aten::embedding_dense_backward.out";
    EMPTY_MEMORY_FORMAT = "aten.empty.memory_format" <- "aten::empty.out" without 1..5;
    EMPTY_PERMUTED = "aten.empty_permuted.default" <- "aten::empty_permuted.out" without 2..6;
    EMPTY_STRIDED = "aten.empty_strided.default" <- "aten::empty_strided.out" without 2..6;
    EQ_SCALAR = "aten.eq.Scalar" <- "aten::eq.Scalar_out";
    EQ_TENSOR = "aten.eq.Tensor" <- "aten::eq.Tensor_out";
    ERF = "aten.erf.default" <- "aten::erf.out";
    ERFC = "aten.erfc.default" <- "aten::erfc.out";
    ERFINV = "aten.erfinv.default" <- "aten::erfinv.out";
    EXP = "aten.exp.default" <- "aten::exp.out";
    EXP2 = "aten.exp2.default" <- "aten::exp2.out";
    EXPAND_COPY = "aten.expand_copy.default" <- "aten::expand_copy.out";
    EXPM1 = "aten.expm1.default" <- "aten::expm1.out";
    EXPONENTIAL = "aten.exponential.default" <- "aten::exponential.out";
    EYE = "aten.eye.default" <- "aten::eye.out" without 1..5;
    EYE_M = "aten.eye.m" <- "aten::eye.m_out" without 2..6;
    FAKE_QUANTIZE_PER_CHANNEL = "aten.fake_quantize_per_channel_affine_cachemask.default" <- "aten::fake_quantize_per_channel_affine_cachemask.out";
    FAKE_QUANTIZE_PER_TENSOR = "aten.fake_quantize_per_tensor_affine_cachemask.default" <- "aten::fake_quantize_per_tensor_affine_cachemask.out";
    FILL_SCALAR = "aten.fill.Scalar" <- "aten::fill.Scalar_out";
    FILL_TENSOR = "aten.fill.Tensor" <- "aten::fill.Tensor_out";
    FLIP = "aten.flip.default" <- "aten::flip.out";
    FLOOR = "aten.floor.default" <- "aten::floor.out";
    FLOOR_DIVIDE = "aten.floor_divide.default" <- "aten::floor_divide.out";
    FMAX = "aten.fmax.default" <- "aten::fmax.out";
    FMIN = "aten.fmin.default" <- "aten::fmin.out";
    FMOD_SCALAR = "aten.fmod.Scalar" <- "aten::fmod.Scalar_out";
    FMOD_TENSOR = "aten.fmod.Tensor" <- "aten::fmod.Tensor_out";
    FRACTIONAL_MAX_POOL2D = "aten.fractional_max_pool2d.default" <- "aten::fractional_max_pool2d.output";
    FRACTIONAL_MAX_POOL2D_BACKWARD = "aten.fractional_max_pool2d_backward.default" <- "aten::fractional_max_pool2d_backward.grad_input";
    FRACTIONAL_MAX_POOL3D = "aten.fractional_max_pool3d.default" <- "aten::fractional_max_pool3d.output";
    FRACTIONAL_MAX_POOL3D_BACKWARD = "aten.fractional_max_pool3d_backward.default" <- "aten::fractional_max_pool3d_backward.grad_input";
    FREXP = "aten.frexp.Tensor" <- "aten::frexp.Tensor_out";
    FULL = "aten.full.default" <- "aten::full.out" without 2..6;
    FULL_LIKE = "aten.full_like.default" <- "aten::full_like.out" without 2..6;
    GATHER = "aten.gather.default" <- "aten::gather.out";
    GCD = "aten.gcd.default" <- "aten::gcd.out";
    GE_SCALAR = "aten.ge.Scalar" <- "aten::ge.Scalar_out";
    GE_TENSOR = "aten.ge.Tensor" <- "aten::ge.Tensor_out";
    GELU = "aten.gelu.default" <- "aten::gelu.out";
    GEOMETRIC = "aten.geometric.default" <- "aten::geometric.out";
    GEQRF = "aten.geqrf.default" <- "aten::geqrf.a";
    GLU = "aten.glu.default" <- "aten::glu.out";
    GRID_SAMPLER_2D = "aten.grid_sampler_2d.default" <- "aten::grid_sampler_2d.out";
    GRID_SAMPLER_2D_BACKWARD = "aten.grid_sampler_2d_backward.default" <- "aten::grid_sampler_2d_backward.out";
    GRID_SAMPLER_3D = "aten.grid_sampler_3d.default" <- "aten::grid_sampler_3d.out";
    GRID_SAMPLER_3D_BACKWARD = "aten.grid_sampler_3d_backward.default" <- "aten::grid_sampler_3d_backward.out";
    GT_SCALAR = "aten.gt.Scalar" <- "aten::gt.Scalar_out";
    GT_TENSOR = "aten.gt.Tensor" <- "aten::gt.Tensor_out";
    HARDSHRINK = "aten.hardshrink.default";
    HARDSIGMOID = "aten.hardsigmoid.default" <- "aten::hardsigmoid.out";
    HARDSWISH = "aten.hardswish.default" <- "aten::hardswish.out";
    HARDTANH = "aten.hardtanh.default" <- "aten::hardtanh.out";
    HISTC = "aten.histc.default" <- "aten::histc.out";
    HISTOGRAM_BIN_CT = "aten.histogram.bin_ct" <- "aten::histogram.bin_ct_out";
    HISTOGRAM_BINS_TENSOR = "aten.histogram.bins_tensor" <- "aten::histogram.bins_tensor_out";
    HYPOT = "aten.hypot.default" <- "aten::hypot.out";
    I0 = "aten.i0.default" <- "aten::i0.out";
    IGAMMA = "aten.igamma.default" <- "aten::igamma.out";
    IGAMMAC = "aten.igammac.default" <- "aten::igammac.out";
    INDEX_TENSOR = "aten.index.Tensor" <- "aten::index.Tensor_out";
    INDEX_PUT = "aten.index_put.default" <- "aten::index_put.out";
    INDEX_PUT_ATEN = "aten.index_put_.default" <- "aten::index_put_";
    INDEX_REDUCE = "aten.index_reduce.default" <- "aten::index_reduce.out";
    INDEX_SELECT = "aten.index_select.default" <- "aten::index_select.out";
    ISINF = "aten.isinf.default" <- "aten::isinf.out";
    ISNAN = "aten.isnan.default" <- "aten::isnan.out";
    KTHVALUE = "aten.kthvalue.default" <- "aten::kthvalue.values";
    LCM = "aten.lcm.default" <- "aten::lcm.out";
    LDEXP = "aten.ldexp.Tensor" <- "aten::ldexp.out";
    LE_SCALAR = "aten.le.Scalar" <- "aten::le.Scalar_out";
    LE_TENSOR = "aten.le.Tensor" <- "aten::le.Tensor_out";
    LEAKY_RELU = "aten.leaky_relu.default" <- "aten::leaky_relu.out";
    LGAMMA = "aten.lgamma.default" <- "aten::lgamma.out";
    LIFT_FRESH_COPY = "aten.lift_fresh_copy.default" <- "aten::lift_fresh_copy.out";
    LINALG_CHOLESKY_EX = "aten.linalg_cholesky_ex.default" <- "aten::linalg_cholesky_ex.L";
    LINALG_EIG = "aten.linalg_eig.default" <- "aten::linalg_eig.out";
    LINALG_EIGVALS = "aten.linalg_eigvals.default" <- "aten::linalg_eigvals.out";
    LINALG_HOUSEHOLDER_PRODUCT = "aten.linalg_householder_product.default" <- "aten::linalg_householder_product.out";
    LINALG_INV_EX = "aten.linalg_inv_ex.default" <- "aten::linalg_inv_ex.inverse";
    LINALG_LDL_FACTOR_EX = "aten.linalg_ldl_factor_ex.default" <- "aten::linalg_ldl_factor_ex.out";
    LINALG_LDL_SOLVE = "aten.linalg_ldl_solve.default" <- "aten::linalg_ldl_solve.out";
    LINALG_LU = "aten.linalg_lu.default" <- "aten::linalg_lu.out";
    LINALG_LU_FACTOR_EX = "aten.linalg_lu_factor_ex.default" <- "aten::linalg_lu_factor_ex.out";
    LINALG_LU_SOLVE = "aten.linalg_lu_solve.default" <- "aten::linalg_lu_solve.out";
    LINALG_MATRIX_EXP = "aten.linalg_matrix_exp.default" <- "aten::linalg_matrix_exp.out";
    LINALG_MATRIX_SQRTH = "aten.linalg_matrix_sqrth.default" <- "aten::linalg_matrix_sqrth.out";
    LINALG_PINV = "aten.linalg_pinv.atol_rtol_tensor" <- "aten::linalg_pinv.atol_rtol_tensor_out";
    LINALG_POLAR = "aten.linalg_polar.default" <- "aten::linalg_polar.out";
    LINALG_QR = "aten.linalg_qr.default" <- "aten::linalg_qr.out";
    LINALG_SOLVE_TRIANGULAR = "aten.linalg_solve_triangular.default" <- "aten::linalg_solve_triangular.out";
    LINALG_VECTOR_NORM = "aten.linalg_vector_norm.default" <- "aten::linalg_vector_norm.out";
    LINEAR = "aten.linear.default" <- "aten::linear.out";
    LOG = "aten.log.default" <- "aten::log.out";
    LOG10 = "aten.log10.default" <- "aten::log10.out";
    LOG1P = "aten.log1p.default" <- "aten::log1p.out";
    LOG2 = "aten.log2.default" <- "aten::log2.out";
    LOG_NORMAL = "aten.log_normal.default" <- "aten::log_normal.out";
    LOGCUMSUMEXP = "aten.logcumsumexp.default" <- "aten::logcumsumexp.out";
    LOGICAL_AND = "aten.logical_and.default" <- "aten::logical_and.out";
    LOGICAL_NOT = "aten.logical_not.default" <- "aten::logical_not.out";
    LOGICAL_OR = "aten.logical_or.default" <- "aten::logical_or.out";
    LOGICAL_XOR = "aten.logical_xor.default" <- "aten::logical_xor.out";
    LOGIT = "aten.logit.default" <- "aten::logit.out";
    LT_SCALAR = "aten.lt.Scalar" <- "aten::lt.Scalar_out";
    LT_TENSOR = "aten.lt.Tensor" <- "aten::lt.Tensor_out";
    LU_UNPACK = "aten.lu_unpack.default" <- "aten::lu_unpack.out";
    MASKED_FILL_SCALAR = "aten.masked_fill.Scalar" <- "aten::masked_fill.Scalar_out";
    MASKED_SCATTER = "aten.masked_scatter.default" <- "aten::masked_scatter.out";
    MASKED_SELECT = "aten.masked_select.default" <- "aten::masked_select.out";
    MAX = "aten.max.default" <- "aten::max.unary_out";
    MAX_DIM = "aten.max.dim" <- "aten::max.dim_max";
    MAX_POOL2D = "aten.max_pool2d.default";
    MAX_POOL2D_WITH_INDICES = "aten.max_pool2d_with_indices.default" <- "aten::max_pool2d_with_indices.out";
    MAX_POOL2D_WITH_INDICES_BACKWARD = "aten.max_pool2d_with_indices_backward.default" <- "aten::max_pool2d_with_indices_backward.grad_input";
    MAX_POOL3D_WITH_INDICES = "aten.max_pool3d_with_indices.default" <- "aten::max_pool3d_with_indices.out";
    MAX_POOL3D_WITH_INDICES_BACKWARD = "aten.max_pool3d_with_indices_backward.default" <- "aten::max_pool3d_with_indices_backward.grad_input";
    MAXIMUM = "aten.maximum.default" <- "aten::maximum.out";
    MEAN = "aten.mean.default" <- "aten::mean.dtype_out";
    MEAN_DIM = "aten.mean.dim" <- "aten::mean.out";
    MEDIAN = "aten.median.default" <- "aten::median.out";
    MEDIAN_DIM = "aten.median.dim" <- "aten::median.dim_values";
    MIN = "aten.min.default" <- "aten::min.unary_out";
    MIN_DIM = "aten.min.dim" <- "aten::min.dim_min";
    MINIMUM = "aten.minimum.default" <- "aten::minimum.out";
    MM = "aten.mm.default" <- "aten::mm.out";
    MODE = "aten.mode.default" <- "aten::mode.values";
    MUL_SCALAR = "aten.mul.Scalar" <- "aten::mul.Scalar_out";
    MUL_TENSOR = "aten.mul.Tensor" <- "aten::mul.out";
    MULTINOMIAL = "aten.multinomial.default" <- "aten::multinomial.out";
    NANMEDIAN = "aten.nanmedian.default" <- "aten::nanmedian.out";
    NANMEDIAN_DIM = "aten.nanmedian.dim" <- "aten::nanmedian.dim_values";
    NARROW_COPY = "aten.narrow_copy.default" <- "aten::narrow_copy.out";
    NATIVE_DROPOUT = "aten.native_dropout.default" <- "aten::native_dropout.out";
    NATIVE_GROUP_NORM = "aten.native_group_norm.default" <- "aten::native_group_norm.out";
    NATIVE_GROUP_NORM_BACKWARD = "aten.native_group_norm_backward.default" <- "aten::native_group_norm_backward.out";
    NATIVE_LAYER_NORM = "aten.native_layer_norm.default" <- "aten::native_layer_norm.out";
    NATIVE_LAYER_NORM_BACKWARD = "aten.native_layer_norm_backward.default" <- "aten::native_layer_norm_backward.out";
    NE_SCALAR = "aten.ne.Scalar" <- "aten::ne.Scalar_out";
    NE_TENSOR = "aten.ne.Tensor" <- "aten::ne.Tensor_out";
    NEG = "aten.neg.default" <- "aten::neg.out";
    NEW_EMPTY_STRIDED = "aten.new_empty_strided.default" <- "aten::new_empty_strided.out" without 3..7;
    NEXTAFTER = "aten.nextafter.default" <- "aten::nextafter.out";
    NONZERO = "aten.nonzero.default" <- "aten::nonzero.out";
    NONZERO_STATIC = "aten.nonzero_static.default" <- "aten::nonzero_static.out";
    NORMAL_TENSOR_TENSOR = "aten.normal.Tensor_Tensor" <- "aten::normal.Tensor_Tensor_out";
    NORMAL_TENSOR_FLOAT = "aten.normal.Tensor_float" <- "aten::normal.Tensor_float_out";
    NORMAL_FLOAT_TENSOR = "aten.normal.float_Tensor" <- "aten::normal.float_Tensor_out";
    NORMAL_FLOAT_FLOAT = "aten.normal.float_float" <- "aten::normal.float_float_out" without 4..8;
    ONES = "aten.ones.default" <- "aten::ones.out" without 1..5;
    ONES_LIKE = "aten.ones_like.default";
    ORMQR = "aten.ormqr.default" <- "aten::ormqr.out";
    PERMUTE = "aten.permute.default";
    PERMUTE_COPY = "aten.permute_copy.default" <- "aten::permute_copy.out";
    PIXEL_SHUFFLE = "aten.pixel_shuffle.default" <- "aten::pixel_shuffle.out";
    PIXEL_UNSHUFFLE = "aten.pixel_unshuffle.default" <- "aten::pixel_unshuffle.out";
    POISSON = "aten.poisson.default" <- "aten::poisson.out";
    POLAR = "aten.polar.default" <- "aten::polar.out";
    POLYGAMMA = "aten.polygamma.default" <- "aten::polygamma.out";
    POW_SCALAR = "aten.pow.Scalar" <- "aten::pow.Scalar_out";
    POW_TENSOR_SCALAR = "aten.pow.Tensor_Scalar" <- "aten::pow.Tensor_Scalar_out";
    POW_TENSOR_TENSOR = "aten.pow.Tensor_Tensor" <- "aten::pow.Tensor_Tensor_out";
    PROD = "aten.prod.default" <- "aten::prod.out";
    PROD_DIM_INT = "aten.prod.dim_int" <- "aten::prod.int_out";
    PUT = "aten.put.default" <- "aten::put.out";
    RAND = "aten.rand.default" <- "aten::rand.out" without 1..5;
    RAND_LIKE = "aten.rand_like.default" <- "aten::rand_like.out" without 1..5;
    RANDINT = "aten.randint.default" <- "aten::randint.out" without 2..6;
    RANDINT_LOW = "aten.randint.low" <- "aten::randint.low_out" without 3..7;
    RANDINT_LIKE = "aten.randint_like.default" <- "aten::randint_like.out" without 2..6;
    RANDN = "aten.randn.default" <- "aten::randn.out" without 1..5;
    RANDN_LIKE = "aten.randn_like.default" <- "aten::randn_like.out" without 1..5;
    RANDPERM = "aten.randperm.default" <- "aten::randperm.out" without 1..5;
    RECIPROCAL = "aten.reciprocal.default" <- "aten::reciprocal.out";
    REFLECTION_PAD1D = "aten.reflection_pad1d.default" <- "aten::reflection_pad1d.out";
    REFLECTION_PAD1D_BACKWARD = "aten.reflection_pad1d_backward.default" <- "aten::reflection_pad1d_backward.grad_input";
    REFLECTION_PAD2D = "aten.reflection_pad2d.default" <- "aten::reflection_pad2d.out";
    REFLECTION_PAD2D_BACKWARD = "aten.reflection_pad2d_backward.default" <- "aten::reflection_pad2d_backward.grad_input";
    REFLECTION_PAD3D = "aten.reflection_pad3d.default" <- "aten::reflection_pad3d.out";
    REFLECTION_PAD3D_BACKWARD = "aten.reflection_pad3d_backward.default" <- "aten::reflection_pad3d_backward.grad_input";
    RELU = "aten.relu.default" <- "aten::relu.out";
    RELU6 = "aten.relu6.default";
    REMAINDER_SCALAR = "aten.remainder.Scalar" <- "aten::remainder.Scalar_out";
    REMAINDER_SCALAR_TENSOR = "aten.remainder.Scalar_Tensor" <- "aten::remainder.Scalar_Tensor_out";
    REMAINDER_TENSOR = "aten.remainder.Tensor" <- "aten::remainder.Tensor_out";
    REPEAT = "aten.repeat.default" <- "aten::repeat.out";
    REPEAT_INTERLEAVE_TENSOR = "aten.repeat_interleave.Tensor" <- "aten::repeat_interleave.Tensor_out";
    REPEAT_INTERLEAVE_SELF_INT = "aten.repeat_interleave.self_int";
    REPLICATION_PAD1D = "aten.replication_pad1d.default" <- "aten::replication_pad1d.out";
    REPLICATION_PAD1D_BACKWARD = "aten.replication_pad1d_backward.default" <- "aten::replication_pad1d_backward.grad_input";
    REPLICATION_PAD2D = "aten.replication_pad2d.default" <- "aten::replication_pad2d.out";
    REPLICATION_PAD2D_BACKWARD = "aten.replication_pad2d_backward.default" <- "aten::replication_pad2d_backward.grad_input";
    REPLICATION_PAD3D = "aten.replication_pad3d.default" <- "aten::replication_pad3d.out";
    REPLICATION_PAD3D_BACKWARD = "aten.replication_pad3d_backward.default" <- "aten::replication_pad3d_backward.grad_input";
    RESIZE = "aten.resize.default" <- "aten::resize.out";
    ROLL = "aten.roll.default" <- "aten::roll.out";
    ROUND_DECIMALS = "aten.round.decimals" <- "aten::round.decimals_out";
    ROUND = "aten.round.default" <- "aten::round.out";
    RSQRT = "aten.rsqrt.default" <- "aten::rsqrt.out";
    RSUB_SCALAR = "aten.rsub.Scalar" <- "aten::rsub.Scalar_out";
    SCALAR_TENSOR = "aten.scalar_tensor.default" <- "aten::scalar_tensor.out" without 1..5;
    SCATTER_REDUCE = "aten.scatter.reduce" <- "aten::scatter.reduce_out";
    SCATTER_SRC = "aten.scatter.src" <- "aten::scatter.src_out";
    SCATTER_VALUE = "aten.scatter.value" <- "aten::scatter.value_out";
    SCATTER_VALUE_REDUCE = "aten.scatter.value_reduce" <- "aten::scatter.value_reduce_out";
    SCATTER_ADD = "aten.scatter_add.default" <- "aten::scatter_add.out";
    SCATTER_REDUCE_TWO = "aten.scatter_reduce.two" <- "aten::scatter_reduce.two_out";
    SEARCHSORTED_SCALAR = "aten.searchsorted.Scalar" <- "aten::searchsorted.Scalar_out";
    SEARCHSORTED_TENSOR = "aten.searchsorted.Tensor" <- "aten::searchsorted.Tensor_out";
    SEGMENT_REDUCE = "aten.segment_reduce.default" <- "aten::segment_reduce.out";
    SELECT_INT = "aten.select.int";
    SELECT_COPY_INT = "aten.select_copy.int" <- "aten::select_copy.int_out";
    SELECT_SCATTER = "aten.select_scatter.default" <- "aten::select_scatter.out";
    SIGMOID = "aten.sigmoid.default" <- "aten::sigmoid.out";
    SIGN = "aten.sign.default" <- "aten::sign.out";
    SIGNBIT = "aten.signbit.default" <- "aten::signbit.out";
    SILU = "aten.silu.default" <- "aten::silu.out";
    SILU_BACKWARD = "aten.silu_backward.default" <- "aten::silu_backward.grad_input";
    SIN = "aten.sin.default" <- "aten::sin.out";
    SINH = "aten.sinh.default" <- "aten::sinh.out";
    SLICE_TENSOR = "aten.slice.Tensor";
    SLICE_COPY_TENSOR = "aten.slice_copy.Tensor" <- "aten::slice_copy.Tensor_out";
    SLICE_SCATTER = "aten.slice_scatter.default" <- "aten::slice_scatter.out";
    SOFTPLUS = "aten.softplus.default" <- "aten::softplus.out";
    SORT = "aten.sort.default" <- "aten::sort.values";
    SORT_STABLE = "aten.sort.stable" <- "aten::sort.values_stable";
    SPECIAL_AIRY_AI = "aten.special_airy_ai.default" <- "aten::special_airy_ai.out";
    SPECIAL_BESSEL_J0 = "aten.special_bessel_j0.default" <- "aten::special_bessel_j0.out";
    SPECIAL_BESSEL_J1 = "aten.special_bessel_j1.default" <- "aten::special_bessel_j1.out";
    SPECIAL_BESSEL_Y0 = "aten.special_bessel_y0.default" <- "aten::special_bessel_y0.out";
    SPECIAL_BESSEL_Y1 = "aten.special_bessel_y1.default" <- "aten::special_bessel_y1.out";
    SPECIAL_CHEBYSHEV_T = "aten.special_chebyshev_polynomial_t.default" <- "aten::special_chebyshev_polynomial_t.out";
    SPECIAL_CHEBYSHEV_T_N_SCALAR = "aten.special_chebyshev_polynomial_t.n_scalar" <- "aten::special_chebyshev_polynomial_t.n_scalar_out";
    SPECIAL_CHEBYSHEV_T_X_SCALAR = "aten.special_chebyshev_polynomial_t.x_scalar" <- "aten::special_chebyshev_polynomial_t.x_scalar_out";
    SPECIAL_CHEBYSHEV_U = "aten.special_chebyshev_polynomial_u.default" <- "aten::special_chebyshev_polynomial_u.out";
    SPECIAL_CHEBYSHEV_U_N_SCALAR = "aten.special_chebyshev_polynomial_u.n_scalar" <- "aten::special_chebyshev_polynomial_u.n_scalar_out";
    SPECIAL_CHEBYSHEV_U_X_SCALAR = "aten.special_chebyshev_polynomial_u.x_scalar" <- "aten::special_chebyshev_polynomial_u.x_scalar_out";
    SPECIAL_CHEBYSHEV_V = "aten.special_chebyshev_polynomial_v.default" <- "aten::special_chebyshev_polynomial_v.out";
    SPECIAL_CHEBYSHEV_V_N_SCALAR = "aten.special_chebyshev_polynomial_v.n_scalar" <- "aten::special_chebyshev_polynomial_v.n_scalar_out";
    SPECIAL_CHEBYSHEV_V_X_SCALAR = "aten.special_chebyshev_polynomial_v.x_scalar" <- "aten::special_chebyshev_polynomial_v.x_scalar_out";
    SPECIAL_CHEBYSHEV_W = "aten.special_chebyshev_polynomial_w.default" <- "aten::special_chebyshev_polynomial_w.out";
    SPECIAL_CHEBYSHEV_W_N_SCALAR = "aten.special_chebyshev_polynomial_w.n_scalar" <- "aten::special_chebyshev_polynomial_w.n_scalar_out";
    SPECIAL_CHEBYSHEV_W_X_SCALAR = "aten.special_chebyshev_polynomial_w.x_scalar" <- "aten::special_chebyshev_polynomial_w.x_scalar_out";
    SPECIAL_ERFCX = "aten.special_erfcx.default" <- "aten::special_erfcx.out";
    SPECIAL_HERMITE_H = "aten.special_hermite_polynomial_h.default" <- "aten::special_hermite_polynomial_h.out";
    SPECIAL_HERMITE_H_N_SCALAR = "aten.special_hermite_polynomial_h.n_scalar" <- "aten::special_hermite_polynomial_h.n_scalar_out";
    SPECIAL_HERMITE_H_X_SCALAR = "aten.special_hermite_polynomial_h.x_scalar" <- "aten::special_hermite_polynomial_h.x_scalar_out";
    SPECIAL_HERMITE_HE = "aten.special_hermite_polynomial_he.default" <- "aten::special_hermite_polynomial_he.out";
    SPECIAL_HERMITE_HE_N_SCALAR = "aten.special_hermite_polynomial_he.n_scalar" <- "aten::special_hermite_polynomial_he.n_scalar_out";
    SPECIAL_HERMITE_HE_X_SCALAR = "aten.special_hermite_polynomial_he.x_scalar" <- "aten::special_hermite_polynomial_he.x_scalar_out";
    SPECIAL_I0E = "aten.special_i0e.default" <- "aten::special_i0e.out";
    SPECIAL_I1 = "aten.special_i1.default" <- "aten::special_i1.out";
    SPECIAL_I1E = "aten.special_i1e.default" <- "aten::special_i1e.out";
    SPECIAL_LAGUERRE = "aten.special_laguerre_polynomial_l.default" <- "aten::special_laguerre_polynomial_l.out";
    SPECIAL_LAGUERRE_N_SCALAR = "aten.special_laguerre_polynomial_l.n_scalar" <- "aten::special_laguerre_polynomial_l.n_scalar_out";
    SPECIAL_LAGUERRE_X_SCALAR = "aten.special_laguerre_polynomial_l.x_scalar" <- "aten::special_laguerre_polynomial_l.x_scalar_out";
    SPECIAL_LEGENDRE = "aten.special_legendre_polynomial_p.default" <- "aten::special_legendre_polynomial_p.out";
    SPECIAL_LEGENDRE_N_SCALAR = "aten.special_legendre_polynomial_p.n_scalar" <- "aten::special_legendre_polynomial_p.n_scalar_out";
    SPECIAL_LEGENDRE_X_SCALAR = "aten.special_legendre_polynomial_p.x_scalar" <- "aten::special_legendre_polynomial_p.x_scalar_out";
    SPECIAL_MODIFIED_BESSEL_I0 = "aten.special_modified_bessel_i0.default" <- "aten::special_modified_bessel_i0.out";
    SPECIAL_MODIFIED_BESSEL_I1 = "aten.special_modified_bessel_i1.default" <- "aten::special_modified_bessel_i1.out";
    SPECIAL_MODIFIED_BESSEL_K0 = "aten.special_modified_bessel_k0.default" <- "aten::special_modified_bessel_k0.out";
    SPECIAL_MODIFIED_BESSEL_K1 = "aten.special_modified_bessel_k1.default" <- "aten::special_modified_bessel_k1.out";
    SPECIAL_NDTRI = "aten.special_ndtri.default" <- "aten::special_ndtri.out";
    SPECIAL_SCALED_MODIFIED_BESSEL_K0 = "aten.special_scaled_modified_bessel_k0.default" <- "aten::special_scaled_modified_bessel_k0.out";
    SPECIAL_SCALED_MODIFIED_BESSEL_K1 = "aten.special_scaled_modified_bessel_k1.default" <- "aten::special_scaled_modified_bessel_k1.out";
    SPECIAL_SHIFTED_CHEBYSHEV_T = "aten.special_shifted_chebyshev_polynomial_t.default" <- "aten::special_shifted_chebyshev_polynomial_t.out";
    SPECIAL_SHIFTED_CHEBYSHEV_T_N_SCALAR = "aten.special_shifted_chebyshev_polynomial_t.n_scalar" <- "aten::special_shifted_chebyshev_polynomial_t.n_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_T_X_SCALAR = "aten.special_shifted_chebyshev_polynomial_t.x_scalar" <- "aten::special_shifted_chebyshev_polynomial_t.x_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_U = "aten.special_shifted_chebyshev_polynomial_u.default" <- "aten::special_shifted_chebyshev_polynomial_u.out";
    SPECIAL_SHIFTED_CHEBYSHEV_U_N_SCALAR = "aten.special_shifted_chebyshev_polynomial_u.n_scalar" <- "aten::special_shifted_chebyshev_polynomial_u.n_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_U_X_SCALAR = "aten.special_shifted_chebyshev_polynomial_u.x_scalar" <- "aten::special_shifted_chebyshev_polynomial_u.x_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_V = "aten.special_shifted_chebyshev_polynomial_v.default" <- "aten::special_shifted_chebyshev_polynomial_v.out";
    SPECIAL_SHIFTED_CHEBYSHEV_V_N_SCALAR = "aten.special_shifted_chebyshev_polynomial_v.n_scalar" <- "aten::special_shifted_chebyshev_polynomial_v.n_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_V_X_SCALAR = "aten.special_shifted_chebyshev_polynomial_v.x_scalar" <- "aten::special_shifted_chebyshev_polynomial_v.x_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_W = "aten.special_shifted_chebyshev_polynomial_w.default" <- "aten::special_shifted_chebyshev_polynomial_w.out";
    SPECIAL_SHIFTED_CHEBYSHEV_W_N_SCALAR = "aten.special_shifted_chebyshev_polynomial_w.n_scalar" <- "aten::special_shifted_chebyshev_polynomial_w.n_scalar_out";
    SPECIAL_SHIFTED_CHEBYSHEV_W_X_SCALAR = "aten.special_shifted_chebyshev_polynomial_w.x_scalar" <- "aten::special_shifted_chebyshev_polynomial_w.x_scalar_out";
    SPECIAL_SPHERICAL_BESSEL_J0 = "aten.special_spherical_bessel_j0.default" <- "aten::special_spherical_bessel_j0.out";
    SPECIAL_ZETA = "aten.special_zeta.default" <- "aten::special_zeta.out";
    SPECIAL_ZETA_OTHER_SCALAR = "aten.special_zeta.other_scalar" <- "aten::special_zeta.other_scalar_out";
    SPECIAL_ZETA_SELF_SCALAR = "aten.special_zeta.self_scalar" <- "aten::special_zeta.self_scalar_out";
    SPLIT_COPY_TENSOR = "aten.split_copy.Tensor" <- "aten::split_copy.Tensor_out";
    SPLIT_WITH_SIZES_COPY = "aten.split_with_sizes_copy.default" <- "aten::split_with_sizes_copy.out";
    SQRT = "aten.sqrt.default" <- "aten::sqrt.out";
    SQUEEZE_COPY = "aten.squeeze_copy.default" <- "aten::squeeze_copy.out";
    SQUEEZE_COPY_DIM = "aten.squeeze_copy.dim" <- "aten::squeeze_copy.dim_out";
    SQUEEZE_COPY_DIMS = "aten.squeeze_copy.dims" <- "aten::squeeze_copy.dims_out";
    STACK = "aten.stack.default" <- "aten::stack.out";
    STD_CORRECTION = "aten.std.correction" <- "aten::std.correction_out";
    STD_DIM = "aten.std.dim" <- "aten::std.out";
    SUB_SCALAR = "aten.sub.Scalar" <- "aten::sub.Scalar_out";
    SUB_TENSOR = "aten.sub.Tensor" <- "aten::sub.out";
    SUM_DIM_INT_LIST = "aten.sum.dim_IntList" <- "aten::sum.IntList_out";
    SYM_CONSTRAIN_RANGE = "aten.sym_constrain_range.default" <- "aten::sym_constrain_range";
    SYM_CONSTRAIN_RANGE_FOR_SIZE = "aten.sym_constrain_range_for_size.default" <- "aten::sym_constrain_range_for_size";
    SYM_NUMEL = "aten.sym_numel.default" <- "aten::sym_numel";
    T_COPY = "aten.t_copy.default" <- "aten::t_copy.out";
    TAN = "aten.tan.default" <- "aten::tan.out";
    TANH = "aten.tanh.default" <- "aten::tanh.out";
    TOPK = "aten.topk.default" <- "aten::topk.values";
    TRANSPOSE_COPY_INT = "aten.transpose_copy.int" <- "aten::transpose_copy.int_out";
    TRIANGULAR_SOLVE = "aten.triangular_solve.default" <- "aten::triangular_solve.X";
    TRIL = "aten.tril.default" <- "aten::tril.out";
    TRIL_INDICES = "aten.tril_indices.default" <- "aten::tril_indices.out" without 3..7;
    TRIU = "aten.triu.default" <- "aten::triu.out";
    TRIU_INDICES = "aten.triu_indices.default" <- "aten::triu_indices.out" without 3..7;
    TRUNC = "aten.trunc.default" <- "aten::trunc.out";
    UNBIND_COPY_INT = "aten.unbind_copy.int" <- "aten::unbind_copy.int_out";
    UNFOLD_COPY = "aten.unfold_copy.default" <- "aten::unfold_copy.out";
    UNIFORM = "aten.uniform.default" <- "aten::uniform.out";
    UNIQUE_CONSECUTIVE = "aten.unique_consecutive.default" <- "aten::unique_consecutive.out";
    UNIQUE_DIM = "aten.unique_dim.default" <- "aten::unique_dim.out";
    UNSQUEEZE_COPY = "aten.unsqueeze_copy.default" <- "aten::unsqueeze_copy.out";
    UPSAMPLE_BICUBIC2D_VEC = "aten.upsample_bicubic2d.vec" <- "aten::upsample_bicubic2d.vec_out";
    UPSAMPLE_BICUBIC2D_BACKWARD = "aten.upsample_bicubic2d_backward.default" <- "aten::upsample_bicubic2d_backward.grad_input";
    UPSAMPLE_BILINEAR2D_VEC = "aten.upsample_bilinear2d.vec" <- "aten::upsample_bilinear2d.vec_out";
    UPSAMPLE_BILINEAR2D_BACKWARD = "aten.upsample_bilinear2d_backward.default" <- "aten::upsample_bilinear2d_backward.grad_input";
    UPSAMPLE_LINEAR1D_BACKWARD = "aten.upsample_linear1d_backward.default" <- "aten::upsample_linear1d_backward.grad_input";
    UPSAMPLE_NEAREST1D_BACKWARD = "aten.upsample_nearest1d_backward.default" <- "aten::upsample_nearest1d_backward.grad_input";
    UPSAMPLE_NEAREST2D_VEC = "aten.upsample_nearest2d.vec" <- "aten::upsample_nearest2d.vec_out";
    UPSAMPLE_NEAREST2D_BACKWARD = "aten.upsample_nearest2d_backward.default" <- "aten::upsample_nearest2d_backward.grad_input";
    UPSAMPLE_NEAREST3D_BACKWARD = "aten.upsample_nearest3d_backward.default" <- "aten::upsample_nearest3d_backward.grad_input";
    UPSAMPLE_TRILINEAR3D_BACKWARD = "aten.upsample_trilinear3d_backward.default" <- "aten::upsample_trilinear3d_backward.grad_input";
    VAR_CORRECTION = "aten.var.correction" <- "aten::var.correction_out";
    VAR_DIM = "aten.var.dim" <- "aten::var.out";
    VAR_MEAN_CORRECTION = "aten.var_mean.correction" <- "aten::var_mean.correction_out";
    VIEW_AS_COMPLEX_COPY = "aten.view_as_complex_copy.default" <- "aten::view_as_complex_copy.out";
    VIEW_AS_REAL_COPY = "aten.view_as_real_copy.default" <- "aten::view_as_real_copy.out";
    VIEW_COPY = "aten.view_copy.default" <- "aten::view_copy.out";
    WHERE_SELF = "aten.where.self" <- "aten::where.self_out";
    ZEROS = "aten.zeros.default" <- "aten::zeros.out" without 1..5;
    ZEROS_LIKE = "aten.zeros_like.default" <- "aten::zeros_like.out" without 1..5;
    CONV_WITH_CLAMP = "conv_with_clamp.default";
    CORTEX_M_DEQUANTIZE_PER_TENSOR = "cortex_m.dequantize_per_tensor.default" <- "cortex_m::dequantize_per_tensor.out";
    CORTEX_M_MAXIMUM = "cortex_m.maximum.default" <- "cortex_m::maximum.out";
    CORTEX_M_MINIMUM = "cortex_m.minimum.default" <- "cortex_m::minimum.out";
    CORTEX_M_PAD = "cortex_m.pad.default" <- "cortex_m::pad.out";
    CORTEX_M_QUANTIZE_PER_TENSOR = "cortex_m.quantize_per_tensor.default" <- "cortex_m::quantize_per_tensor.out";
    CORTEX_M_QUANTIZED_ACTIVATION = "cortex_m.quantized_activation.default" <- "cortex_m::quantized_activation.out";
    CORTEX_M_QUANTIZED_ADD = "cortex_m.quantized_add.default" <- "cortex_m::quantized_add.out";
    CORTEX_M_QUANTIZED_AVG_POOL2D = "cortex_m.quantized_avg_pool2d.default" <- "cortex_m::quantized_avg_pool2d.out";
    CORTEX_M_QUANTIZED_BATCH_MATMUL = "cortex_m.quantized_batch_matmul.default" <- "cortex_m::quantized_batch_matmul.out";
    CORTEX_M_QUANTIZED_CONV2D = "cortex_m.quantized_conv2d.default" <- "cortex_m::quantized_conv2d.out";
    CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D = "cortex_m.quantized_depthwise_conv2d.default" <- "cortex_m::quantized_depthwise_conv2d.out";
    CORTEX_M_QUANTIZED_DIV = "cortex_m.quantized_div.default" <- "cortex_m::quantized_div.out";
    CORTEX_M_QUANTIZED_LINEAR = "cortex_m.quantized_linear.default" <- "cortex_m::quantized_linear.out";
    CORTEX_M_QUANTIZED_MAX_POOL2D = "cortex_m.quantized_max_pool2d.default" <- "cortex_m::quantized_max_pool2d.out";
    CORTEX_M_QUANTIZED_MUL = "cortex_m.quantized_mul.default" <- "cortex_m::quantized_mul.out";
    CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D = "cortex_m.quantized_transpose_conv2d.default" <- "cortex_m::quantized_transpose_conv2d.out";
    CORTEX_M_SOFTMAX = "cortex_m.softmax.default" <- "cortex_m::softmax.out";
    CORTEX_M_TRANSPOSE = "cortex_m.transpose.default" <- "cortex_m::transpose.out";
    DIM_ORDER_OPS_CLONE_DIM_ORDER = "dim_order_ops._clone_dim_order.default" <- "dim_order_ops::_clone_dim_order.out";
    DIM_ORDER_OPS_EMPTY_DIM_ORDER = "dim_order_ops._empty_dim_order.default" <- "dim_order_ops::_empty_dim_order.out" without 1..5;
    DIM_ORDER_OPS_TO_DIM_ORDER_COPY = "dim_order_ops._to_dim_order_copy.default" <- "dim_order_ops::_to_dim_order_copy.out" without 1..5;
    ET_VK_ADAMW_STEP = "et_vk.adamw_step.default";
    ET_VK_APPLY_ROTARY_EMB = "et_vk.apply_rotary_emb.default";
    ET_VK_APPLY_ROTARY_EMB_HF = "et_vk.apply_rotary_emb_hf.default";
    ET_VK_APPLY_ROTARY_EMB_INTERLEAVED = "et_vk.apply_rotary_emb_interleaved.default";
    ET_VK_CONV1D_DW = "et_vk.conv1d_dw.default";
    ET_VK_CONV1D_PW = "et_vk.conv1d_pw.default";
    ET_VK_CONV2D_GEMM = "et_vk.conv2d_gemm.default";
    ET_VK_CONV2D_Q8CSW = "et_vk.conv2d_q8csw.default";
    ET_VK_CONV2D_Q8TA_Q8CSW = "et_vk.conv2d_q8ta_q8csw.default";
    ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO = "et_vk.conv2d_q8ta_q8csw_q8to.default";
    ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO_DW = "et_vk.conv2d_q8ta_q8csw_q8to_dw.default";
    ET_VK_CONV_WITH_CLAMP = "et_vk.conv_with_clamp.default";
    ET_VK_EMBEDDING_Q4GSW = "et_vk.embedding_q4gsw.default";
    ET_VK_FUSED_CE = "et_vk.fused_ce.default";
    ET_VK_GRID_PRIORS = "et_vk.grid_priors.default";
    ET_VK_LINEAR_D_W = "et_vk.linear_dW.default";
    ET_VK_LINEAR_DQ8CA_Q4GSW = "et_vk.linear_dq8ca_q4gsw.default";
    ET_VK_LINEAR_Q4GSW = "et_vk.linear_q4gsw.default";
    ET_VK_LINEAR_Q4GSW_BACKWARD = "et_vk.linear_q4gsw_backward.default";
    ET_VK_LINEAR_Q8CSW = "et_vk.linear_q8csw.default";
    ET_VK_LINEAR_Q8TA_Q8CSW = "et_vk.linear_q8ta_q8csw.default";
    ET_VK_LINEAR_QCS4W = "et_vk.linear_qcs4w.default";
    ET_VK_PREPACK = "et_vk.prepack.default";
    ET_VK_Q4GSW_LINEAR = "et_vk.q4gsw_linear.default";
    ET_VK_Q4GSW_REQUANT = "et_vk.q4gsw_requant.default";
    ET_VK_Q8TA_ADD = "et_vk.q8ta_add.default";
    ET_VK_Q8TA_CONV2D = "et_vk.q8ta_conv2d.default";
    ET_VK_Q8TA_CONV2D_DW = "et_vk.q8ta_conv2d_dw.default";
    ET_VK_Q8TA_CONV2D_GENERAL = "et_vk.q8ta_conv2d_general.default";
    ET_VK_Q8TA_CONV2D_IM2COL = "et_vk.q8ta_conv2d_im2col.default";
    ET_VK_Q8TA_CONV2D_PW = "et_vk.q8ta_conv2d_pw.default";
    ET_VK_Q8TA_CONV2D_TRANSPOSED = "et_vk.q8ta_conv2d_transposed.default";
    ET_VK_Q8TA_LINEAR = "et_vk.q8ta_linear.default";
    ET_VK_Q8TA_LINEAR_GEMV = "et_vk.q8ta_linear_gemv.default";
    ET_VK_Q8TA_PIXEL_SHUFFLE = "et_vk.q8ta_pixel_shuffle.default";
    ET_VK_Q8TA_RELU = "et_vk.q8ta_relu.default";
    ET_VK_RMS_NORM = "et_vk.rms_norm.default";
    ET_VK_SDPA = "et_vk.sdpa.default";
    ET_VK_SELECT_AS_SYMINT = "et_vk.select_as_symint.default";
    ETVK_CHOOSE_QPARAMS_PER_ROW = "etvk.choose_qparams_per_row.default";
    ETVK_TEST_CONV2D_Q8TA_Q8CSW_Q8TO = "etvk.test_conv2d_q8ta_q8csw_q8to.default";
    EXECUTORCH_PRIM_CEIL_SCALAR = "executorch_prim.ceil.Scalar" <- "executorch_prim::ceil.Scalar";
    EXECUTORCH_PRIM_EQ_SCALAR = "executorch_prim.eq.Scalar" <- "executorch_prim::eq.Scalar";
    EXECUTORCH_PRIM_ET_COPY_INDEX_TENSOR = "executorch_prim.et_copy_index.tensor" <- "executorch_prim::et_copy_index.tensor";
    EXECUTORCH_PRIM_ET_VIEW = "executorch_prim.et_view.default" <- "executorch_prim::et_view.default";
    EXECUTORCH_PRIM_FLOORDIV_INT = "executorch_prim.floordiv.int" <- "executorch_prim::floordiv.int";
    EXECUTORCH_PRIM_GE_SCALAR = "executorch_prim.ge.Scalar" <- "executorch_prim::ge.Scalar";
    EXECUTORCH_PRIM_GT_SCALAR = "executorch_prim.gt.Scalar" <- "executorch_prim::gt.Scalar";
    EXECUTORCH_PRIM_LE_SCALAR = "executorch_prim.le.Scalar" <- "executorch_prim::le.Scalar";
    EXECUTORCH_PRIM_LT_SCALAR = "executorch_prim.lt.Scalar" <- "executorch_prim::lt.Scalar";
    EXECUTORCH_PRIM_MOD_SCALAR = "executorch_prim.mod.Scalar" <- "executorch_prim::mod.Scalar";
    EXECUTORCH_PRIM_MOD_INT = "executorch_prim.mod.int" <- "executorch_prim::mod.int";
    EXECUTORCH_PRIM_NEG_SCALAR = "executorch_prim.neg.Scalar" <- "executorch_prim::neg.Scalar";
    EXECUTORCH_PRIM_ROUND_SCALAR = "executorch_prim.round.Scalar" <- "executorch_prim::round.Scalar";
    EXECUTORCH_PRIM_SYM_FLOAT_SCALAR = "executorch_prim.sym_float.Scalar" <- "executorch_prim::sym_float.Scalar";
    EXECUTORCH_PRIM_SYM_INT_SCALAR = "executorch_prim.sym_int.Scalar" <- "executorch_prim::sym_int.Scalar";
    EXECUTORCH_PRIM_SYM_ITE_SCALAR = "executorch_prim.sym_ite.Scalar" <- "executorch_prim::sym_ite.Scalar";
    EXECUTORCH_PRIM_SYM_MAX_SCALAR = "executorch_prim.sym_max.Scalar" <- "executorch_prim::sym_max.Scalar";
    EXECUTORCH_PRIM_SYM_MIN_SCALAR = "executorch_prim.sym_min.Scalar" <- "executorch_prim::sym_min.Scalar";
    EXECUTORCH_PRIM_SYM_NOT_SCALAR = "executorch_prim.sym_not.Scalar" <- "executorch_prim::sym_not.Scalar";
    EXECUTORCH_PRIM_TRUEDIV_SCALAR = "executorch_prim.truediv.Scalar" <- "executorch_prim::truediv.Scalar";
    EXECUTORCH_PRIM_TRUNC_SCALAR = "executorch_prim.trunc.Scalar" <- "executorch_prim::trunc.Scalar";
    SYM_FLOORDIV = "floordiv" <- "executorch_prim::floordiv.Scalar";
    LLAMA_CHANNELWISE_GATED_DELTA_RULE = "llama.channelwise_gated_delta_rule.default" <- "llama::channelwise_gated_delta_rule.out";
    LLAMA_CUSTOM_QUANTIZED_SDPA = "llama.custom_quantized_sdpa.default" <- "llama::custom_quantized_sdpa.out";
    LLAMA_CUSTOM_SDPA = "llama.custom_sdpa.default" <- "llama::custom_sdpa.out";
    LLAMA_FALLBACK = "llama.fallback.default" <- "llama::fallback.out";
    LLAMA_FAST_HADAMARD_TRANSFORM = "llama.fast_hadamard_transform.default" <- "llama::fast_hadamard_transform.out";
    LLAMA_GATED_DELTA_RULE = "llama.gated_delta_rule.default" <- "llama::gated_delta_rule.out";
    LLAMA_QUANTIZED_MOE_FFN = "llama.quantized_moe_ffn.default" <- "llama::quantized_moe_ffn.out";
    LLAMA_UPDATE_CACHE = "llama.update_cache.default";
    SYM_MUL = "mul" <- "executorch_prim::mul.Scalar";
    PREPROCESS_TILE_CROP = "preprocess.tile_crop.default" <- "preprocess::tile_crop.out";
    QUANTIZED_DECOMPOSED_ADD = "quantized_decomposed.add.default" <- "quantized_decomposed::add.out";
    QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_TENSOR = "quantized_decomposed.choose_qparams.tensor" <- "quantized_decomposed::choose_qparams.Tensor_out";
    QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC = "quantized_decomposed.choose_qparams_per_token_asymmetric.default" <- "quantized_decomposed::choose_qparams_per_token_asymmetric.out";
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default" <- "quantized_decomposed::dequantize_per_channel.out";
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR = "quantized_decomposed.dequantize_per_tensor.default" <- "quantized_decomposed::dequantize_per_tensor.out";
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR = "quantized_decomposed.dequantize_per_tensor.tensor" <- "quantized_decomposed::dequantize_per_tensor.Tensor_out";
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN = "quantized_decomposed.dequantize_per_token.default" <- "quantized_decomposed::dequantize_per_token.out";
    QUANTIZED_DECOMPOSED_EMBEDDING_2BIT = "quantized_decomposed.embedding_2bit.default" <- "quantized_decomposed::embedding_2bit.out";
    QUANTIZED_DECOMPOSED_EMBEDDING_2BIT_DTYPE = "quantized_decomposed.embedding_2bit.dtype" <- "quantized_decomposed::embedding_2bit.dtype_out";
    QUANTIZED_DECOMPOSED_EMBEDDING_4BIT = "quantized_decomposed.embedding_4bit.default" <- "quantized_decomposed::embedding_4bit.out";
    QUANTIZED_DECOMPOSED_EMBEDDING_4BIT_DTYPE = "quantized_decomposed.embedding_4bit.dtype" <- "quantized_decomposed::embedding_4bit.dtype_out";
    QUANTIZED_DECOMPOSED_EMBEDDING_BYTE = "quantized_decomposed.embedding_byte.default" <- "quantized_decomposed::embedding_byte.out";
    QUANTIZED_DECOMPOSED_EMBEDDING_BYTE_DTYPE = "quantized_decomposed.embedding_byte.dtype" <- "quantized_decomposed::embedding_byte.dtype_out";
    QUANTIZED_DECOMPOSED_MIXED_LINEAR = "quantized_decomposed.mixed_linear.default" <- "quantized_decomposed::mixed_linear.out";
    QUANTIZED_DECOMPOSED_MIXED_MM = "quantized_decomposed.mixed_mm.default" <- "quantized_decomposed::mixed_mm.out";
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_CHANNEL = "quantized_decomposed.quantize_per_channel.default" <- "quantized_decomposed::quantize_per_channel.out";
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR = "quantized_decomposed.quantize_per_tensor.default" <- "quantized_decomposed::quantize_per_tensor.out";
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR = "quantized_decomposed.quantize_per_tensor.tensor" <- "quantized_decomposed::quantize_per_tensor.Tensor_out";
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN = "quantized_decomposed.quantize_per_token.default" <- "quantized_decomposed::quantize_per_token.out";
    SDPA_WITH_KV_CACHE = "sdpa_with_kv_cache.default";
    SYM_SUB = "sub" <- "executorch_prim::sub.Scalar";
    SYM_SIZE_INT = "sym_size.int" <- "aten::sym_size.int";
    TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE = "testing.compute_attn_weight_with_kv_cache.default";
    TORCHAO_CHOOSE_QPARAMS_AFFINE = "torchao.choose_qparams_affine.default";
    TORCHAO_DEQUANTIZE_AFFINE = "torchao.dequantize_affine.default";
    TORCHAO_QUANTIZE_AFFINE = "torchao.quantize_affine.default";
    ATTENTION = "torchlet.attention";
    CHAIN = "torchlet.chain";
    CONVOLUTION_BY_PLACE = "torchlet.convolution_by_place";
    DYNAMIC_CONVOLUTION = "torchlet.dynamic_convolution";
    DYNAMIC_LINEAR = "torchlet.dynamic_linear";
    EPILOGUE = "torchlet.epilogue";
    GATED = "torchlet.gated";
    LINEAR_OF_CODES = "torchlet.linear_of_codes";
    PACKED = "torchlet.packed";
    PLACES = "torchlet.places";
    PLANES = "torchlet.planes";
    Q8TA_LOOKUP = "torchlet.q8ta_lookup";
    Q8TA_MUL = "torchlet.q8ta_mul";
    RECURRENT = "torchlet.recurrent";
    ROTARY = "torchlet.rotary";
    ROUNDED_ROWS = "torchlet.rounded_rows";
    SEPARABLE = "torchlet.separable";
    UPDATE_CACHE = "update_cache.default";
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_table_is_sorted_and_names_nothing_twice() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        let mut instructions: Vec<_> = TABLE.iter().filter_map(|entry| entry.instruction).collect();
        let count = instructions.len();
        instructions.sort_unstable();
        instructions.dedup();
        assert_eq!(instructions.len(), count);
    }

    #[test]
    fn constants_lead_to_their_names() {
        assert_eq!(Operator::ADD_TENSOR.name(), "aten.add.Tensor");
        assert_eq!(Operator::named("aten.add.Tensor"), Some(Operator::ADD_TENSOR));
        assert_eq!(Operator::of_instruction("aten::full.out"), Some(Operator::FULL));
        assert_eq!(Operator::FULL.lacking(), 2..6);
    }
}
