//! Compares the crate's file format readers, field by field, with those that `flatc` generates from
//! the schemas in `core/schema`, over every fixture. A module of the crate, since the readers are
//! private.

use crate::format::Malformed;
use crate::format::bundled_schema as bundled;
use crate::format::flat_tensor_schema as flat;
use crate::format::flatbuffer::{Item, Table, Vector};
use crate::format::program_schema as ours;
use crate::{BundledProgram, format::header::ProgramHeader};
use std::path::{Path, PathBuf};
use std::vec::Vec;

#[allow(warnings, unsafe_op_in_unsafe_fn, reason = "generated code")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
#[rustfmt::skip]
mod generated {
    #[path = "bundled_program_generated.rs"]
    mod bundled_program_generated;
    #[path = "flat_tensor_generated.rs"]
    mod flat_tensor_generated;
    #[path = "program_generated.rs"]
    mod program_generated;
    pub(crate) use bundled_program_generated::bundled_program;
    pub(crate) use flat_tensor_generated::flat_tensor;
    pub(crate) use program_generated::program;
}
use generated::{bundled_program, flat_tensor, program};

/// Compares vectors item by item; an absent vector equals an empty one.
fn each<'a, T, U>(
    ours: Result<Vector<'a, T>, Malformed>,
    theirs: Option<flatbuffers::Vector<'a, U>>,
    compare: impl Fn(T, U::Inner),
) where
    T: Item<'a>,
    U: flatbuffers::Follow<'a>,
{
    let ours = ours.unwrap();
    assert_eq!(ours.len(), theirs.as_ref().map_or(0, |theirs| theirs.len()));
    assert_eq!(ours.is_empty(), ours.iter().next().is_none());
    for (index, theirs) in theirs.into_iter().flatten().enumerate() {
        compare(ours.get(index).unwrap().unwrap(), theirs);
    }
}

/// Compares vectors of numbers.
fn numbers<'a, T>(
    ours: Result<Vector<'a, T>, Malformed>,
    theirs: Option<flatbuffers::Vector<'a, T>>,
) where
    T: Item<'a> + flatbuffers::Follow<'a, Inner = T> + PartialEq + core::fmt::Debug + 'a,
{
    each(ours, theirs, |ours, theirs| assert_eq!(ours, theirs));
}

/// Compares optional tables.
fn both<T, U>(ours: Result<Option<T>, Malformed>, theirs: Option<U>, compare: impl FnOnce(T, U)) {
    match (ours.unwrap(), theirs) {
        (Some(ours), Some(theirs)) => compare(ours, theirs),
        (None, None) => {}
        (ours, _) => panic!("only {} has it", if ours.is_some() { "ours" } else { "theirs" }),
    }
}

fn compare_program(ours: ours::ProgramTable<'_>, theirs: program::Program<'_>) {
    assert_eq!(ours.version().unwrap(), theirs.version());
    each(ours.execution_plan(), theirs.execution_plan(), compare_plan);
    let buffer = |ours: ours::Buffer<'_>, theirs: program::Buffer<'_>| {
        numbers(ours.storage(), theirs.storage());
    };
    each(ours.constant_buffer(), theirs.constant_buffer(), buffer);
    each(ours.backend_delegate_data(), theirs.backend_delegate_data(), buffer);
    each(ours.segments(), theirs.segments(), |ours, theirs| {
        assert_eq!(
            (ours.offset().unwrap(), ours.size().unwrap()),
            (theirs.offset(), theirs.size_())
        );
    });
    both(ours.constant_segment(), theirs.constant_segment(), compare_offsets);
    each(ours.mutable_data_segments(), theirs.mutable_data_segments(), compare_offsets);
    each(ours.named_data(), theirs.named_data(), |ours, theirs| {
        assert_eq!(ours.key().unwrap(), theirs.key());
        assert_eq!(ours.segment_index().unwrap(), theirs.segment_index());
    });
}

fn compare_offsets(ours: ours::SubsegmentOffsets<'_>, theirs: program::SubsegmentOffsets<'_>) {
    assert_eq!(ours.segment_index().unwrap(), theirs.segment_index());
    numbers(ours.offsets(), theirs.offsets());
}

