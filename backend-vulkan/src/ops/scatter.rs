//! Operators that send elements where index tensors say.

use super::{Entry, check_looks, operator};
use crate::derived::{Derived, Number};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::scatter;
use torchlet_shaders::{Element, Scatter, ScatterPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SCATTER_SRC, |e, args| {
        let source = e.tensor(e.arg(args, 3)?)?;
        send(e, args, &source, false, scatter::REPLACE)
    }),
    operator(Operator::SCATTER_VALUE, |e, args| {
        let (number, out) = (e.float(e.arg(args, 3)?)?, e.out(args)?);
        let number = match out.element.is_floating() {
            true => Number::Float((number as f32).to_bits()),
            false if number == f64::from(number as i32) => Number::Int(number as i32),
            false => return Err(Error::unsupported("a number that integers are not")),
        };
        let source = e.derived(Derived::Number(number))?;
        send(e, args, &source, true, scatter::REPLACE)
    }),
    operator(Operator::SCATTER_ADD, |e, args| {
        let source = e.tensor(e.arg(args, 3)?)?;
        send(e, args, &source, false, scatter::ADD)
    }),
    operator(Operator::SCATTER_REDUCE_TWO, |e, args| {
        let source = e.tensor(e.arg(args, 3)?)?;
        let function = match e.optional_string(e.arg(args, 4)?)? {
            Some("sum") => scatter::ADD,
            Some("prod") => scatter::MULTIPLY,
            Some("amax") => scatter::LARGEST,
            Some("amin") => scatter::SMALLEST,
            _ => return Err(Error::unsupported("another mean of what goes to an element")),
        };
        if args.len() > 6 && !e.bool(args[5])? {
            return Err(Error::unsupported("elements that go where nothing was"));
        }
        send(e, args, &source, false, function)
    }),
];

/// As many indices as each output looks through, at most.
const MOST_INDICES: usize = 1 << 12;

fn send(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    source: &Operand,
    one_source: bool,
    function: u32,
) -> Result<(), Error> {
    let (input, index) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 2)?)?);
    let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
    // Of shapes that change from run to run, nobody knows whether they change alike.
    if [&input, &index, source].into_iter().any(|tensor| e.is_dynamic(tensor)) {
        return Err(Error::unsupported("indices or elements of shapes that vary"));
    }
    let alike = |other: &Operand| {
        other.rank() == input.rank()
            && (0..input.rank()).all(|place| place == dim || other.size(place) == input.size(place))
    };
    if index.element != Element::I32 || !alike(&index) {
        let (element, index, input) = (index.element, &index.sizes, &input.sizes);
        return Err(Error::unsupported(format!(
            "indices {element:?} of shape {index:?} to {input:?}"
        )));
    }
    if !one_source && source.sizes != index.sizes {
        let (source, index) = (&source.sizes, &index.sizes);
        return Err(Error::unsupported(format!("elements of {source:?} by indices {index:?}")));
    }
    let indices = index.size(dim);
    if indices > MOST_INDICES {
        return Err(Error::unsupported(format!("more than {MOST_INDICES} indices")));
    }
    check_looks(input.numel(), indices)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let push = ScatterPush {
        numel: u32_of(out.numel())?,
        size: u32_of(input.size(dim))?,
        count: u32_of(index.size(dim))?,
        inner: u32_of(input.sizes.iter().skip(dim + 1).product())?,
    };
    u32_of(index.numel())?;
    let pipeline = Scatter {
        function,
        input: input.element,
        source: source.element,
        output: out.element,
        one_source,
    };
    let accesses = [read(input.id), read(index.id), read(source.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}
