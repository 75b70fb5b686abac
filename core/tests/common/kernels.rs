//! Test operators: a few that compute, and stand-ins for all others that read every argument and
//! fill every output with a value that depends on what they read.

use std::sync::LazyLock;
use torchlet_core::{
    Invoke, Kernel, KernelError, KernelKey, Param, Plan, Prepare, Registry, Scalar, ScalarType,
};

/// Operator names with their parameters: T tensor, t optional tensor, L tensor list, l list of
/// optional tensors, o output, i int, j optional int, I int list, J optional int list, f float, b
/// bool, s scalar, n output scalar.
const OPERATORS: &[(&str, &str)] = &[
    ("aten::_log_softmax.out", "Tibo"),
    ("aten::_native_batch_norm_legit_no_training.out", "TttTTffooo"),
    ("aten::add.out", "TTso"),
    ("aten::addmm.out", "TTTsso"),
    ("aten::alias_copy.out", "To"),
    ("aten::arange.start_out", "ssso"),
    ("aten::argmax.out", "Tjbo"),
    ("aten::cat.out", "Lio"),
    ("aten::clone.out", "Tjo"),
    ("aten::convolution.out", "TTtIIIbIio"),
    ("aten::copy.out", "TTbo"),
    ("aten::copy_", "oTb"),
    ("aten::div.out", "TTo"),
    ("aten::embedding.out", "TTibbo"),
    ("aten::exp.out", "To"),
    ("aten::expand_copy.out", "TIbo"),
    ("aten::full.out", "Iso"),
    ("aten::full_like.out", "Tsjo"),
    ("aten::gather.out", "TiTbo"),
    ("aten::gt.Scalar_out", "Tso"),
    ("aten::index.Tensor_out", "Tlo"),
    ("aten::index_put.out", "TlTbo"),
    ("aten::le.Scalar_out", "Tso"),
    ("aten::logical_not.out", "To"),
    ("aten::masked_select.out", "TTo"),
    ("aten::max_pool2d_with_indices.out", "TIIIIboo"),
    ("aten::mean.out", "TJbjo"),
    ("aten::mm.out", "TTo"),
    ("aten::mul.out", "TTo"),
    ("aten::ne.Scalar_out", "Tso"),
    ("aten::neg.out", "To"),
    ("aten::nonzero.out", "To"),
    ("aten::permute_copy.out", "TIo"),
    ("aten::relu.out", "To"),
    ("aten::scalar_tensor.out", "so"),
    ("aten::scatter.value_out", "TiTso"),
    ("aten::select_copy.int_out", "Tiio"),
    ("aten::sigmoid.out", "To"),
    ("aten::sin.out", "To"),
    ("aten::slice_copy.Tensor_out", "Tijjio"),
    ("aten::squeeze_copy.dims_out", "TIo"),
    ("aten::sub.out", "TTso"),
    ("aten::sum.IntList_out", "TJbjo"),
    ("aten::sym_size.int", "Tin"),
    ("aten::tanh.out", "To"),
    ("aten::topk.values", "Tiibboo"),
    ("aten::unsqueeze_copy.out", "Tio"),
    ("aten::view_copy.out", "TIo"),
    ("aten::where.self_out", "TTTo"),
    ("dim_order_ops::_clone_dim_order.out", "TbJo"),
    ("dim_order_ops::_to_dim_order_copy.out", "TbJo"),
    ("executorch_prim::add.Scalar", "ssn"),
    ("executorch_prim::eq.Scalar", "ssn"),
    ("executorch_prim::et_copy_index.tensor", "oTi"),
    ("executorch_prim::et_view.default", "TIo"),
    ("executorch_prim::floordiv.Scalar", "ssn"),
    ("executorch_prim::mod.Scalar", "ssn"),
    ("executorch_prim::mul.Scalar", "ssn"),
    ("executorch_prim::sub.Scalar", "ssn"),
    ("executorch_prim::truediv.Scalar", "ssn"),
    ("quantized_decomposed::dequantize_per_channel.out", "TTtiiijjo"),
    ("quantized_decomposed::dequantize_per_tensor.out", "Tfiiijjo"),
    ("quantized_decomposed::quantize_per_tensor.out", "Tfiiijo"),
];

