//! Program builder for tests, for valid and invalid programs.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use torchlet_core::ScalarType;

#[allow(warnings, unsafe_op_in_unsafe_fn, reason = "generated code")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
#[rustfmt::skip]
#[path = "../readers_agree/generated/program_generated.rs"]
mod program_generated;
use program_generated::program as fb;

type Builder = FlatBufferBuilder<'static>;
type Union = Option<WIPOffset<UnionWIPOffset>>;

/// A tensor, by default float32 and not memory-planned.
#[derive(Clone)]
pub struct Tensor {
    scalar_type: ScalarType,
    sizes: Vec<i32>,
    dim_order: Vec<u8>,
    /// Memory id as in the file (0 is reserved), and offset.
    location: Option<(u32, u64)>,
    data: u32,
    dynamism: i8,
    name: Option<&'static str>,
}

/// Creates a float32 tensor.
pub fn tensor(sizes: &[i32]) -> Tensor {
    Tensor {
        scalar_type: ScalarType::Float,
        sizes: sizes.to_vec(),
        dim_order: (0..sizes.len() as u8).collect(),
        location: None,
        data: 0,
        dynamism: 0,
        name: None,
    }
}

impl Tensor {
    /// Places the tensor at an offset of planned buffer `buffer`, which counts from 0.
    pub fn at(mut self, buffer: u32, offset: u64) -> Self {
        self.location = Some((buffer + 1, offset));
        self
    }

    /// Sets the data: an index from [`Program::constant`]. Constant if the tensor is not
    /// memory-planned, otherwise its initial data.
    pub fn with_data(mut self, constant: u32) -> Self {
        self.data = constant;
        self
    }

    pub fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    pub fn dynamic(mut self) -> Self {
        self.dynamism = 1;
        self
    }

    /// Sets the dim order, outermost first.
    pub fn ordered(mut self, dim_order: &[u8]) -> Self {
        self.dim_order = dim_order.to_vec();
        self
    }

    pub fn of(mut self, scalar_type: ScalarType) -> Self {
        self.scalar_type = scalar_type;
        self
    }
}

/// A value in the file.
#[derive(Clone)]
pub enum Value {
    None,
    Int(i64),
    Bool(bool),
    Tensor(Tensor),
    IntList(Vec<i64>),
    /// An integer list whose table lacks the items.
    NoList,
    TensorList(Vec<i32>),
    String(String),
    /// Shares the table of an earlier value: two offsets in the file refer to it.
    Same(i32),
}

/// An instruction with operator names, delegate indices and value indices.
#[derive(Clone)]
pub enum Instruction {
    Kernel(&'static str, Vec<i32>),
    Delegate(usize, Vec<i32>),
    Move(i32, i32),
    JumpFalse(i32, i32),
    Free(i32),
}

/// Method builder.
#[derive(Clone)]
pub struct Method {
    name: &'static str,
    values: Vec<Value>,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
    pub instructions: Vec<Instruction>,
    pub planned: Vec<i64>,
    pub delegates: Vec<(&'static str, Vec<u8>)>,
}

impl Method {
    /// Creates a method with planned buffers of these sizes.
    pub fn new(name: &'static str, planned: &[i64]) -> Self {
        Method {
            name,
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            instructions: Vec::new(),
            planned: planned.to_vec(),
            delegates: Vec::new(),
        }
    }

    /// Adds a value and returns its index.
    pub fn value(&mut self, value: Value) -> i32 {
        self.values.push(value);
        self.values.len() as i32 - 1
    }

    pub fn tensor(&mut self, tensor: Tensor) -> i32 {
        self.value(Value::Tensor(tensor))
    }

    pub fn list(&mut self, items: &[i32]) -> i32 {
        self.value(Value::TensorList(items.to_vec()))
    }

    pub fn input(&mut self, tensor: Tensor) -> i32 {
        let index = self.tensor(tensor);
        self.inputs.push(index);
        index
    }

    pub fn call(&mut self, operator: &'static str, args: &[i32]) {
        self.instructions.push(Instruction::Kernel(operator, args.to_vec()));
    }

