//! Recurrent layers: all steps over a sequence in one dispatch.
//!
//! [`crate::passes`] makes calls of `torchlet.recurrent` of the steps that exporters write one after the other. What the inputs are
//! multiplied with stays a product of its own, of all steps at once. A workgroup takes a row of the batch through all of them, and reads the
//! weights of the state anew in each, unless they are few: so they are small, or several workgroups at each step are faster.

use super::weights::transposed;
use super::{Entry, operator};
use crate::derived::Matrices;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::recurrent;
use torchlet_shaders::{Recurrent, RecurrentPush};

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::RECURRENT, encode)];

/// The elements of a state at most: each has an invocation of its own.
const MOST_HIDDEN: usize = 256;

/// The loads of an invocation in a step, at most. On an NVIDIA H200, one takes 53 ns, and a step by dispatches of its own 7 to 9 µs: two layers of
/// GRU cells of 256 halves, 50 steps, took 1.41 ms in workgroups, and take 0.87 so (in `float32`).
const MOST_LOADS: usize = 128;

/// The weights that an invocation keeps, at most.
const MOST_KEPT: usize = 64;

/// A recurrent layer, by what follows from one step to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

impl Cell {
    const ALL: [Self; 4] = [Self::Lstm, Self::Gru, Self::Tanh, Self::Relu];

    /// Its number in the shader.
    pub(crate) fn number(self) -> u32 {
        match self {
            Cell::Lstm => recurrent::LSTM,
            Cell::Gru => recurrent::GRU,
            Cell::Tanh => recurrent::TANH_CELL,
            Cell::Relu => recurrent::RELU_CELL,
        }
    }

    /// The products of an element of the state.
    pub(crate) fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }
}

/// The rows of a batch at most, each of which reads the weights for itself: more of them keep a device busy with a step at a time.
const MOST_ROWS: usize = 256;

/// Whether one workgroup should take all steps of each row: so many rows, states of so many elements, so many products for each of these.
pub(crate) fn recurs(rows: usize, hidden: usize, gates: usize) -> bool {
    rows <= MOST_ROWS
        && (1..=MOST_HIDDEN).contains(&hidden)
        && Shares::of(hidden, gates).loads(hidden, gates) <= MOST_LOADS
}

/// How the invocations of a workgroup share the products of a step.
#[derive(Debug, Clone, Copy)]
struct Shares {
    lanes: usize,
    /// The weights that an invocation keeps, or 1: then it reads them in each step, those of four products at a time.
    kept: usize,
    /// How many invocations share four products.
    parts: usize,
}

impl Shares {
    fn of(hidden: usize, gates: usize) -> Self {
        let sums = gates * hidden;
        let lanes = sums.next_multiple_of(32).clamp(1, MOST_HIDDEN);
        let kept = hidden * sums.div_ceil(lanes);
        if kept <= MOST_KEPT {
            return Shares { lanes, kept, parts: 1 };
        }
        Shares { lanes: MOST_HIDDEN, kept: 1, parts: (MOST_HIDDEN / sums.div_ceil(4)).max(1) }
    }

    /// What an invocation reads in a step.
    fn loads(self, hidden: usize, gates: usize) -> usize {
        let turns = ((gates * hidden).div_ceil(4) * self.parts).div_ceil(self.lanes);
        if self.kept > 1 { 0 } else { hidden.div_ceil(self.parts) * turns }
    }
}

/// The places of steps among rows: of the first, and from one to the next.
#[derive(Debug, Clone, Copy)]
struct Places {
    first: i32,
    next: i32,
}

impl Places {
    /// Those of two arguments, all of which lie among `count`.
    fn of(
        e: &Encoder<'_, '_>,
        args: &[ValueId],
        at: usize,
        steps: usize,
        count: usize,
    ) -> Result<Self, Error> {
        let [first, next] = [e.int(e.arg(args, at)?)?, e.int(e.arg(args, at + 1)?)?];
        let outside = || Error::Invalid(format!("steps from {first} on, each {next} further"));
        let steps = i64::try_from(steps).map_err(|_| outside())?;
        let last = next.checked_mul(steps - 1).and_then(|rest| first.checked_add(rest));
        let last = last.ok_or_else(outside)?;
        let inside = |place: i64| usize::try_from(place).is_ok_and(|place| place < count);
        if !inside(first) || !inside(last) {
            return Err(outside());
        }
        let narrow = |place: i64| i32::try_from(place).map_err(|_| outside());
        Ok(Places { first: narrow(first)?, next: narrow(next)? })
    }
}