fn compare_plan(ours: ours::ExecutionPlan<'_>, theirs: program::ExecutionPlan<'_>) {
    assert_eq!(ours.name().unwrap(), theirs.name());
    each(ours.values(), theirs.values(), compare_value);
    numbers(ours.inputs(), theirs.inputs());
    numbers(ours.outputs(), theirs.outputs());
    each(ours.chains(), theirs.chains(), |ours, theirs| {
        each(ours.instructions(), theirs.instructions(), compare_instruction);
    });
    each(ours.operators(), theirs.operators(), |ours, theirs| {
        assert_eq!(ours.name().unwrap(), theirs.name());
        assert_eq!(ours.overload().unwrap(), theirs.overload());
    });
    each(ours.delegates(), theirs.delegates(), |ours, theirs| {
        assert_eq!(ours.id().unwrap(), theirs.id());
        both(ours.processed(), theirs.processed(), |ours, theirs| {
            assert_eq!(ours.location().unwrap(), theirs.location());
            assert_eq!(ours.index().unwrap(), theirs.index());
        });
        each(ours.compile_specs(), theirs.compile_specs(), |ours, theirs| {
            assert_eq!(ours.key().unwrap(), theirs.key());
            numbers(ours.value(), theirs.value());
        });
    });
    numbers(ours.non_const_buffer_sizes(), theirs.non_const_buffer_sizes());
}

fn compare_value(ours: ours::EValueTable<'_>, theirs: program::EValue<'_>) {
    use ours::EValue;
    assert_eq!(ours.kind().unwrap(), theirs.val_type().0);
    match ours.value().unwrap() {
        EValue::None => assert!(theirs.val_type().0 <= 1),
        EValue::Int(value) => assert_eq!(value, theirs.val_as_int().unwrap().value()),
        EValue::Bool(value) => assert_eq!(value, theirs.val_as_bool().unwrap().value()),
        EValue::Double(value) => {
            assert_eq!(value.to_bits(), theirs.val_as_double().unwrap().value().to_bits());
        }
        EValue::String(value) => {
            assert_eq!(
                value.text().unwrap(),
                theirs.val_as_string().unwrap().value().unwrap_or("")
            );
        }
        EValue::List(list) => match list.kind {
            ours::ListKind::Int => {
                numbers(Ok(list.items()), theirs.val_as_int_list().unwrap().items());
            }
            ours::ListKind::Double => {
                numbers(Ok(list.items()), theirs.val_as_double_list().unwrap().items());
            }
            ours::ListKind::Bool => {
                numbers(Ok(list.items()), theirs.val_as_bool_list().unwrap().items());
            }
            ours::ListKind::Tensor => {
                numbers(Ok(list.items()), theirs.val_as_tensor_list().unwrap().items());
            }
            ours::ListKind::OptionalTensor => {
                numbers(Ok(list.items()), theirs.val_as_optional_tensor_list().unwrap().items());
            }
        },
        EValue::Tensor(tensor) => compare_tensor(tensor, theirs.val_as_tensor().unwrap()),
    }
}

fn compare_tensor(ours: ours::TensorTable<'_>, theirs: program::Tensor<'_>) {
    assert_eq!(ours.scalar_type().unwrap(), theirs.scalar_type());
    assert_eq!(ours.storage_offset().unwrap(), theirs.storage_offset());
    numbers(ours.sizes(), theirs.sizes());
    numbers(ours.dim_order(), theirs.dim_order());
    assert_eq!(ours.data_buffer_idx().unwrap(), theirs.data_buffer_idx());
    both(ours.allocation_info(), theirs.allocation_info(), |ours, theirs| {
        assert_eq!(ours.memory_id().unwrap(), theirs.memory_id());
        assert_eq!(ours.memory_offset_low().unwrap(), theirs.memory_offset_low());
        assert_eq!(ours.memory_offset_high().unwrap(), theirs.memory_offset_high());
    });
    assert_eq!(ours.shape_dynamism().unwrap(), theirs.shape_dynamism());
    both(ours.extra_tensor_info(), theirs.extra_tensor_info(), |ours, theirs| {
        let index = ours.mutable_data_segments_idx().unwrap();
        assert_eq!(index, theirs.mutable_data_segments_idx());
        assert_eq!(ours.fully_qualified_name().unwrap(), theirs.fully_qualified_name());
        assert_eq!(ours.location().unwrap(), theirs.location());
        assert_eq!(ours.device_type().unwrap(), theirs.device_type());
        assert_eq!(ours.device_index().unwrap(), theirs.device_index());
    });
}

