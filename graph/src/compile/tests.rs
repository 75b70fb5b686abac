use super::*;
use crate::method::{MethodTensor, TensorData};
use crate::testing::{registry, tensor};
use torchlet_core::{ScalarType, ShapeDynamism, TensorInfo};

/// A device that takes everything.
struct Everything;

impl Target for Everything {
    fn backend(&self) -> &'static str {
        "everything"
    }

    fn accepts(&self, _: &Graph<'_>, _: &Node) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn results_of_regions_vary_with_what_they_are_made_of() {
    let mut method = Method::default();
    let input = |method: &mut Method<'_>, dynamism| {
        let info = TensorInfo::contiguous(ScalarType::Float, &[4]).unwrap();
        let (place, data, name) = (None, TensorData::None, None);
        let value = MethodTensor { info, dynamism, place, data, name };
        method.add(MethodValue::Tensor(value))
    };
    let varies = input(&mut method, ShapeDynamism::DynamicBound);
    let stays = input(&mut method, ShapeDynamism::Static);
    // Of none of these tensors, the graph says that its shape varies.
    let graph = Graph {
        values: vec![tensor(&[4]), tensor(&[4]), tensor(&[4]), tensor(&[4]), tensor(&[4])],
        nodes: vec![
            Node::new(Operator::ABS, vec![0, 2]),
            Node::new(Operator::NEG, vec![2, 3]),
            Node::new(Operator::ABS, vec![1, 4]),
        ],
        inputs: vec![0, 1],
        outputs: vec![3, 4],
        ..Graph::default()
    };
    let registry = registry();
    let mut constants = Constants::new("");
    let mut compiler = MethodCompiler {
        target: Some(&Everything),
        packer: None,
        registry: &registry,
        copies: &Copies::of(&[]),
        constants: &mut constants,
        shared: &BTreeSet::new(),
        buffer: None,
        calls: Vec::new(),
        apart: Vec::new(),
        inputs: BTreeMap::new(),
        moved: BTreeSet::new(),
    };
    let run =
        Run { instructions: 0..3, origins: [(0, varies), (1, stays)].into_iter().collect(), graph };
    let cut = compiler.cut(run).unwrap();
    let instructions = compiler.emit(&mut method, cut, &Cells::default()).unwrap();
    let [Instruction::Delegate { args, .. }] = &instructions[..] else { panic!() };
    let dynamism = |arg: &usize| method.tensor(*arg).unwrap().dynamism;
    let found: Vec<ShapeDynamism> = args.iter().map(dynamism).collect();
    let (varies, stays) = (ShapeDynamism::DynamicBound, ShapeDynamism::Static);
    assert_eq!(found, [varies, stays, varies, stays]);
}
