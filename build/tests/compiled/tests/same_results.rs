//! Compiled programs have the interpreter's results and PyTorch's: int8 programs bit by bit. The
//! interpreter adds floats in another order if its features include SIMD.

#[macro_use]
mod common;

use common::{bits, cases, words};
use torchlet::firmware::Nested;

each_program!(program);

macro_rules! check {
    ($($name:ident $exact:literal $file:expr),*) => {$(
        #[test]
        fn $name() {
            let mut model = $name::load().unwrap();
            assert!($name::load().is_err(), "the memory is taken once");
            for (input, expected) in cases(stringify!($name), $exact, $file) {
                let input = words(&input);
                let [input] = $name::forward::Input0::nested(&input) else {
                    panic!("{} values", input.len())
                };
                let output = model.forward(input).unwrap();
                let output = <$name::forward::Output0>::flat(std::slice::from_ref(output));
                let expected = words(&expected);
                if $exact {
                    assert_eq!(bits(output), bits(&expected));
                }
                for (computed, expected) in output.iter().zip(&expected) {
                    assert!((computed - expected).abs() <= 1e-5 * expected.abs().max(1.0));
                }
            }
        }
    )*};
}

mod same {
    use super::*;

    each_program!(check);
}