fn params(spec: &str) -> &'static [Param] {
    let params: Vec<Param> = spec
        .chars()
        .map(|letter| match letter {
            'T' => Param::Tensor,
            't' => Param::OptionalTensor,
            'L' => Param::TensorList,
            'l' => Param::OptionalTensorList,
            'o' => Param::Out,
            'i' => Param::Int,
            'j' => Param::OptionalInt,
            'I' => Param::IntList,
            'J' => Param::OptionalIntList,
            'f' => Param::Float,
            'b' => Param::Bool,
            's' => Param::Scalar,
            'n' => Param::OutScalar,
            other => panic!("{other}"),
        })
        .collect();
    params.leak()
}

/// Generates functions for operator `N` of the list; the constant gives them access to its
/// parameters.
macro_rules! smears {
    ($($n:literal)*) => {
        vec![$(Kernel::new(OPERATORS[$n].0, params(OPERATORS[$n].1), prepare_smear::<$n>)),*]
    };
}

static SMEARS: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    #[rustfmt::skip]
    let kernels: Vec<Kernel> = smears![
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62
    ];
    assert_eq!(kernels.len(), OPERATORS.len());
    let view = |kernel: Kernel| if kernel.name == VIEW { kernel.aliasing(2, 0) } else { kernel };
    kernels.into_iter().map(view).collect()
});

const VIEW: &str = "executorch_prim::et_view.default";

/// Kernels with real computations, for float32 only; their key takes precedence over the others.
static FLOATS: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    const FLOAT: KernelKey = &[(ScalarType::Float, &[])];
    let find = |name: &str| OPERATORS.iter().find(|(known, _)| *known == name).unwrap().1;
    let kernel = |name, prepare| Kernel::new(name, params(find(name)), prepare).keyed(FLOAT);
    vec![
        kernel("aten::add.out", prepare_float::<3, '+'>),
        kernel("aten::mul.out", prepare_float::<2, '*'>),
        kernel("aten::relu.out", prepare_float::<1, 'r'>),
        kernel("aten::sub.out", prepare_float::<3, '-'>),
        kernel(TO_COPY, prepare_float::<3, '='>),
        Kernel::new(TO_COPY, params(find(TO_COPY)), prepare_convert)
            .keyed(&[(ScalarType::Double, &[])]),
        Kernel::new(TO_COPY, params(find(TO_COPY)), prepare_convert)
            .keyed(&[(ScalarType::Long, &[])]),
    ]
});

const TO_COPY: &str = "dim_order_ops::_to_dim_order_copy.out";

/// Converts the storage dtype of a model's constants to float32.
fn prepare_convert(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let shape = call.info(0)?;
    call.resize(3, &shape.sizes)?;
    Ok(Plan::new(|call| {
        let input = call.tensor(0)?;
        let mut output = call.out(3)?;
        let Ok(elements) = output.data_mut::<f32>() else { return Ok(()) };
        for (index, element) in elements.iter_mut().enumerate() {
            *element = match input.data::<f64>() {
                Ok(items) => items[index] as f32,
                Err(_) => input.data::<i64>()?[index] as f32,
            };
        }
        Ok(())
    }))
}

/// All operators of the fixtures that core's tests use. Created once: it compares every name with
/// every table, which under Miri takes longer than most programs.
pub fn registry() -> Registry<'static> {
    static REGISTRY: LazyLock<Registry<'static>> = LazyLock::new(|| {
        Registry::new().with_kernels(&FLOATS).unwrap().with_kernels(&SMEARS).unwrap()
    });
    *REGISTRY
}

/// Element-wise, with the output as argument `OUT`; a shorter operand is repeated.
fn prepare_float<const OUT: usize, const OP: char>(
    call: &mut Prepare<'_, '_>,
) -> Result<Plan, KernelError> {
    let shape = call.info(0)?;
    let found = call.info(OUT)?.scalar_type;
    if found != ScalarType::Float {
        return Err(KernelError::scalar_type(OUT, found));
    }
    call.resize(OUT, &shape.sizes)?;
    Ok(Plan::new(invoke_float::<OUT, OP>))
}