    pub fn then(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }
}

/// Program builder.
#[derive(Clone, Default)]
pub struct Program {
    pub methods: Vec<Method>,
    constants: Vec<Vec<u8>>,
}

impl Program {
    /// Adds data to the flatbuffer and returns its index.
    pub fn constant(&mut self, numbers: &[f32]) -> u32 {
        self.constants.push(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
        self.constants.len() as u32
    }

    /// File with a single method.
    pub fn of(method: Method) -> Vec<u8> {
        Program { methods: vec![method], constants: Vec::new() }.file()
    }

    /// Serialises the program.
    pub fn file(&self) -> Vec<u8> {
        // Large enough for most files; growing the buffer copies it.
        let mut builder = Builder::with_capacity(4096);
        let plans: Vec<_> = self.methods.iter().map(|method| plan(&mut builder, method)).collect();
        let plans = builder.create_vector(&plans);
        // Entry 0 means no data.
        let buffers: Vec<_> = core::iter::once(&Vec::new())
            .chain(&self.constants)
            .map(|bytes| {
                let storage = builder.create_vector(bytes);
                fb::Buffer::create(&mut builder, &fb::BufferArgs { storage: Some(storage) })
            })
            .collect();
        let buffers = builder.create_vector(&buffers);
        let data: Vec<_> = self.methods.iter().flat_map(|method| method.delegates.iter()).collect();
        let data: Vec<_> = data
            .iter()
            .map(|(_, bytes)| {
                let storage = builder.create_vector(bytes);
                fb::Buffer::create(&mut builder, &fb::BufferArgs { storage: Some(storage) })
            })
            .collect();
        let data = builder.create_vector(&data);
        let program = fb::ProgramArgs {
            execution_plan: Some(plans),
            constant_buffer: Some(buffers),
            backend_delegate_data: Some(data),
            ..Default::default()
        };
        let root = fb::Program::create(&mut builder, &program);
        builder.finish(root, Some("ET12"));
        builder.finished_data().to_vec()
    }
}

fn plan(b: &mut Builder, method: &Method) -> WIPOffset<fb::ExecutionPlan<'static>> {
    let mut values: Vec<WIPOffset<fb::EValue<'static>>> = Vec::new();
    for value in &method.values {
        values.push(match value {
            Value::Same(index) => values[*index as usize],
            value => evalue(b, value),
        });
    }
    let mut operators: Vec<&str> = Vec::new();
    for instruction in &method.instructions {
        if let Instruction::Kernel(name, _) = instruction
            && !operators.contains(name)
        {
            operators.push(name);
        }
    }
    let instructions: Vec<_> = method
        .instructions
        .iter()
        .map(|instruction| {
            let (kind, args) = instruction_args(b, instruction, &operators);
            let args = fb::InstructionArgs { instr_args_type: kind, instr_args: args };
            fb::Instruction::create(b, &args)
        })
        .collect();
    let instructions = Some(b.create_vector(&instructions));
    let chain = fb::Chain::create(b, &fb::ChainArgs { instructions });
    let operators: Vec<_> = operators
        .iter()
        .map(|name| {
            let name = Some(b.create_string(name));
            fb::Operator::create(b, &fb::OperatorArgs { name, overload: None })
        })
        .collect();
    let delegates: Vec<_> = method
        .delegates
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let id = Some(b.create_shared_string(name));
            let reference =
                fb::DelegateDataReferenceArgs { index: index as u32, ..Default::default() };
            let processed = Some(fb::DelegateDataReference::create(b, &reference));
            let args = fb::BackendDelegateArgs { id, processed, compile_specs: None };
            fb::BackendDelegate::create(b, &args)
        })
        .collect();
    let sizes: Vec<i64> = core::iter::once(0).chain(method.planned.iter().copied()).collect();
    let args = fb::ExecutionPlanArgs {
        name: Some(b.create_string(method.name)),
        values: Some(b.create_vector(&values)),
        inputs: Some(b.create_vector(&method.inputs)),
        outputs: Some(b.create_vector(&method.outputs)),
        chains: Some(b.create_vector(&[chain])),
        operators: Some(b.create_vector(&operators)),
        delegates: Some(b.create_vector(&delegates)),
        non_const_buffer_sizes: Some(b.create_vector(&sizes)),
    };
    fb::ExecutionPlan::create(b, &args)
}

