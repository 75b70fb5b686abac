//! The parts of `torch/_export/serde/schema.py` that the front end reads.
//!
//! Unknown fields are ignored, since minor versions of the schema add fields. An unknown variant of
//! an argument is an error that names the variant.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny};
use serde_json::Value;

/// A string, borrowed from the JSON text unless it has escapes.
pub(super) type Text<'a> = Cow<'a, str>;

#[derive(Deserialize)]
pub(super) struct ExportedProgram<'a> {
    #[serde(borrow)]
    pub(super) graph_module: GraphModule<'a>,
    #[serde(borrow, default)]
    pub(super) range_constraints: BTreeMap<Text<'a>, RangeConstraint>,
    /// Conditions on the inputs, in Python. Earlier versions lack them.
    #[serde(borrow, default)]
    pub(super) guards_code: Vec<Text<'a>>,
    pub(super) schema_version: Version,
}

/// The version alone, for files whose other fields have changed.
#[derive(Deserialize)]
pub(super) struct Versioned {
    pub(super) schema_version: Version,
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
}

#[derive(Deserialize)]
pub(super) struct RangeConstraint {
    pub(super) min_val: Option<i64>,
    pub(super) max_val: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct GraphModule<'a> {
    #[serde(borrow)]
    pub(super) graph: Graph<'a>,
    #[serde(borrow)]
    pub(super) signature: Signature<'a>,
}

#[derive(Deserialize)]
pub(super) struct Graph<'a> {
    #[serde(borrow)]
    pub(super) inputs: Vec<Argument<'a>>,
    #[serde(borrow)]
    pub(super) outputs: Vec<Argument<'a>>,
    #[serde(borrow)]
    pub(super) nodes: Vec<Node<'a>>,
    #[serde(borrow)]
    pub(super) tensor_values: BTreeMap<Text<'a>, TensorMeta<'a>>,
    #[serde(borrow, default)]
    pub(super) sym_int_values: BTreeMap<Text<'a>, SymInt<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Node<'a> {
    #[serde(borrow)]
    pub(super) target: Text<'a>,
    #[serde(borrow)]
    pub(super) inputs: Vec<NamedArgument<'a>>,
    #[serde(borrow)]
    pub(super) outputs: Vec<Argument<'a>>,
}

#[derive(Deserialize)]
pub(super) struct NamedArgument<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arg: Argument<'a>,
    #[serde(default)]
    pub(super) kind: Option<u8>,
}

/// Value of [`NamedArgument::kind`] for arguments that are passed by name.
pub(super) const KEYWORD: u8 = 2;

#[derive(Deserialize)]
pub(super) struct TensorMeta<'a> {
    pub(super) dtype: u8,
    #[serde(borrow)]
    pub(super) sizes: Vec<SymInt<'a>>,
    #[serde(borrow)]
    pub(super) strides: Vec<SymInt<'a>>,
    #[serde(borrow)]
    pub(super) storage_offset: SymInt<'a>,
    pub(super) layout: u8,
}

#[derive(Deserialize)]
pub(super) enum SymInt<'a> {
    #[serde(rename = "as_expr", borrow)]
    Expr(SymExpr<'a>),
    #[serde(rename = "as_int")]
    Int(i64),
}

#[derive(Deserialize)]
pub(super) struct SymExpr<'a> {
    #[serde(borrow)]
    pub(super) expr_str: Text<'a>,
    #[serde(default)]
    pub(super) hint: Option<Hint>,
}

#[derive(Deserialize)]
pub(super) enum Hint {
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_bool")]
    Bool(IgnoredAny),
    #[serde(rename = "as_float")]
    Float(IgnoredAny),
}

#[derive(Deserialize)]
pub(super) struct Name<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
}

#[derive(Deserialize)]
pub(super) enum SymIntArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_int")]
    Int(i64),
}

#[derive(Deserialize)]
pub(super) enum OptionalTensor<'a> {
    #[serde(rename = "as_tensor", borrow)]
    Tensor(Name<'a>),
    #[serde(rename = "as_none")]
    None(IgnoredAny),
}

#[derive(Deserialize)]
pub(super) enum SymFloatArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_float")]
    Float(Float),
}