fn compare_instruction(ours: ours::InstructionTable<'_>, theirs: program::Instruction<'_>) {
    use ours::InstructionArgs;
    match ours.args().unwrap() {
        InstructionArgs::Kernel { operator, args } => {
            let theirs = theirs.instr_args_as_kernel_call().unwrap();
            assert_eq!(operator, theirs.op_index());
            numbers(Ok(args), theirs.args());
        }
        InstructionArgs::Delegate { delegate, args } => {
            let theirs = theirs.instr_args_as_delegate_call().unwrap();
            assert_eq!(delegate, theirs.delegate_index());
            numbers(Ok(args), theirs.args());
        }
        InstructionArgs::Move { from, to } => {
            let theirs = theirs.instr_args_as_move_call().unwrap();
            assert_eq!((from, to), (theirs.move_from(), theirs.move_to()));
        }
        InstructionArgs::JumpFalse { condition, destination } => {
            let theirs = theirs.instr_args_as_jump_false_call().unwrap();
            assert_eq!(condition, theirs.cond_value_index());
            assert_eq!(destination, theirs.destination_instruction());
        }
        InstructionArgs::Free { value } => {
            assert_eq!(value, theirs.instr_args_as_free_call().unwrap().value_index());
        }
    }
}

fn compare_flat(ours: flat::FlatTensorTable<'_>, theirs: flat_tensor::FlatTensor<'_>) {
    assert_eq!(ours.version().unwrap(), theirs.version());
    each(ours.segments(), theirs.segments(), |ours, theirs| {
        assert_eq!(
            (ours.offset().unwrap(), ours.size().unwrap()),
            (theirs.offset(), theirs.size_())
        );
    });
    each(ours.named_data(), theirs.named_data(), |ours, theirs| {
        assert_eq!(ours.key().unwrap(), theirs.key());
        assert_eq!(ours.segment_index().unwrap(), theirs.segment_index());
        both(ours.tensor_layout(), theirs.tensor_layout(), |ours, theirs| {
            assert_eq!(ours.scalar_type().unwrap(), theirs.scalar_type());
            numbers(ours.sizes(), theirs.sizes());
            numbers(ours.dim_order(), theirs.dim_order());
        });
    });
}

fn compare_bundle(ours: bundled::BundledTable<'_>, theirs: bundled_program::BundledProgram<'_>) {
    assert_eq!(ours.version().unwrap(), theirs.version());
    assert_eq!(ours.program().unwrap().bytes(), theirs.program().unwrap().bytes());
    each(ours.method_test_suites(), theirs.method_test_suites(), |ours, theirs| {
        assert_eq!(ours.method_name().unwrap(), theirs.method_name());
        each(ours.test_cases(), theirs.test_cases(), |ours, theirs| {
            each(ours.inputs(), theirs.inputs(), compare_bundled_value);
            each(ours.expected_outputs(), theirs.expected_outputs(), compare_bundled_value);
        });
    });
}

fn compare_bundled_value(ours: bundled::BundledValueTable<'_>, theirs: bundled_program::Value<'_>) {
    let kind = ours.kind().unwrap();
    assert_eq!(kind, theirs.val_type().0);
    let table = ours.0.union_value(1).unwrap();
    match kind {
        0 => assert!(table.is_none()),
        1 => {
            let ours = bundled::BundledTensorTable(table.unwrap());
            let theirs = theirs.val_as_tensor().unwrap();
            assert_eq!(ours.scalar_type().unwrap(), theirs.scalar_type());
            numbers(ours.sizes(), theirs.sizes());
            numbers(ours.dim_order(), theirs.dim_order());
            let data = theirs.data().map_or(&[][..], |data| data.bytes());
            assert_eq!(ours.data().unwrap().bytes(), data);
        }
        2 => {
            let ours = ours::IntTable(table.unwrap());
            assert_eq!(ours.value().unwrap(), theirs.val_as_int().unwrap().value());
        }
        3 => {
            let ours = ours::BoolTable(table.unwrap());
            assert_eq!(ours.value().unwrap(), theirs.val_as_bool().unwrap().value());
        }
        _ => {
            let ours = ours::DoubleTable(table.unwrap());
            let theirs = theirs.val_as_double().unwrap().value();
            assert_eq!(ours.value().unwrap().to_bits(), theirs.to_bits());
        }
    }
}

/// All fixtures with this file extension.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut folders = std::vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no .{ending} among the fixtures");
    // A sample under Miri, which is a thousand times slower.
    found.sort();
    found.truncate(if cfg!(miri) { 2 } else { usize::MAX });
    found
}

