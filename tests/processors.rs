//! Every program matches PyTorch's outputs on every processor, whatever it was exported for: as
//! exported, on the CPU, and compiled for kernels alone. `vulkan/processors.rs` does the same for
//! GPUs.

#[cfg(all(feature = "std", feature = "portable"))]
mod common;

#[cfg(all(feature = "std", feature = "portable"))]
mod tests {
    use crate::common::{
        Fixture, allow_steps_at_ties, check, check_all, check_programs, fixture, folder, inputs,
        open, programs,
    };
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use torchlet::core::layout::{channels_last_order, contiguous_order};
    use torchlet::core::{Registry, ScalarType, TensorInfo, ValueMeta};
    use torchlet::portable::KERNELS;
    use torchlet::portable::engine::{CpuEngine, CpuTarget};
    use torchlet::{Module, ModuleBuilder, RunOn, Tensor, Value};
    use torchlet_graph::front::vgf::{Container, SegmentKind};
    use torchlet_graph::method::{self, Instruction, MethodValue};
    use torchlet_graph::{Location, Processors, compile, cpu};

    /// A builder for the CPU only.
    fn plain() -> ModuleBuilder {
        Module::builder().threads(1).without_default_backends().backend(Arc::new(CpuEngine::new()))
    }

    fn opened(fixture: &Fixture, builder: ModuleBuilder) -> Result<Module, String> {
        open(fixture, builder).map_err(|error| error.to_string())
    }

    #[test]
    fn cpus_match_pytorch() {
        check_programs(&programs(), |fixture, _| opened(fixture, plain().run_on(RunOn::Cpu)));
    }

    /// Compiles a program, and opens the written file.
    fn compiled(source: &Module, processors: Processors<'_>) -> Result<Module, String> {
        let registry = Registry::new().with_kernels(&KERNELS).unwrap();
        let compiled = cpu::compile(&source.program(), source.data(), processors, &registry);
        let mut program = compiled.map_err(|error| error.to_string())?.program;
        let outside = program.embed(source.data()).map_err(|error| error.to_string())?;
        if !outside.is_empty() {
            return Err(format!("{outside:?} are outside"));
        }
        let package = program.write().map_err(|error| error.to_string())?;
        let module = plain().run_on(RunOn::AsExported).from_bytes(package.to_bytes());
        module.map_err(|error| error.to_string())
    }

    #[test]
    fn kernels_alone_match_pytorch() {
        let mut programs = programs();
        allow_steps_at_ties(&mut programs);
        check_programs(&programs, |_, source| compiled(source, Processors::NONE));
    }

    #[test]
    fn the_greedy_engine_matches_pytorch() {
        check_programs(&programs(), |_, source| {
            compiled(source, Processors::preferring(&[&CpuTarget::greedy()]))
        });
    }

    /// Kernels on int8 images compute the same whatever the memory order of their inputs and
    /// outputs is.
    #[test]
    fn int8_kernels_support_any_memory_order() {
        let mut changed = 0;
        for file in
            ["image_classification", "keyword_spotting", "explicit_layout", "padded_channels_last"]
        {
            let fixture = fixture(&format!("tinyml/{file}.bpte"));
            let source = open(&fixture, plain().run_on(RunOn::AsExported)).unwrap();
            let program = source.program();
            let mut program = method::Program::read(&program).unwrap();
            for method in &mut program.methods {
                // The memory order of other instructions, such as views, follows from the
                // exporter's tensors.
                let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
                for instruction in &method.instructions {
                    let Instruction::Kernel { name, args, .. } = instruction else { continue };
                    let is_own = name.starts_with("cortex_m::quantized");
                    if is_own { &mut own } else { &mut others }.extend(args.iter().copied());
                }
                for (at, value) in method.values.iter_mut().enumerate() {
                    let MethodValue::Tensor(tensor) = value else { continue };
                    let info = &mut tensor.info;
                    let is_image = info.rank() == 4 && info.scalar_type == ScalarType::Char;
                    let is_own = own.contains(&at) && !others.contains(&at);
                    if !is_image || tensor.location.is_none() || !is_own {
                        continue;
                    }
                    info.dim_order = match info.dim_order[..] {
                        [0, 2, 3, 1] => contiguous_order(4),
                        _ => channels_last_order(4).unwrap(),
                    };
                    changed += 1;
                }
            }
            let bytes = program.write().unwrap().to_bytes();
            let mut module = plain().run_on(RunOn::AsExported).from_bytes(bytes).unwrap();
            assert!(check(&mut module, &source, &fixture).unwrap() > 0, "{file}");
        }
        assert!(changed > 12, "{changed}");
    }