#[derive(Deserialize)]
pub(super) enum SymBoolArgument<'a> {
    #[serde(rename = "as_name", borrow)]
    Name(Text<'a>),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

#[derive(Deserialize)]
pub(super) struct GraphArgument<'a> {
    #[serde(borrow)]
    pub(super) graph: Box<Graph<'a>>,
}

/// Argument of a node, or input or output of a graph.
#[derive(Deserialize)]
pub(super) enum Argument<'a> {
    #[serde(rename = "as_none")]
    None(IgnoredAny),
    #[serde(rename = "as_tensor", borrow)]
    Tensor(Name<'a>),
    #[serde(rename = "as_tensors", borrow)]
    Tensors(Vec<Name<'a>>),
    #[serde(rename = "as_optional_tensor", borrow)]
    OptionalTensor(OptionalTensor<'a>),
    #[serde(rename = "as_optional_tensors", borrow)]
    OptionalTensors(Vec<OptionalTensor<'a>>),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_ints")]
    Ints(Vec<i64>),
    #[serde(rename = "as_float")]
    Float(Float),
    #[serde(rename = "as_floats")]
    Floats(Vec<Float>),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_bools")]
    Bools(Vec<bool>),
    #[serde(rename = "as_string", borrow)]
    String(Text<'a>),
    #[serde(rename = "as_sym_int", borrow)]
    SymInt(SymIntArgument<'a>),
    #[serde(rename = "as_sym_ints", borrow)]
    SymInts(Vec<SymIntArgument<'a>>),
    #[serde(rename = "as_sym_float", borrow)]
    SymFloat(SymFloatArgument<'a>),
    #[serde(rename = "as_sym_bool", borrow)]
    SymBool(SymBoolArgument<'a>),
    #[serde(rename = "as_scalar_type")]
    ScalarType(u8),
    #[serde(rename = "as_memory_format")]
    MemoryFormat(IgnoredAny),
    #[serde(rename = "as_layout")]
    Layout(u8),
    #[serde(rename = "as_device")]
    Device(IgnoredAny),
    #[serde(rename = "as_graph", borrow)]
    Graph(GraphArgument<'a>),
    #[serde(rename = "as_custom_obj")]
    CustomObj(IgnoredAny),
    #[serde(rename = "as_operator")]
    Operator(IgnoredAny),
    #[serde(rename = "as_strings")]
    Strings(IgnoredAny),
    #[serde(rename = "as_sym_bools")]
    SymBools(IgnoredAny),
    #[serde(rename = "as_sym_floats")]
    SymFloats(IgnoredAny),
    #[serde(rename = "as_complex")]
    Complex(IgnoredAny),
    #[serde(rename = "as_nested_tensors")]
    NestedTensors(IgnoredAny),
    #[serde(rename = "as_int_lists")]
    IntLists(IgnoredAny),
    #[serde(rename = "as_float_lists")]
    FloatLists(IgnoredAny),
    #[serde(rename = "as_string_to_argument")]
    Dictionary(IgnoredAny),
}

impl Argument<'_> {
    /// Name of the variant, for error messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Argument::None(_) => "None",
            Argument::Tensor(_) => "a tensor",
            Argument::Tensors(_) => "a list of tensors",
            Argument::OptionalTensor(_) => "an optional tensor",
            Argument::OptionalTensors(_) => "a list of optional tensors",
            Argument::Int(_) => "an integer",
            Argument::Ints(_) => "a list of integers",
            Argument::Float(_) => "a float",
            Argument::Floats(_) => "a list of floats",
            Argument::Bool(_) => "a boolean",
            Argument::Bools(_) => "a list of booleans",
            Argument::String(_) => "a string",
            Argument::SymInt(_) => "a symbolic integer",
            Argument::SymInts(_) => "a list of symbolic integers",
            Argument::SymFloat(_) => "a symbolic float",
            Argument::SymBool(_) => "a symbolic boolean",
            Argument::ScalarType(_) => "a dtype",
            Argument::MemoryFormat(_) => "a memory format",
            Argument::Layout(_) => "a layout",
            Argument::Device(_) => "a device",
            Argument::Graph(_) => "a graph",
            Argument::CustomObj(_) => "a custom object",
            Argument::Operator(_) => "an operator",
            Argument::Strings(_) => "a list of strings",
            Argument::SymBools(_) => "a list of symbolic booleans",
            Argument::SymFloats(_) => "a list of symbolic floats",
            Argument::Complex(_) => "a complex number",
            Argument::NestedTensors(_) => "a list of lists of tensors",
            Argument::IntLists(_) => "a list of lists of integers",
            Argument::FloatLists(_) => "a list of lists of floats",
            Argument::Dictionary(_) => "a dictionary",
        }
    }
}

/// A float. JSON has no infinities and NaN, so PyTorch writes those as strings.
#[derive(Clone, Copy)]
pub(super) struct Float(pub(super) f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Only `Value` reads numbers whatever the features of `serde_json`: with
        // `arbitrary_precision`, other types that accept text or numbers get a map.
        let value = Value::deserialize(deserializer)?;
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                "NaN" => Some(f64::NAN),
                _ => None,
            },
            _ => None,
        };
        let expected = "expected a number, \"Infinity\", \"-Infinity\" or \"NaN\"";
        number.map(Float).ok_or_else(|| de::Error::custom(expected))
    }
}

#[derive(Deserialize)]
pub(super) struct Signature<'a> {
    #[serde(borrow)]
    pub(super) input_specs: Vec<InputSpec<'a>>,
    #[serde(borrow)]
    pub(super) output_specs: Vec<OutputSpec<'a>>,
}

#[derive(Deserialize)]
pub(super) enum InputSpec<'a> {
    #[serde(rename = "user_input", borrow)]
    User(UserInput<'a>),
    #[serde(rename = "parameter", borrow)]
    Parameter(ParameterInput<'a>),
    #[serde(rename = "buffer", borrow)]
    Buffer(BufferInput<'a>),
    #[serde(rename = "tensor_constant", borrow)]
    Constant(ConstantTensor<'a>),
    #[serde(rename = "custom_obj")]
    CustomObj(IgnoredAny),
    #[serde(rename = "token")]
    Token(IgnoredAny),
    #[serde(rename = "constant_input")]
    Fixed(IgnoredAny),
}

#[derive(Deserialize)]
pub(super) struct UserInput<'a> {
    #[serde(borrow)]
    pub(super) arg: Argument<'a>,
}

#[derive(Deserialize)]
pub(super) struct ParameterInput<'a> {
    #[serde(borrow)]
    pub(super) arg: Name<'a>,
    #[serde(borrow)]
    pub(super) parameter_name: Text<'a>,
}

#[derive(Deserialize)]
pub(super) struct BufferInput<'a> {
    #[serde(borrow)]
    pub(super) arg: Name<'a>,
    #[serde(borrow)]
    pub(super) buffer_name: Text<'a>,
}

#[derive(Deserialize)]
pub(super) struct ConstantTensor<'a> {
    #[serde(borrow)]
    pub(super) arg: Name<'a>,
    #[serde(borrow)]
    pub(super) tensor_constant_name: Text<'a>,
}

#[derive(Deserialize)]
pub(super) enum OutputSpec<'a> {
    #[serde(rename = "user_output")]
    User(IgnoredAny),
    #[serde(rename = "loss_output")]
    Loss(IgnoredAny),
    #[serde(rename = "buffer_mutation", borrow)]
    Buffer(BufferInput<'a>),
    #[serde(rename = "parameter_mutation", borrow)]
    Parameter(ParameterInput<'a>),
    #[serde(rename = "user_input_mutation", borrow)]
    Input(InputMutation<'a>),
    #[serde(rename = "gradient_to_parameter")]
    ParameterGradient(IgnoredAny),
    #[serde(rename = "gradient_to_user_input")]
    InputGradient(IgnoredAny),
    #[serde(rename = "token")]
    Token(IgnoredAny),
}

#[derive(Deserialize)]
pub(super) struct InputMutation<'a> {
    #[serde(borrow)]
    pub(super) user_input_name: Text<'a>,
}

/// `model_weights_config.json` and `model_constants_config.json`.
#[derive(Deserialize)]
pub(super) struct Payloads<'a> {
    #[serde(borrow)]
    pub(super) config: BTreeMap<Text<'a>, Payload<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(borrow)]
    pub(super) path_name: Text<'a>,
    #[serde(default)]
    pub(super) use_pickle: bool,
    #[serde(borrow, default)]
    pub(super) tensor_meta: Option<TensorMeta<'a>>,
}
