use super::*;
use crate::method::TensorData;
use crate::testing::registry;
use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use torchlet_core::TensorInfo;

fn tensor<'p>(info: TensorInfo, data: TensorData<'p>) -> MethodValue<'p> {
    let dynamism = ShapeDynamism::Static;
    MethodValue::Tensor(MethodTensor { info, dynamism, location: None, data, name: None })
}

fn float(sizes: &[i32]) -> TensorInfo {
    TensorInfo::contiguous(ScalarType::Float, sizes).unwrap()
}

fn kernel(name: &str, overload: &str, args: &[usize]) -> Instruction {
    let (name, overload) = (name.to_owned(), overload.to_owned());
    Instruction::Kernel { name, overload, args: args.to_vec() }
}

fn runs<'p>(method: &Method<'p>) -> Result<Vec<Run<'p>>, Error> {
    FrontEnd::new(method, &[], &[], &Vocabulary::of(&registry())).runs()
}

/// Builds a method that computes the absolute values of a constant, which `values` values share.
/// With `cut`, an instruction that graphs cannot express splits the method.
fn of_constants<'p>(info: &TensorInfo, data: &'p [u8], values: usize, cut: bool) -> Method<'p> {
    let mut method = Method { values: vec![MethodValue::None; 2], ..Method::default() };
    for _ in 0..values {
        let inside = TensorData::Inside(Cow::Borrowed(data));
        let from = method.add(tensor(info.clone(), inside));
        let to = method.add(tensor(info.clone(), TensorData::None));
        method.instructions.push(kernel("aten::abs", "out", &[from, to, to]));
        if cut {
            method.instructions.push(Instruction::Move { from: 0, to: 1 });
        }
    }
    method
}

fn constants<'r>(runs: &'r [Run<'_>]) -> Vec<&'r Cow<'r, [u8]>> {
    let values = runs.iter().flat_map(|run| &run.graph.values);
    let data = values.filter_map(|value| match value {
        Value::Tensor(tensor) => tensor.data.as_ref(),
        _ => None,
    });
    data.collect()
}

#[test]
fn permuted_constants_are_copied_once() {
    let info = TensorInfo { dim_order: [1, 0].into_iter().collect(), ..float(&[2, 3]) };
    let bytes = |numbers: [f32; 6]| numbers.map(f32::to_le_bytes).concat();
    let data = bytes([0., 3., 1., 4., 2., 5.]);
    let method = of_constants(&info, &data, 3, false);
    let found = runs(&method).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].graph.nodes.len(), 3);
    assert_eq!(constants(&found), [&bytes([0., 1., 2., 3., 4., 5.])]);
}

#[test]
fn permuted_constants_are_not_copied_without_end() {
    let info = TensorInfo { dim_order: [1, 0].into_iter().collect(), ..float(&[512, 512]) };
    let data = vec![0; info.nbytes()];
    assert_eq!(constants(&runs(&of_constants(&info, &data, 10, true)).unwrap()).len(), 10);
    let error = runs(&of_constants(&info, &data, 30, true)).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

/// Builds a method whose first instruction writes a value that is initially `None`, and whose last
/// instruction, in another run, adds the value to itself.
fn with_number_between(cut: Instruction) -> Method<'static> {
    let mut method = Method::default();
    let given = method.add(tensor(float(&[2, 3]), TensorData::None));
    let dim = method.add(MethodValue::Scalar(Scalar::Int(0)));
    let number = method.add(MethodValue::None);
    let sum = method.add(MethodValue::None);
    method.add(MethodValue::Scalar(Scalar::Bool(true)));
    method.add(MethodValue::Scalar(Scalar::Bool(true)));
    (method.inputs, method.outputs) = (vec![given], vec![sum]);
    method.instructions = vec![
        kernel("aten::sym_size", "int", &[given, dim, number]),
        cut,
        kernel("executorch_prim::add", "Scalar", &[number, number, sum]),
    ];
    method
}

#[test]
fn numbers_that_start_as_nothing_enter_other_runs() {
    let method = with_number_between(Instruction::Move { from: 4, to: 5 });
    let found = runs(&method).unwrap();
    let [first, second] = &found[..] else { panic!("{} runs", found.len()) };
    assert_eq!(first.graph.outputs.len(), 1);
    let graph = &second.graph;
    let [input] = graph.inputs[..] else { panic!("{} inputs", graph.inputs.len()) };
    assert_eq!((&graph.values[input], second.origins[&input]), (&Value::SymInt(0), 2));
    assert_eq!(graph.nodes[0].args[..2], [input, input]);
}

#[test]
fn what_may_be_nothing_is_no_number() {
    // If a jump can skip the write, the reader stays an instruction.
    let method = with_number_between(Instruction::JumpFalse { condition: 4, destination: 2 });
    let found = runs(&method).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].instructions, 0..1);
    // The same applies if the writer may set something other than an integer, or runs later.
    let mut method = with_number_between(Instruction::Move { from: 1, to: 2 });
    assert_eq!(runs(&method).unwrap().len(), 1);
    method.instructions = vec![method.instructions[2].clone(), method.instructions[0].clone()];
    let found = runs(&method).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].instructions, 1..2);
}

/// The token position is an element of a tensor. The cache update at that position and the calls
/// after it form one graph.
#[test]
fn caches_do_not_cut_programs() {
    let of = |name: &str, batch: i32| {
        let long = TensorInfo::contiguous(ScalarType::Long, &[batch, 1]).unwrap();
        let (row, cache) = (float(&[batch, 1, 2, 4]), float(&[batch, 8, 2, 4]));
        let mut method = Method::default();
        let value = |info: &TensorInfo| tensor(info.clone(), TensorData::None);
        let [new, cache, places, result, sign] =
            [&row, &cache, &long, &cache, &cache].map(|info| method.add(value(info)));
        let start = method.add(MethodValue::Scalar(Scalar::Int(0)));
        let args = match name {
            "update_cache" => vec![new, cache, start, result],
            _ => vec![new, cache, start, places, result],
        };
        method.inputs = vec![new, places];
        method.outputs = vec![sign];
        method.instructions = vec![
            kernel("aten::_local_scalar_dense", "", &[places, start]),
            kernel(&format!("llama::{name}"), "out", &args),
            kernel("aten::abs", "out", &[cache, sign, sign]),
        ];
        let runs = runs(&method).unwrap();
        let operators: Vec<Vec<Operator>> = runs
            .iter()
            .map(|run| run.graph.nodes.iter().map(|node| node.operator).collect())
            .collect();
        let updates: usize = runs.iter().map(|run| run.graph.updates.len()).sum();
        (operators, updates)
    };
    let together = |update| (vec![vec![Operator::LOCAL_SCALAR_DENSE, update, Operator::ABS]], 1);
    assert_eq!(of("update_cache", 1), together(Operator::UPDATE_CACHE));
    assert_eq!(of("update_cache_with_indices", 1), together(Operator::INDEX_PUT));
    // Graphs cannot express a batch size above 1.
    let apart = vec![vec![Operator::LOCAL_SCALAR_DENSE], vec![Operator::ABS]];
    assert_eq!(of("update_cache_with_indices", 2), (apart, 0));
}
