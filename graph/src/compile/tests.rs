use super::*;
use crate::method::{MethodTensor, TensorData};
use crate::target::Target;
use crate::testing::{registry, tensor};
use torchlet_core::{Rates, ScalarType, ShapeDynamism, TensorInfo};

/// Device that supports every call.
struct Everything;

impl Target for Everything {
    fn backend(&self) -> &'static str {
        "everything"
    }

    fn accepts(&self, _: &Graph<'_>, _: &Node) -> Result<(), String> {
        Ok(())
    }
}

/// Creates a compiler for a method without delegates and state.
fn compiler<'c>(
    processors: Processors<'c>,
    registry: &'c Registry<'c>,
    copies: &'c Copies,
    constants: &'c mut Constants<'static>,
    shared: &'c BTreeSet<usize>,
) -> MethodCompiler<'c, 'static> {
    MethodCompiler {
        processors,
        packer: None,
        registry,
        copies,
        computed: Computed::new(),
        constants,
        shared,
        buffer: None,
        inputs: BTreeMap::new(),
        moved: BTreeSet::new(),
        report: MethodReport::default(),
        is_for_devices: false,
    }
}

#[test]
fn results_of_regions_vary_with_what_they_are_made_of() {
    let mut method = Method::default();
    let input = |method: &mut Method<'_>, dynamism| {
        let info = TensorInfo::contiguous(ScalarType::Float, &[4]).unwrap();
        let (location, data, name) = (None, TensorData::None, None);
        let value = MethodTensor { info, dynamism, location, data, name };
        method.add(MethodValue::Tensor(value))
    };
    let varies = input(&mut method, ShapeDynamism::DynamicBound);
    let stays = input(&mut method, ShapeDynamism::Static);
    // The graph declares none of these shapes dynamic.
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
    let (copies, shared) = (Copies::of(&[]), BTreeSet::new());
    let mut compiler = compiler(
        Processors::preferring(&[&Everything]),
        &registry,
        &copies,
        &mut constants,
        &shared,
    );
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

/// Device with known rates.
struct Known(Rates);

impl Target for Known {
    fn backend(&self) -> &'static str {
        "device"
    }

    fn accepts(&self, _: &Graph<'_>, _: &Node) -> Result<(), String> {
        Ok(())
    }

    fn rates(&self) -> Option<Rates> {
        Some(self.0)
    }
}

/// Whether a matrix multiplication of this size runs on the device, and the reported decision.
fn sent(size: usize, is_for_devices: bool, processors: Processors<'_>) -> (bool, Option<String>) {
    let graph = Graph {
        values: vec![tensor(&[size, size]), tensor(&[size, size])],
        nodes: vec![Node::new(Operator::MM, vec![0, 0, 1])],
        inputs: vec![0],
        outputs: vec![1],
        ..Graph::default()
    };
    let registry = registry();
    let mut constants = Constants::new("");
    let (copies, shared) = (Copies::of(&[]), BTreeSet::new());
    let mut compiler = compiler(processors, &registry, &copies, &mut constants, &shared);
    compiler.is_for_devices = is_for_devices;
    let cut = compiler.cut(Run { instructions: 0..1, origins: BTreeMap::new(), graph }).unwrap();
    let is_sent = cut.parts.iter().any(|part| matches!(part, Part::Device(..)));
    (is_sent, cut.decision)
}

#[test]
fn small_programs_stay_and_large_ones_go_to_the_device() {
    let kernels = Rates {
        operations: 1e10,
        bytes: 1e10,
        call: 0.0,
        region: 0.0,
        transfer: f64::INFINITY,
        fuses: false,
        emulated: false,
    };
    let device = Rates { operations: 1e13, bytes: 1e13, region: 1e-4, transfer: 1e10, ..kernels };
    let device = Known(device);
    let targets: [&dyn Target; 1] = [&device];
    let cheapest = Processors::cheapest(&targets).with_kernels(kernels);
    // 2 x 10^9 operations last 0.2 s on the kernels, and little more than 0.1 ms and the transfers
    // on the device.
    let (is_sent, why) = sent(1000, false, cheapest);
    assert!(is_sent);
    assert_eq!(
        why.unwrap(),
        "estimate with device: 1.100 ms, without: 200.000 ms; device used \
         (a device must at least halve the time)"
    );
    let (is_sent, why) = sent(10, false, cheapest);
    assert!(!is_sent);
    let expected = "estimate with device: 0.100 ms, without: 0.000 ms; device not used";
    assert!(why.unwrap().starts_with(expected));
    // In the uncertain range, a program lowered for the device stays there, and another one stays
    // on the kernels. Clear differences decide in either case.
    let between = 85;
    let (is_sent, why) = sent(between, false, cheapest);
    assert!(!is_sent, "{why:?}");
    let (is_sent, why) = sent(between, true, cheapest);
    assert!(is_sent, "{why:?}");
    assert!(!sent(10, true, cheapest).0);
    // Devices that are requested by name, or whose rates are unknown, are not compared.
    assert_eq!(
        sent(10, false, Processors::preferring(&targets).with_kernels(kernels)),
        (true, None)
    );
    assert_eq!(sent(10, false, Processors::cheapest(&[&Everything])), (true, None));
}