fn invoke_float<const OUT: usize, const OP: char>(
    call: &mut Invoke<'_, '_>,
) -> Result<(), KernelError> {
    let binary = matches!(OP, '+' | '-' | '*');
    let a = call.tensor(0)?;
    let b = if binary { Some(call.tensor(1)?) } else { None };
    let b = match &b {
        Some(b) => b.data::<f32>()?,
        None => &[0.0],
    };
    let scale = if matches!(OP, '+' | '-') { call.float(2)? as f32 } else { 1.0 };
    let a = a.data::<f32>()?;
    let mut output = call.out(OUT)?;
    for (index, element) in output.data_mut::<f32>()?.iter_mut().enumerate() {
        let at = |items: &[f32]| items.get(index % items.len().max(1)).copied().unwrap_or(0.0);
        let (a, b) = (at(a), at(b) * scale);
        *element = match OP {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            'r' => a.max(0.0),
            _ => a,
        };
    }
    Ok(())
}

/// Packed and scratch bytes of a stand-in kernel.
const EXTRA: usize = 24;

fn prepare_smear<const N: usize>(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let spec = OPERATORS[N].1;
    let mut reference = None;
    // Only the first argument under Miri, which is slow at copying shapes and lists.
    for arg in 0..if cfg!(miri) { 1 } else { spec.len() } {
        let _ = (call.ints(arg), call.optional_int(arg), call.list_float(arg, 0));
        let _ = (call.list_bool(arg, 0), call.optional_string(arg), call.list_info(arg, 0));
        let _ = call.optional_scalar_type(arg);
        if reference.is_none() {
            reference = call.optional_info(arg).ok().flatten();
        }
        if let Ok(info) = call.info(arg) {
            let _ = (info.strides(), info.is_contiguous(), info.is_channels_last(), info.numel());
        }
    }
    for (arg, letter) in spec.chars().enumerate() {
        if letter == 'o'
            && let Some(reference) = &reference
        {
            // Not the operator's real shape, but one that may fit.
            let _ = call.resize(arg, &reference.sizes);
        }
    }
    if spec.starts_with("TT") && call.is_constant(1) {
        return Ok(Plan::new(smear::<N>).with_packed(EXTRA, pack).with_scratch(EXTRA));
    }
    Ok(Plan::new(smear::<N>).with_scratch(EXTRA * call.threads()))
}

fn pack(call: &mut Invoke<'_, '_>, memory: &mut [u8]) -> Result<(), KernelError> {
    let weight = call.tensor(1)?;
    for (target, byte) in memory.iter_mut().zip(weight.bytes()) {
        *target = *byte;
    }
    Ok(())
}

fn smear<const N: usize>(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let (name, spec) = OPERATORS[N];
    let mut sum = 1u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    };
    for (arg, letter) in spec.chars().enumerate() {
        match letter {
            'T' | 't' => {
                if let Some(tensor) = call.optional_tensor(arg)? {
                    add(tensor.bytes());
                }
            }
            'L' | 'l' => {
                for position in 0..call.list_len(arg)? {
                    if let Some(tensor) = call.list_tensor(arg, position)? {
                        add(tensor.bytes());
                    }
                }
            }
            'o' | 'n' => {}
            _ => {
                if let Ok(scalar) = call.scalar(arg) {
                    add(&scalar.to_i64().to_le_bytes());
                }
                for position in 0..call.list_len(arg).unwrap_or(0) {
                    add(&call.list_int(arg, position)?.to_le_bytes());
                }
            }
        }
    }
    add(call.packed());
    let scratch = call.scratch();
    assert!(scratch.len() >= EXTRA, "scratch was promised");
    scratch.fill(3);
    assert!(call.scratch().is_empty(), "scratch was given twice");
    if name == VIEW {
        return call.alias(2, 0);
    }
    for (arg, letter) in spec.chars().enumerate() {
        match letter {
            'o' => {
                let mut output = call.out(arg)?;
                output.bytes_mut().fill((sum % 2) as u8);
                assert!(call.out(arg).is_err(), "an output was given twice");
            }
            'n' if name.contains("eq") => call.set_scalar(arg, Scalar::Bool(sum % 2 == 1))?,
            'n' => call.set_scalar(arg, Scalar::Int((sum % 3) as i64))?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes each element of the output after reading the corresponding input: undefined behaviour if
/// the references alias.
pub fn add_one(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    let mut out = call.out(1)?;
    let items = input.data::<f32>()?;
    for (to, from) in out.data_mut::<f32>()?.iter_mut().zip(items) {
        *to = from + 1.0;
    }
    assert_eq!(items.len() * 4, input.bytes().iter().count());
    Ok(())
}