/// Compares the flatbuffer of a program file, without the segments after it.
fn compare_program_file(bytes: &[u8], what: &Path) {
    let header = ProgramHeader::parse(bytes).unwrap();
    let len = header.program_size.map_or(bytes.len(), |size| usize::try_from(size).unwrap());
    // The verifier requires alignment; a vector in a bundled program is only byte-aligned.
    let mut blocks: Vec<u128> = std::vec![0; len.div_ceil(16)];
    let aligned: &mut [u8] = bytemuck::cast_slice_mut(&mut blocks);
    aligned[..len].copy_from_slice(&bytes[..len]);
    let root = flatbuffers::root::<program::Program<'_>>(&aligned[..len]);
    let theirs = root.unwrap_or_else(|error| panic!("{}: {error}", what.display()));
    compare_program(ours::ProgramTable(Table::root(bytes).unwrap()), theirs);
}

#[test]
fn programs_read_alike() {
    for path in files("pte") {
        compare_program_file(&std::fs::read(&path).unwrap(), &path);
    }
}

#[test]
fn bundled_programs_read_alike() {
    for path in files("bpte") {
        let bytes = std::fs::read(&path).unwrap();
        let mut blocks: Vec<u128> = std::vec![0; bytes.len().div_ceil(16)];
        let aligned: &mut [u8] = bytemuck::cast_slice_mut(&mut blocks);
        aligned[..bytes.len()].copy_from_slice(&bytes);
        let root =
            flatbuffers::root::<bundled_program::BundledProgram<'_>>(&aligned[..bytes.len()]);
        let theirs = root.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        compare_bundle(bundled::BundledTable(Table::root(&bytes).unwrap()), theirs);
        let bundle = BundledProgram::from_bytes(&bytes).unwrap();
        compare_program_file(bundle.program().unwrap(), &path);
    }
}

#[test]
fn external_data_reads_alike() {
    for path in files("ptd") {
        let bytes = std::fs::read(&path).unwrap();
        let header = crate::format::header::FlatTensorHeader::parse(&bytes).unwrap();
        let end = usize::try_from(header.flatbuffer.0 + header.flatbuffer.1).unwrap();
        let mut blocks: Vec<u128> = std::vec![0; end.div_ceil(16)];
        let aligned: &mut [u8] = bytemuck::cast_slice_mut(&mut blocks);
        aligned[..end].copy_from_slice(&bytes[..end]);
        let root = flatbuffers::root::<flat_tensor::FlatTensor<'_>>(&aligned[..end]);
        let theirs = root.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        compare_flat(flat::FlatTensorTable(Table::root(&bytes).unwrap()), theirs);
    }
}

/// A program whose only chain has `instructions` instructions and is listed `chains` times.
fn repeated(chains: usize, instructions: usize) -> Vec<u8> {
    use program::{
        Chain, ChainArgs, ExecutionPlan, ExecutionPlanArgs, FreeCall, FreeCallArgs, Instruction,
        InstructionArgs, InstructionArguments, Program, ProgramArgs,
    };
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let free = FreeCall::create(&mut builder, &FreeCallArgs { value_index: 0 }).as_union_value();
    let (instr_args_type, instr_args) = (InstructionArguments::FreeCall, Some(free));
    let free = Instruction::create(&mut builder, &InstructionArgs { instr_args_type, instr_args });
    let list = builder.create_vector(&std::vec![free; instructions]);
    let chain = Chain::create(&mut builder, &ChainArgs { instructions: Some(list) });
    let chains = builder.create_vector(&std::vec![chain; chains]);
    let name = builder.create_string("forward");
    let plan = ExecutionPlanArgs { name: Some(name), chains: Some(chains), ..Default::default() };
    let plan = ExecutionPlan::create(&mut builder, &plan);
    let plans = builder.create_vector(&[plan]);
    let root = ProgramArgs { execution_plan: Some(plans), ..Default::default() };
    let root = Program::create(&mut builder, &root);
    builder.finish(root, Some("ET12"));
    builder.finished_data().to_vec()
}

/// Tables that are listed many times would expand to much more than the file size.
#[test]
fn shared_tables_cannot_unfold_without_limit() {
    for (chains, instructions, accepted) in [(1, 1, true), (1, 50, true), (1000, 10_000, false)] {
        let bytes = repeated(chains, instructions);
        let program = crate::Program::from_bytes(&bytes).unwrap();
        let meta = program.method_meta("forward").unwrap();
        assert_eq!(meta.instruction_count(), chains * instructions);
        // Rejected before anything is decoded, without memory for it.
        let tables = meta.table_bytes(&crate::Limits::default());
        assert_eq!(tables.is_ok(), accepted, "{chains} {instructions}");
    }
}