/// Inputs times weights, the state and the cell's state before, the state's weights and their bias; the cell, how many steps there are, their
/// places among the inputs and among the results; then the states, or these and the cell's last.
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let [x, h, w] = [0, 1, 3].map(|at| e.arg(args, at).and_then(|id| e.tensor(id)));
    let (x, h, w) = (x?, h?, w?);
    let c = e.optional_tensor(e.arg(args, 2)?)?;
    let bias = e.optional_tensor(e.arg(args, 4)?)?;
    let cell = e.int(e.arg(args, 5)?)?;
    let cell = Cell::ALL.into_iter().find(|it| i64::from(it.number()) == cell);
    let cell = cell.ok_or_else(|| Error::invalid("there is no such recurrent cell"))?;
    let steps = usize::try_from(e.int(e.arg(args, 6)?)?).unwrap_or(0);
    let (out, last) = match e.outs(args)?[..] {
        [out] => (out, None),
        [out, last] if cell == Cell::Lstm => (out, Some(last)),
        _ => {
            return Err(Error::invalid("a recurrent layer has states, and a last one of its cell"));
        }
    };

    let gates = cell.gates();
    let misfit = || Error::invalid("the tensors of a recurrent layer do not fit one another");
    let (hidden, rows) = match (&w.sizes[..], &h.sizes[..]) {
        ([outputs, hidden], [1, rows, width])
            if hidden == width && Some(*outputs) == hidden.checked_mul(gates) =>
        {
            (*hidden, *rows)
        }
        _ => return Err(misfit()),
    };
    let others = [Some(&x), Some(&h), Some(&w), c.as_ref(), bias.as_ref()];
    let floats = others.into_iter().flatten().all(|operand| operand.element.is_floating());
    let fits = floats
        && c.as_ref().is_none_or(|c| c.sizes == h.sizes && c.element == h.element)
        && c.is_some() == (cell == Cell::Lstm)
        && bias.as_ref().is_none_or(|bias| bias.sizes == [gates * hidden])
        && hidden <= MOST_HIDDEN
        && steps > 0;
    let count = match x.sizes[..] {
        [count, of, width] if of == rows && width == gates * hidden => count,
        _ => return Err(misfit()),
    };
    let places = match e.tensor(out)?.sizes[..] {
        [places, _, width] if width == hidden && fits => places,
        _ => return Err(misfit()),
    };
    let from = Places::of(e, args, 7, steps, count)?;
    let to = Places::of(e, args, 9, steps, places)?;
    let out = e.resize(out, &[places, rows, hidden])?;
    let last = last.map(|last| e.resize(last, &[1, rows, hidden])).transpose()?;
    if !out.element.is_floating() || last.as_ref().is_some_and(|it| it.element != out.element) {
        return Err(misfit());
    }
    if rows == 0 || hidden == 0 {
        return Ok(());
    }

    let w = transposed(e, &w, Matrices { count: 1, rows: gates * hidden, columns: hidden })?;
    let Shares { lanes, kept, parts } = Shares::of(hidden, gates);
    let pipeline = Recurrent {
        cell: cell.number(),
        input: x.element,
        state: h.element,
        weight: w.element,
        bias: bias.as_ref().map_or(w.element, |bias| bias.element),
        output: out.element,
        has_bias: bias.is_some(),
        hidden: u32_of(hidden)?,
        sums: u32_of((gates * hidden).div_ceil(lanes))?,
        kept: u32_of(kept)?,
        keeps_cell: last.is_some(),
        parts: u32_of(parts)?,
    };
    let push = RecurrentPush {
        batch: u32_of(rows)?,
        steps: u32_of(steps)?,
        pitch: u32_of(w.size(2))?,
        first_in: from.first,
        next_in: from.next,
        first_out: to.first,
        next_out: to.next,
    };
    let id = |operand: &Option<Operand>, or: &Operand| operand.as_ref().unwrap_or(or).id;
    let accesses = [
        read(x.id),
        read(h.id),
        read(id(&c, &h)),
        read(w.id),
        read(id(&bias, &w)),
        write(out.id),
        // Counts as written, although nothing is where nobody asks for it.
        write(id(&last, &out)),
    ];
    e.dispatch_along_y(&pipeline, accesses, &push, [lanes, rows], [u32_of(lanes)?, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_workgroup_takes_small_weights() {
        let [lstm, gru, plain] = [4, 3, 1].map(|gates| move |hidden| recurs(1, hidden, gates));
        assert!(lstm(1) && lstm(128) && gru(128) && plain(256));
        assert!(!lstm(0) && !lstm(192) && !gru(256));
        assert!(!recurs(1, MOST_HIDDEN + 1, 1) && !recurs(MOST_ROWS + 1, 8, 1));
    }

    #[test]
    fn all_products_of_a_step_are_shared_out() {
        for gates in [1, 3, 4] {
            for hidden in 1..=MOST_HIDDEN {
                let shares = Shares::of(hidden, gates);
                let quads = (gates * hidden).div_ceil(4);
                assert!(hidden <= shares.lanes && shares.lanes <= MOST_HIDDEN);
                assert!(
                    shares.kept > 1 || shares.parts == 1 || quads * shares.parts <= shares.lanes
                );
                assert!(shares.kept <= MOST_KEPT);
            }
        }
    }
}
