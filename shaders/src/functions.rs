//! The numbers of the functions of shaders: read from the sources that the shaders are compiled
//! from, when this crate is compiled. A function that the source lacks does not compile.

/// Declares a module with the numbers that the sources give some names.
macro_rules! numbers {
    ($(#[$doc:meta])* $module:ident, [$($source:literal),*]: $($name:ident),*;) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names say it")]
        pub mod $module {
            const SOURCES: &[&str] = &[$(include_str!(concat!("../glsl/", $source))),*];
            const NAMES: super::Names = super::Names::of(SOURCES);
            $(pub const $name: u32 = super::number(SOURCES, &NAMES, stringify!($name));)*
        }
    };
}

numbers! {
    /// Functions of one number: of [`Unary`](crate::Unary), [`Pointwise`](crate::Pointwise), and
    /// the activations behind products.
    unary, ["activations.glsl", "functions.glsl", "unary.comp"]:
    TANH, SIGMOID, GELU, GELU_TANH, CLAMP, LEAKY_RELU, HARDSWISH, HARDSIGMOID, SILU,
    COPY, ABS, NEG, SQRT, RSQRT, EXP, LOG, LOG10, SIN, COS, TAN, ROUND, FLOOR, CEIL, HARDSHRINK, LOGICAL_NOT, LINE, RECIPROCAL, ERF, ELU, CELU, BITWISE_NOT, QUANTIZE, DEQUANTIZE, ROUND_PARTS, ROUND_MULTIPLES;
}

numbers! {
    /// Functions of two numbers: of [`Binary`](crate::Binary), and but for those from
    /// `LINEAR_INDEX` on of [`Pointwise`](crate::Pointwise).
    binary, ["functions.glsl", "binary.comp"]:
    ADD, SUB, MUL, DIV, DIV_FLOOR, DIV_TRUNC, POW, MINIMUM, MAXIMUM, EQ, NE, LT, LE, GT, GE, LOGICAL_AND, LOGICAL_OR, BITWISE_AND, BITWISE_OR, BITWISE_XOR, LINEAR_INDEX, FMOD, REMAINDER, ATAN2, FMAX, FMIN, HYPOT, COPYSIGN, SHIFT_LEFT, SHIFT_RIGHT, LOGICAL_XOR;
}

numbers! {
    /// Functions of one number that few programs have: of [`Special`](crate::Special).
    special, ["special.comp"]:
    SIGN, TRUNC, EXPM1, LOG1P, EXP2, LOG2, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH, ISNAN, ISINF, TO_BFLOAT16, ERFC, ERFINV, LGAMMA, DIGAMMA, SIGNBIT;
}

numbers! {
    /// How [`Resample`](crate::Resample) weighs elements.
    resample, ["resample.comp"]: LINEAR, CUBIC;
}

numbers! {
    /// What is around a tensor that [`Pad`](crate::Pad) makes larger.
    pad, ["pad.comp"]: NUMBER, REFLECTED, REPEATED;
}

numbers! {
    /// What [`Scan`](crate::Scan) computes, and in which form.
    scan, ["scan.comp"]: SUM, PROD, LOG_SUM, LARGEST, SMALLEST, EACH, LINES, ROW;
}

numbers! {
    /// What [`Order`](crate::Order) finds.
    order, ["order.comp"]: FIRST, MEDIAN, MEDIAN_OF_NUMBERS;
}

numbers! {
    /// The norms of [`Distances`](crate::Distances).
    distances, ["distances.comp"]: COUNT, SUM, SQUARES, LARGEST, POWERS;
}

numbers! {
    /// What [`Scatter`](crate::Scatter) makes of an element and one that goes there.
    scatter, ["scatter.comp"]: REPLACE, ADD, MULTIPLY, LARGEST, SMALLEST;
}

numbers! {
    /// How [`Pointwise`](crate::Pointwise) reads its inputs, and what its stages are.
    pointwise, ["pointwise.comp"]:
    UNUSED, ALIKE, ONE_ELEMENT, STRIDED, BINARY_FROM, WHERE, NUMBER;
}

numbers! {
    /// What [`Reduce`](crate::Reduce) computes.
    reduce, ["reduce.comp"]:
    SUM, MAX, MIN, ARGMAX, ARGMIN, SUM_EXP, SUM_SQUARED_DIFFERENCE, SUM_SQUARES, ANY, ALL, PROD;
}

numbers! {
    /// What [`Normalize`](crate::Normalize) computes; the first four also [`Row`](crate::Row), and
    /// that alone the last.
    normalize, ["normalize.comp", "row.comp"]: SOFTMAX, LOG_SOFTMAX, LAYER, RMS, AFFINE, ROUND;
}

numbers! {
    /// What the rows of [`Row`](crate::Row) are if they are not its input's: those of a sum, which
    /// may be written besides.
    row, ["row.comp"]: ADDED, WRITTEN;
}

numbers! {
    /// The cells of [`Recurrent`](crate::Recurrent).
    recurrent, ["cell.glsl"]: LSTM, GRU, TANH_CELL, RELU_CELL;
}

numbers! {
    /// What [`Affine`](crate::Affine) does.
    affine, ["affine.comp"]: QUANTIZE, DEQUANTIZE;
}

numbers! {
    /// What [`Requantize`](crate::Requantize) computes.
    requantize, ["requantize.comp"]: COPY, RELU, ADD, MUL;
}

numbers! {
    /// What the rows and columns of [`ConvolutionCodes`](crate::ConvolutionCodes) are.
    codes, ["convolution_codes.comp"]: PLANES, ROWS, PLACES;
}

numbers! {
    /// What [`CrossEntropy`](crate::CrossEntropy) computes.
    cross_entropy, ["cross_entropy.comp"]: LOSS, GRADIENT;
}

numbers! {
    /// The gradient that [`LinearBackward`](crate::LinearBackward) computes.
    linear_backward, ["linear_backward.comp"]: OF_MATRIX, OF_INPUT;
}

/// More names than the sources of any module declare.
const MOST_NAMES: usize = 128;

/// Where the names begin that sources declare, by source and byte: looked for once and not for each
/// name, since this runs in the compiler, which takes longer for a text of some kilobytes than for
/// the rest of this crate.
struct Names {
    places: [(usize, usize); MOST_NAMES],
    count: usize,
}

impl Names {
    const fn of(sources: &[&str]) -> Self {
        let mut names = Names { places: [(0, 0); MOST_NAMES], count: 0 };
        let mut index = 0;
        while index < sources.len() {
            let source = sources[index].as_bytes();
            let mut at = 0;
            while at < source.len() {
                // Asked first, as a call takes much longer, and few bytes end a line.
                if source[at] == b'\n' {
                    let name = after(source, at, b"\nconst uint ");
                    if name < source.len() {
                        names.places[names.count] = (index, name);
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

/// The number that the first of the sources which has it gives a name: `const uint NAME = 7;`.
const fn number(sources: &[&str], names: &Names, name: &str) -> u32 {
    match declared(sources, names, name) {
        Some(number) => number,
        None => panic!("no source of the shader declares this function"),
    }
}

const fn declared(sources: &[&str], names: &Names, name: &str) -> Option<u32> {
    let mut index = 0;
    while index < names.count {
        let (source, at) = names.places[index];
        let source = sources[source].as_bytes();
        let digits = after(source, after(source, at, name.as_bytes()), b" = ");
        if digits < source.len() {
            return leading(source, digits);
        }
        index += 1;
    }
    None
}

/// Where the text behind `text` begins, if that is what stands at `at`; else the end.
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

/// The decimal number at a place.
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
    fn numbers_are_those_of_the_sources() {
        let sources: &[&str] = &[
            "//\nconst uint A = 7;\nconst uint AB = 12;\nlayout(x) const uint C = 3;\n",
            "\nconst uint A = 8;\nconst uint D = 9;",
        ];
        let declared = |name| declared(sources, &Names::of(sources), name);
        assert_eq!(declared("A"), Some(7));
        assert_eq!(declared("AB"), Some(12));
        assert_eq!(declared("D"), Some(9));
        // A specialisation constant is none.
        assert_eq!(declared("C"), None);
        assert_eq!(declared("B"), None);
        assert_eq!([unary::TANH, binary::POW, pointwise::NUMBER, reduce::PROD], [11, 6, 255, 10]);
    }

    /// The two shaders take turns for the same operators.
    #[test]
    fn rows_are_numbered_alike() {
        let row: &[&str] = &[include_str!("../glsl/row.comp")];
        let names = Names::of(row);
        let of_row =
            ["SOFTMAX", "LOG_SOFTMAX", "LAYER", "RMS"].map(|name| number(row, &names, name));
        let all = [normalize::SOFTMAX, normalize::LOG_SOFTMAX, normalize::LAYER, normalize::RMS];
        assert_eq!(of_row, all);
    }
}