    /// Programs for microcontrollers keep their weights and activations in 8 bits, whatever they
    /// were quantized and lowered for.
    #[test]
    fn quantized_programs_stay_quantized_for_kernels_alone() {
        for file in ["tinyml/parts_portable.bpte", "tinyml/parts_xnnpack.bpte"] {
            let source = open(&fixture(file), plain().run_on(RunOn::AsExported)).unwrap();
            let registry = Registry::new().with_kernels(&KERNELS).unwrap();
            let program = source.program();
            let compiled = cpu::compile(&program, &[], Processors::NONE, &registry).unwrap();
            let [method] = &compiled.program.methods[..] else { panic!() };
            let floats = method.values.iter().filter_map(|value| match value {
                MethodValue::Tensor(tensor) if tensor.is_constant() => Some(&tensor.info),
                _ => None,
            });
            let floats: Vec<_> = floats.filter(|info| info.scalar_type.is_floating()).collect();
            assert!(floats.is_empty(), "{file}: {floats:?}");
            let names: BTreeSet<&str> = method
                .instructions
                .iter()
                .filter_map(|instruction| match instruction {
                    Instruction::Kernel { name, .. } => Some(&**name),
                    _ => None,
                })
                .collect();
            let expected = [
                "aten::cat",
                "aten::constant_pad_nd",
                // PyTorch's quantizer leaves hardswish and the following mean in floating point.
                "aten::hardswish",
                "aten::mean",
                "aten::permute_copy",
                "aten::view_copy",
                "cortex_m::quantized_activation",
                "cortex_m::quantized_add",
                "cortex_m::quantized_avg_pool2d_nhwc",
                "cortex_m::quantized_conv2d_nhwc",
                "cortex_m::quantized_depthwise_conv2d_nhwc",
                "cortex_m::quantized_max_pool2d_nhwc",
                "cortex_m::quantized_mul",
                "quantized_decomposed::dequantize_per_tensor",
                "quantized_decomposed::quantize_per_tensor",
            ];
            assert_eq!(names, BTreeSet::from(expected), "{file}");
            let [report] = &compiled.report.methods[..] else { panic!() };
            assert_eq!(report.fallbacks.len(), 2, "{file}: {:?}", report.fallbacks);
            assert!(report.fallbacks[0].starts_with("1 call of aten.hardswish.default"), "{file}");
        }
    }