fn evalue(b: &mut Builder, value: &Value) -> WIPOffset<fb::EValue<'static>> {
    use fb::KernelTypes as Kind;
    let (val_type, val): (Kind, Union) = match value {
        Value::None => (Kind::Null, Some(fb::Null::create(b, &fb::NullArgs {}).as_union_value())),
        Value::Int(number) => {
            let int = fb::Int::create(b, &fb::IntArgs { value: *number });
            (Kind::Int, Some(int.as_union_value()))
        }
        Value::Bool(truth) => {
            let truth = fb::Bool::create(b, &fb::BoolArgs { value: *truth });
            (Kind::Bool, Some(truth.as_union_value()))
        }
        Value::IntList(items) => {
            let items = Some(b.create_vector(items));
            let list = fb::IntList::create(b, &fb::IntListArgs { items });
            (Kind::IntList, Some(list.as_union_value()))
        }
        Value::NoList => {
            let list = fb::IntList::create(b, &fb::IntListArgs { items: None });
            (Kind::IntList, Some(list.as_union_value()))
        }
        Value::TensorList(items) => {
            let items = Some(b.create_vector(items));
            let list = fb::TensorList::create(b, &fb::TensorListArgs { items });
            (Kind::TensorList, Some(list.as_union_value()))
        }
        Value::String(text) => {
            let value = Some(b.create_string(text));
            let text = fb::String::create(b, &fb::StringArgs { value });
            (Kind::String, Some(text.as_union_value()))
        }
        Value::Same(_) => unreachable!("the table is there"),
        Value::Tensor(tensor) => (Kind::Tensor, Some(tensor_table(b, tensor).as_union_value())),
    };
    fb::EValue::create(b, &fb::EValueArgs { val_type, val })
}

fn tensor_table(b: &mut Builder, tensor: &Tensor) -> WIPOffset<fb::Tensor<'static>> {
    let allocation_info = tensor.location.map(|(memory_id, offset)| {
        let args = fb::AllocationDetailsArgs {
            memory_id,
            memory_offset_low: offset as u32,
            memory_offset_high: (offset >> 32) as u32,
        };
        fb::AllocationDetails::create(b, &args)
    });
    let extra_tensor_info = tensor.name.map(|name| {
        let fully_qualified_name = Some(b.create_string(name));
        let args = fb::ExtraTensorInfoArgs { fully_qualified_name, ..Default::default() };
        fb::ExtraTensorInfo::create(b, &args)
    });
    let args = fb::TensorArgs {
        scalar_type: tensor.scalar_type as i8,
        sizes: Some(b.create_vector(&tensor.sizes)),
        dim_order: Some(b.create_vector(&tensor.dim_order)),
        data_buffer_idx: tensor.data,
        allocation_info,
        shape_dynamism: tensor.dynamism,
        extra_tensor_info,
        ..Default::default()
    };
    fb::Tensor::create(b, &args)
}

fn instruction_args(
    b: &mut Builder,
    instruction: &Instruction,
    operators: &[&str],
) -> (fb::InstructionArguments, Union) {
    use fb::InstructionArguments as Kind;
    match instruction {
        Instruction::Kernel(name, args) => {
            let op_index = operators.iter().position(|other| other == name).unwrap() as i32;
            let args = Some(b.create_vector(args));
            let call = fb::KernelCall::create(b, &fb::KernelCallArgs { op_index, args });
            (Kind::KernelCall, Some(call.as_union_value()))
        }
        Instruction::Delegate(index, args) => {
            let args = Some(b.create_vector(args));
            let args = fb::DelegateCallArgs { delegate_index: *index as i32, args };
            (Kind::DelegateCall, Some(fb::DelegateCall::create(b, &args).as_union_value()))
        }
        Instruction::Move(from, to) => {
            let args = fb::MoveCallArgs { move_from: *from, move_to: *to };
            (Kind::MoveCall, Some(fb::MoveCall::create(b, &args).as_union_value()))
        }
        Instruction::JumpFalse(condition, destination) => {
            let args = fb::JumpFalseCallArgs {
                cond_value_index: *condition,
                destination_instruction: *destination,
            };
            (Kind::JumpFalseCall, Some(fb::JumpFalseCall::create(b, &args).as_union_value()))
        }
        Instruction::Free(value) => {
            let args = fb::FreeCallArgs { value_index: *value };
            (Kind::FreeCall, Some(fb::FreeCall::create(b, &args).as_union_value()))
        }
    }
}
