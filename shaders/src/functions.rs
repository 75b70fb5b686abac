//! Constants that select the function of a shader, parsed from the GLSL sources at compile time. A
//! constant that no source defines is a compile error.

/// Declares a module with the values of these constants in the sources.
macro_rules! numbers {
    ($(#[$doc:meta])* $module:ident, [$($source:literal),*]: $($name:ident),*;) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names are self-explanatory")]
        pub mod $module {
            const SOURCES: &[&str] = &[$(include_str!(concat!("../glsl/", $source))),*];
            const NAMES: super::Names = super::Names::of(SOURCES);
            $(pub const $name: u32 = super::number(SOURCES, &NAMES, stringify!($name));)*
        }
    };
}

numbers! {
    /// Unary functions of [`Unary`](crate::Unary) and [`Pointwise`](crate::Pointwise). Those of
    /// `activations.glsl` are also the activations of GEMM epilogues.
    unary, ["activations.glsl", "functions.glsl", "unary.comp"]:
    TANH, SIGMOID, GELU, GELU_TANH, CLAMP, LEAKY_RELU, HARDSWISH, HARDSIGMOID, SILU,
    COPY, ABS, NEG, SQRT, RSQRT, EXP, LOG, LOG10, SIN, COS, TAN, ROUND, FLOOR, CEIL, HARDSHRINK,
    LOGICAL_NOT, LINE, RECIPROCAL, ERF, ELU, CELU, BITWISE_NOT, QUANTIZE, DEQUANTIZE, ROUND_PARTS,
    ROUND_MULTIPLES;
}

numbers! {
    /// Binary functions of [`Binary`](crate::Binary). [`Pointwise`](crate::Pointwise) supports
    /// those before `LINEAR_INDEX`.
    binary, ["functions.glsl", "binary.comp"]:
    ADD, SUB, MUL, DIV, DIV_FLOOR, DIV_TRUNC, POW, MINIMUM, MAXIMUM, EQ, NE, LT, LE, GT, GE,
    LOGICAL_AND, LOGICAL_OR, BITWISE_AND, BITWISE_OR, BITWISE_XOR, LINEAR_INDEX, FMOD, REMAINDER,
    ATAN2, FMAX, FMIN, HYPOT, COPYSIGN, SHIFT_LEFT, SHIFT_RIGHT, LOGICAL_XOR;
}

numbers! {
    /// Rare unary functions of [`Special`](crate::Special).
    special, ["special.comp"]:
    SIGN, TRUNC, EXPM1, LOG1P, EXP2, LOG2, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH, ISNAN,
    ISINF, TO_BFLOAT16, ERFC, ERFINV, LGAMMA, DIGAMMA, SIGNBIT;
}

numbers! {
    /// The interpolation filter of [`Resample`](crate::Resample).
    resample, ["resample.comp"]: LINEAR, CUBIC;
}

numbers! {
    /// The padding mode of [`Pad`](crate::Pad).
    pad, ["pad.comp"]: NUMBER, REFLECTED, REPEATED;
}

numbers! {
    /// Functions and algorithms of [`Scan`](crate::Scan).
    scan, ["scan.comp"]: SUM, PROD, LOG_SUM, MAX, MIN, EACH, LINES, ROW;
}

numbers! {
    /// The results of [`Order`](crate::Order): sorted indices, or the index of the median.
    order, ["order.comp"]: FIRST, MEDIAN, MEDIAN_OF_NUMBERS;
}

numbers! {
    /// The norms of [`Distances`](crate::Distances).
    distances, ["distances.comp"]: COUNT, SUM, SQUARES, MAX, POWERS;
}

numbers! {
    /// How [`Scatter`](crate::Scatter) combines an old and a scattered element.
    scatter, ["scatter.comp"]: REPLACE, ADD, MULTIPLY, MAX, MIN;
}

numbers! {
    /// The layouts of input tensors of [`Pointwise`](crate::Pointwise), and the codes of its
    /// stages.
    pointwise, ["pointwise.comp"]:
    UNUSED, ALIKE, ONE_ELEMENT, STRIDED, BINARY_FROM, WHERE, NUMBER;
}

numbers! {
    /// The reductions of [`Reduce`](crate::Reduce).
    reduce, ["reduce.comp"]:
    SUM, MAX, MIN, ARGMAX, ARGMIN, SUM_EXP, SUM_SQUARED_DIFFERENCE, SUM_SQUARES, ANY, ALL, PROD;
}

numbers! {
    /// Functions of [`Normalize`](crate::Normalize) and [`Row`](crate::Row). The first four exist
    /// in both, `ROUND` only in [`Row`](crate::Row).
    normalize, ["normalize.comp", "row.comp"]: SOFTMAX, LOG_SOFTMAX, LAYER, RMS, AFFINE, ROUND;
}

numbers! {
    /// Whether the rows of [`Row`](crate::Row) are sums of two tensors, and whether the sums are
    /// also written.
    row, ["row.comp"]: ADDED, WRITTEN;
}

numbers! {
    /// The cell types of [`Recurrent`](crate::Recurrent).
    recurrent, ["cell.glsl"]: LSTM, GRU, TANH_CELL, RELU_CELL;
}

numbers! {
    /// The functions of [`Affine`](crate::Affine).
    affine, ["affine.comp"]: QUANTIZE, DEQUANTIZE;
}

numbers! {
    /// The functions of [`Requantize`](crate::Requantize).
    requantize, ["requantize.comp"]: COPY, RELU, ADD, MUL;
}

numbers! {
    /// The meaning of rows and columns in [`ConvolutionInt8`](crate::ConvolutionInt8).
    codes, ["convolution_int8.comp"]: PLANES, ROWS, PLACES;
}

numbers! {
    /// The outputs of [`CrossEntropy`](crate::CrossEntropy): the loss, or its gradient.
    cross_entropy, ["cross_entropy.comp"]: LOSS, GRADIENT;
}

numbers! {
    /// The gradient that [`LinearBackward`](crate::LinearBackward) computes.
    linear_backward, ["linear_backward.comp"]: OF_MATRIX, OF_INPUT;
}

/// An upper bound on the constants that the sources of a module declare.
const MAX_NAMES: usize = 128;

/// The locations of declared names, by source and byte. The sources are scanned once rather than
/// for each name: this runs in the compiler, where scanning a few kilobytes is slower than
/// compiling the rest of this crate.
struct Names {
    positions: [(usize, usize); MAX_NAMES],
    count: usize,
}

impl Names {
    const fn of(sources: &[&str]) -> Self {
        let mut names = Names { positions: [(0, 0); MAX_NAMES], count: 0 };
        let mut index = 0;
        while index < sources.len() {
            let source = sources[index].as_bytes();
            let mut at = 0;
            while at < source.len() {
                // This byte is checked before the call of `after`: a call is much slower in the
                // compiler, and few bytes end a line.
                if source[at] == b'\n' {
                    let name = after(source, at, b"\nconst uint ");
                    if name < source.len() {
                        names.positions[names.count] = (index, name);
                        names.count += 1;
                    }
                }
                at += 1;
            }
            index += 1;
        }
        names
    }
}

/// Returns the value of a name from the first source that declares it: `const uint NAME = 7;`.
const fn number(sources: &[&str], names: &Names, name: &str) -> u32 {
    match declared(sources, names, name) {
        Some(number) => number,
        None => panic!("no source of the shader declares this constant"),
    }
}

const fn declared(sources: &[&str], names: &Names, name: &str) -> Option<u32> {
    let mut index = 0;
    while index < names.count {
        let (source, at) = names.positions[index];
        let source = sources[source].as_bytes();
        let digits = after(source, after(source, at, name.as_bytes()), b" = ");
        if digits < source.len() {
            return leading(source, digits);
        }
        index += 1;
    }
    None
}

/// If `text` occurs at byte `at`, returns the byte offset after it; otherwise the end of the
/// source.
const fn after(source: &[u8], at: usize, text: &[u8]) -> usize {
    if source.len() - at < text.len() {
        return source.len();
    }
    let mut i = 0;
    while i < text.len() {
        if source[at + i] != text[i] {
            return source.len();
        }
        i += 1;
    }
    at + text.len()
}

/// Parses a decimal number that starts at a byte.
const fn leading(source: &[u8], mut at: usize) -> Option<u32> {
    let (mut number, mut digits) = (0, 0);
    while at < source.len() && source[at].is_ascii_digit() {
        number = number * 10 + (source[at] - b'0') as u32;
        (at, digits) = (at + 1, digits + 1);
    }
    if digits == 0 { None } else { Some(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_parsed_from_sources() {
        let sources: &[&str] = &[
            "//\nconst uint A = 7;\nconst uint AB = 12;\nlayout(x) const uint C = 3;\n",
            "\nconst uint A = 8;\nconst uint D = 9;",
        ];
        let declared = |name| declared(sources, &Names::of(sources), name);
        assert_eq!(declared("A"), Some(7));
        assert_eq!(declared("AB"), Some(12));
        assert_eq!(declared("D"), Some(9));
        // Specialisation constants are not found.
        assert_eq!(declared("C"), None);
        assert_eq!(declared("B"), None);
        assert_eq!([unary::TANH, binary::POW, pointwise::NUMBER, reduce::PROD], [11, 6, 255, 10]);
    }

    /// Both shaders use the same values for functions that both have.
    #[test]
    fn row_and_normalize_codes_agree() {
        let row: &[&str] = &[include_str!("../glsl/row.comp")];
        let names = Names::of(row);
        let of_row =
            ["SOFTMAX", "LOG_SOFTMAX", "LAYER", "RMS"].map(|name| number(row, &names, name));
        let all = [normalize::SOFTMAX, normalize::LOG_SOFTMAX, normalize::LAYER, normalize::RMS];
        assert_eq!(of_row, all);
    }
}