    /// A program with nothing but the call of its only delegate.
    fn only_delegate<'p>(program: &torchlet::core::Program<'p>) -> method::Program<'p> {
        let mut program = method::Program::read(program).unwrap();
        let [method] = &mut program.methods[..] else { panic!() };
        if method.instructions.len() > 1 {
            // The other calls quantize and dequantize.
            let is_call = |it: &Instruction| matches!(it, Instruction::Delegate { .. });
            method.instructions.retain(is_call);
            let [Instruction::Delegate { args, .. }] = &method.instructions[..] else { panic!() };
            let [input, output] = args[..] else { panic!() };
            (method.inputs, method.outputs) = (vec![input], vec![output]);
        }
        program
    }

    /// The file inside a delegate, on its own, returns the same as the delegate.
    #[test]
    fn vgf_files_run_alone() {
        // A program of several delegates has other inputs than one of them.
        let is_one = |it: &Fixture| it.file.starts_with("vgf/") && !it.file.contains("branches");
        let files: Vec<Fixture> = programs().into_iter().filter(is_one).collect();
        assert!(files.len() > 8);
        let failures = check_all(&files, |fixture| {
            let source = open(fixture, plain().run_on(RunOn::AsExported)).unwrap();
            let program = source.program();
            let program = only_delegate(&program);
            let file = program.methods[0].delegates[0].processed.to_vec();
            let package = program.write().unwrap();
            let open = |bytes: Vec<u8>| plain().run_on(RunOn::Cpu).from_bytes(bytes).unwrap();
            let (mut alone, mut inside) = (open(file), open(package.to_bytes()));
            let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
            let case = suite.cases().unwrap().next().unwrap().unwrap();
            let inputs = inputs(&case)?;
            let run = |module: &mut Module| {
                let meta = module.method_meta("forward").unwrap();
                let input = |index| match meta.input(index).unwrap() {
                    Some(ValueMeta::Tensor(input)) => input.info,
                    _ => panic!("input {index} of {}", fixture.file),
                };
                let infos: Vec<TensorInfo> = (0..meta.input_count()).map(input).collect();
                assert_eq!(infos.len(), inputs.len());
                // Quantized values in place of floats. Integers of VGF files may be unsigned.
                let inputs = infos.iter().zip(&inputs).map(|(info, input)| {
                    let input = input.tensor().unwrap();
                    let bytes: Vec<u8> = match input.bytes().len() == info.nbytes() {
                        true => input.bytes().to_vec(),
                        false => (0..info.nbytes()).map(|at| (at * 37 % 251) as u8).collect(),
                    };
                    let shape: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
                    Value::from(Tensor::from_bytes(info.scalar_type, &shape, &bytes).unwrap())
                });
                let inputs: Vec<Value> = inputs.collect();
                let outputs = module.execute("forward", &inputs).unwrap();
                let bytes = |output: &Value| output.tensor().unwrap().bytes().to_vec();
                outputs.iter().map(bytes).collect::<Vec<Vec<u8>>>()
            };
            match run(&mut alone) == run(&mut inside) {
                true => Ok(()),
                false => Err(String::from("other outputs than the delegate")),
            }
        });
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// The CPU engine computes integers exactly as the TOSA reference model does.
    #[test]
    fn integers_of_tosa_are_exact_on_the_cpu() {
        for file in ["network/attention_int8", "network/convolutions_int8", "operators/int8"] {
            let fixture = fixture(&format!("vgf/{file}.bpte"));
            let fixture = Fixture { rtol: 0.0, atol: 0.0, ..fixture };
            let source = open(&fixture, plain().run_on(RunOn::AsExported)).unwrap();
            let mut module = open(&fixture, plain().run_on(RunOn::Cpu)).unwrap();
            assert!(check(&mut module, &source, &fixture).unwrap() > 0, "{file}");
        }
    }

    /// Compute segments of VGF files are foreign shaders.
    #[test]
    fn compute_segments_are_refused_by_name() {
        let fixture = fixture("vgf/network/convolutions_fp32.bpte");
        let source = open(&fixture, plain().run_on(RunOn::AsExported)).unwrap();
        let program = source.program();
        let mut program = method::Program::read(&program).unwrap();
        let delegate = &mut program.methods[0].delegates[0];
        let mut bytes = delegate.processed.to_vec();
        let is_compute = |bytes: &[u8]| {
            let container = Container::read(bytes);
            container.is_ok_and(|it| it.segments.iter().any(|it| it.kind == SegmentKind::Compute))
        };
        assert!(!is_compute(&bytes));
        // The byte that holds the segment's kind.
        let kind = (0..bytes.len()).filter(|at| bytes[*at] == 1).find(|at| {
            let mut changed = bytes.clone();
            changed[*at] = 0;
            is_compute(&changed)
        });
        bytes[kind.unwrap()] = 0;
        delegate.processed = bytes.into();
        let package = program.write().unwrap();
        let opened = plain().run_on(RunOn::Cpu).from_bytes(package.to_bytes());
        let why = opened.err().unwrap().to_string();
        let expected = "VGF segment 0 (\"graph_segment_0\") is a compute shader";
        assert!(why.contains(expected), "{why}");
    }

    /// XNNPACK delegates run nowhere without compilation: the reason why one cannot be compiled is
    /// reported, whatever processor it runs on.
    #[test]
    fn uncompilable_xnnpack_delegates_are_explained() {
        let path = folder().join("xnnpack/parts/external.bpte");
        for processor in [RunOn::Auto, RunOn::Cpu, RunOn::Device("vulkan")] {
            let opened = plain().run_on(processor).load(&path).err().unwrap();
            let why = opened.to_string();
            assert!(why.contains("pass the .ptd file"), "{processor:?}: {why}");
        }
        let source = plain().run_on(RunOn::AsExported).load(&path).unwrap();
        let registry = Registry::new().with_kernels(&KERNELS).unwrap();
        let compiled = compile(&source.program(), source.data(), Processors::NONE, &registry).err();
        let why = compiled.unwrap().to_string();
        assert!(why.contains("XNNPACK delegate: ") && why.contains(".ptd"), "{why}");
    }

    /// fp16 networks run in the engine, without conversions.
    #[test]
    fn the_engine_runs_fp16() {
        for file in [
            "models/mobilenet_v2_half.bpte",
            "models/mobilenet_v2_bf16.bpte",
            "xnnpack/convolution/half.bpte",
            "xnnpack/linear/half.bpte",
        ] {
            let module = opened(&fixture(file), plain().run_on(RunOn::Cpu)).unwrap();
            let plan = module.plan().unwrap();
            let calls: Vec<_> = plan.methods.iter().flat_map(|method| &method.calls).collect();
            let is_elsewhere = |place: &Location| matches!(place, Location::Host);
            let others = calls
                .iter()
                .filter(|call| is_elsewhere(&call.location) || call.operator.contains("_to_"));
            let others: Vec<_> = others.collect();
            assert!(!calls.is_empty() && others.is_empty(), "{file}: {others:?}");
        }
    }

    /// Bounded dynamic shapes run in the engine.
    #[test]
    fn the_engine_runs_dynamic_shapes() {
        for file in ["models/mobilenet_v2_dynamic_size.bpte", "models/llama_prefill.bpte"] {
            let fixture = fixture(file);
            let mut module = opened(&fixture, plain().run_on(RunOn::Cpu)).unwrap();
            let plan = module.plan().unwrap();
            let heavy = ["aten.convolution.default", "aten.linear.default", "torchlet.attention"];
            let calls = plan.methods.iter().flat_map(|method| &method.calls);
            let calls = calls.filter(|call| heavy.contains(&&*call.operator));
            let left = calls.filter(|call| call.location == Location::Host);
            let left: Vec<_> = left.cloned().collect();
            assert!(left.is_empty(), "{file}: {left:?}");
            let source = open(&fixture, plain().run_on(RunOn::AsExported)).unwrap();
            assert!(check(&mut module, &source, &fixture).unwrap() > 1, "{file}");
        }
    }

    /// Rows with a mean far from zero are normalised by their differences, more accurately than in
    /// PyTorch, which rounds the means.
    #[test]
    fn norms_far_from_zero_are_accurate() {
        let file = folder().join("ops/normalization/layer_norm_not_affine.bpte");
        let x = [3.0, -1.0, 0.5, 2.0, -4.0].map(|x: f32| 1e6 + x);
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / 5.0;
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 5.0;
        for processor in [RunOn::AsExported, RunOn::Cpu] {
            let mut module = plain().run_on(processor).load(&file).unwrap();
            let input = Tensor::from_slice(&[3, 5], &x.repeat(3)).unwrap();
            let outputs = module.forward(input).unwrap();
            let out: Vec<f32> = outputs[0].tensor().unwrap().to_vec().unwrap();
            for (x, out) in x.repeat(3).into_iter().zip(out) {
                let wanted = (f64::from(x) - mean) / (variance + 1e-5).sqrt();
                assert!(
                    (f64::from(out) - wanted).abs() < 1e-6,
                    "{processor:?} {x}: {out} {wanted}"
                );
            }
        }
    }
}
