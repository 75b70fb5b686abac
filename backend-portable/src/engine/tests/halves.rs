//! 16-bit values are rounded at the edges of a region, and not inside.

use super::*;
use half::f16;

impl Maker {
    /// Converts values and their constant data to a dtype.
    fn narrow(&mut self, ids: &[ValueId], scalar_type: ScalarType) {
        for id in ids {
            let Value::Tensor(tensor) = &mut self.graph.values[*id] else { panic!("no tensor") };
            (tensor.scalar_type, tensor.host_type) = (scalar_type, scalar_type);
            tensor.data = tensor.data.take().map(|data| {
                let values = data.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it));
                let narrow = |it: f32| match scalar_type {
                    ScalarType::Half => f16::from_f32(it).to_le_bytes(),
                    _ => half::bf16::from_f32(it).to_le_bytes(),
                };
                values.flat_map(narrow).collect::<Vec<u8>>().into()
            });
        }
    }

    fn cast(&mut self, id: ValueId, scalar_type: ScalarType) -> ValueId {
        let sizes = self.sizes(id);
        let none = self.value(Value::None);
        let out = self.call(Operator::TO_COPY, &[id, none], &sizes);
        if scalar_type != ScalarType::Float {
            self.narrow(&[out], scalar_type);
        }
        out
    }
}

#[test]
fn narrowing_conversions_round() {
    for (scalar_type, expected) in [
        (ScalarType::Half, [2048.0, 1.0, f32::INFINITY]),
        (ScalarType::BFloat16, [2048.0, 1.0, 70_144.0]),
    ] {
        let mut maker = Maker::new(1, &[&[3]]);
        let input = maker.graph.inputs[0];
        let narrow = maker.cast(input, scalar_type);
        let wide = maker.cast(narrow, ScalarType::Float);
        maker.graph.outputs = vec![wide, input];
        let data = [2049.0, 1.0 + 1.0 / 4096.0, 70_000.0];
        let found = outputs(&maker.graph, &[&data], &Serial);
        assert_eq!(found, [expected.to_vec(), data.to_vec()]);
    }
}

/// Intermediate values keep the precision and range of `f32`, beyond those of their dtype.
#[test]
fn intermediate_values_are_not_rounded() {
    let mut maker = Maker::new(2, &[&[2]]);
    let input = maker.graph.inputs[0];
    let one = maker.int(1);
    let twice = maker.call(Operator::ADD_TENSOR, &[input, input, one], &[2]);
    let half = maker.value(Value::Double(0.5));
    let once = maker.call(Operator::MUL_SCALAR, &[twice, half], &[2]);
    maker.narrow(&[input, twice, once], ScalarType::Half);
    maker.graph.outputs = vec![once];
    let data = [60_000.0, -60_000.0];
    assert_eq!(outputs(&maker.graph, &[&data], &Serial), [data.to_vec()]);
}

/// Quantization uses the rounded 16-bit value, even if this region computed it or converts it to
/// `f32` first.
#[test]
fn quantization_uses_rounded_16_bit_values() {
    for widened in [false, true] {
        check_codes(widened);
    }
}

fn check_codes(widened: bool) {
    let mut maker = Maker::new(3, &[&[2]]);
    let input = maker.graph.inputs[0];
    let addend = maker.value(Value::Double(0.25 + 1.0 / 8192.0));
    let one = maker.int(1);
    let sum = maker.call(Operator::ADD_SCALAR, &[input, addend, one], &[2]);
    maker.narrow(&[input, sum], ScalarType::Half);
    let sum = if widened { maker.cast(sum, ScalarType::Float) } else { sum };
    let scale = maker.value(Value::Double(0.5));
    let [zero, low, high] = [0, -128, 127].map(|number| maker.int(number));
    let int8_dtype = maker.int(1);
    let args = [sum, scale, zero, low, high, int8_dtype];
    let quantized = maker.call(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &args, &[2]);
    let Value::Tensor(tensor) = &mut maker.graph.values[quantized] else { panic!("no tensor") };
    (tensor.scalar_type, tensor.host_type) = (ScalarType::Char, ScalarType::Char);
    let args = [quantized, scale, zero, low, high, int8_dtype];
    let back = maker.call(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &args, &[2]);
    maker.graph.outputs = vec![back];
    // 0.25 is halfway between two quantized values and rounds to the even one. A slightly larger
    // value would round up.
    assert_eq!(outputs(&maker.graph, &[&[1.0, 4.0]], &Serial), [[1.0, 4.0]]);
}

#[test]
fn conversion_to_f32_rounds_to_16_bits_first() {
    let mut maker = Maker::new(5, &[&[2]]);
    let input = maker.graph.inputs[0];
    let one = maker.int(1);
    let twice = maker.call(Operator::ADD_TENSOR, &[input, input, one], &[2]);
    maker.narrow(&[input, twice], ScalarType::Half);
    let wide = maker.cast(twice, ScalarType::Float);
    maker.graph.outputs = vec![wide];
    let found = outputs(&maker.graph, &[&[60_000.0, 3.0]], &Serial);
    assert_eq!(found, [[f32::INFINITY, 6.0]]);
}

#[test]
fn packed_weights_keep_16_bits() {
    for scalar_type in [ScalarType::Half, ScalarType::BFloat16] {
        let mut maker = Maker::new(4, &[&[5, 40]]);
        let input = maker.graph.inputs[0];
        let (weights, bias) = (maker.constant(&[70, 40]), maker.constant(&[70]));
        let out = maker.call(Operator::LINEAR, &[input, weights, bias], &[5, 70]);
        maker.graph.outputs = vec![out];
        maker.narrow(&[weights, bias], scalar_type);
        let data = maker.random.values(200);
        let narrow = outputs(&maker.graph, &[&data], &Serial);
        // The same weights in `f32`.
        let mut wide = maker.graph.clone();
        for id in [weights, bias] {
            let Value::Tensor(tensor) = &mut wide.values[id] else { panic!("no tensor") };
            let precision = Precision::of(scalar_type).unwrap();
            let values = precision.elements(tensor.data.as_ref().unwrap()).into_owned();
            let sizes = tensor.sizes.clone();
            wide.values[id] = super::tensor(&sizes, Some(values));
        }
        let expected = outputs(&wide, &[&data], &Serial);
        for (found, expected) in narrow[0].iter().zip(&expected[0]) {
            assert!((found - expected).abs() <= 1e-5, "{found} {expected}");
        }
        if Tier::detect() != Tier::SCALAR {
            let machine = Context { tier: Tier::detect(), parallel: &Serial };
            let packs = Packs::default();
            let (packed, _) = Builder::pack(&maker.graph, machine, &packs).unwrap();
            let (wider, _) = Builder::pack(&wide, machine, &packs).unwrap();
            assert_eq!(2 * packed[0].2.as_slice().len(), wider[0].2.as_slice().len());
        }
    }
}
