//! Recurrent layers: all steps of a sequence in one dispatch, or one dispatch per step.
//!
//! [`crate::passes`] fuses the unrolled steps into calls of `torchlet.recurrent`. A separate GEMM
//! computes the input projection of all steps. For small states, one workgroup computes all steps
//! of a batch row. It reads the recurrent weights in every step, unless they fit into registers.
//! For larger states, several workgroups divide each step.

use super::weights::transposed;
use super::{Entry, operator};
use crate::derived::Matrices;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{Operator, RecurrentArgs};
use torchlet_shaders::functions::recurrent;
use torchlet_shaders::{Element, Recurrent, RecurrentPush, RecurrentStep, RecurrentStepPush};

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::RECURRENT, encode)];

/// The maximum state size, since each element has its own invocation.
const MAX_HIDDEN: usize = 256;

/// The maximum number of loads per invocation and step for one workgroup. With more loads, a step
/// in one workgroup lasts longer than in many workgroups.
const MAX_LOADS: usize = 56;

/// The maximum number of loads if the layer cannot be divided among many workgroups. One workgroup
/// is then still faster than separate GEMMs and cells, at 7 to 9 µs per step.
const MAX_LOADS_FOR_ALL: usize = 128;

/// The maximum number of weights that an invocation keeps in registers.
const MAX_CACHED: usize = 64;

/// The cell type of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

impl Cell {
    const ALL: [Self; 4] = [Self::Lstm, Self::Gru, Self::Tanh, Self::Relu];

    /// Returns the shader's code of the cell type.
    pub(crate) fn number(self) -> u32 {
        match self {
            Cell::Lstm => recurrent::LSTM,
            Cell::Gru => recurrent::GRU,
            Cell::Tanh => recurrent::TANH_CELL,
            Cell::Relu => recurrent::RELU_CELL,
        }
    }

    /// Returns the number of gates, that is, dot products per element of the state.
    pub(crate) fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }
}

/// The maximum number of batch rows for one workgroup per row, because each workgroup reads all
/// weights. With more rows, separate steps keep the device busy.
const MAX_ROWS: usize = 256;

/// The maximum number of batch rows for steps with many workgroups, because all weights are read
/// for each row.
const MAX_ROWS_OF_STEPS: usize = 16;

/// The maximum number of steps of a layer, each of which may be a dispatch. No known exported
/// program has more steps.
pub(crate) const MAX_STEPS: usize = 1 << 16;

/// For steps with many workgroups: invocations per workgroup, and the number of state elements that
/// a workgroup computes.
const STEP_WORKGROUP: usize = 256;
const STEP_ELEMENTS: usize = 8;

/// The division of a layer into dispatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One dispatch, in which one workgroup computes all steps of a batch row.
    Rows,
    /// One dispatch per step, with many workgroups.
    Steps,
}

fn way(rows: usize, hidden: usize, gates: usize) -> Option<Way> {
    let fits = (1..=MAX_HIDDEN).contains(&hidden) && rows <= MAX_ROWS;
    let loads = if fits { Shares::of(hidden, gates).loads(hidden, gates) } else { usize::MAX };
    let in_steps = hidden > 0 && hidden.is_multiple_of(4) && rows <= MAX_ROWS_OF_STEPS;
    let most = if in_steps { MAX_LOADS } else { MAX_LOADS_FOR_ALL };
    match loads <= most {
        true => Some(Way::Rows),
        false => in_steps.then_some(Way::Steps),
    }
}

/// Whether a layer of this size should be fused into one call; otherwise, the steps stay separate
/// calls.
pub(crate) fn recurs(rows: usize, hidden: usize, gates: usize) -> bool {
    way(rows, hidden, gates).is_some()
}

/// The division of a step's dot products among the invocations of a workgroup.
#[derive(Debug, Clone, Copy)]
struct Shares {
    lanes: usize,
    /// The number of weights that an invocation keeps in registers. If it is 1, the weights are
    /// read in each step, for four dot products at a time.
    kept: usize,
    /// The number of invocations that share four dot products.
    parts: usize,
}

impl Shares {
    fn of(hidden: usize, gates: usize) -> Self {
        let sums = gates * hidden;
        let lanes = sums.next_multiple_of(32).clamp(1, MAX_HIDDEN);
        let kept = hidden * sums.div_ceil(lanes);
        if kept <= MAX_CACHED {
            return Shares { lanes, kept, parts: 1 };
        }
        Shares { lanes: MAX_HIDDEN, kept: 1, parts: (MAX_HIDDEN / sums.div_ceil(4)).max(1) }
    }

    /// Returns the number of loads per invocation and step.
    fn loads(self, hidden: usize, gates: usize) -> usize {
        let turns = ((gates * hidden).div_ceil(4) * self.parts).div_ceil(self.lanes);
        if self.kept > 1 { 0 } else { hidden.div_ceil(self.parts) * turns }
    }
}

/// The row of each step in a tensor: that of the first step, and the distance from one step to the
/// next.
#[derive(Debug, Clone, Copy)]
struct Places {
    first: i32,
    next: i32,
}

impl Places {
    /// Parses the rows from two arguments, and checks that they are below `count`.
    fn of(
        e: &Encoder<'_, '_>,
        [first, next]: [ValueId; 2],
        steps: usize,
        count: usize,
    ) -> Result<Self, Error> {
        let [first, next] = [e.int(first)?, e.int(next)?];
        let outside = || {
            Error::Invalid(format!(
                "{steps} steps from {first} with stride {next} exceed a sequence of {count} steps"
            ))
        };
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

    /// Returns the row of a step.
    fn at(self, step: usize) -> Result<u32, Error> {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let place = i64::from(self.next).checked_mul(step);
        let place = place.and_then(|far| far.checked_add(i64::from(self.first)));
        place.and_then(|place| u32::try_from(place).ok()).ok_or_else(|| {
            Error::Invalid(format!("internal error: the position of step {step} exceeds 32 bits"))
        })
    }
}

/// The arguments of a layer, whose shapes were checked.
struct Layer {
    cell: Cell,
    /// The input projection of all steps.
    x: Operand,
    /// The initial hidden state and the initial cell state.
    h: Operand,
    c: Option<Operand>,
    w: Operand,
    bias: Option<Operand>,
    steps: usize,
    from: Places,
    to: Places,
    /// The hidden states, and the last cell state if it is an output.
    out: Operand,
    last: Option<Operand>,
    rows: usize,
    hidden: usize,
}

/// Arguments: input projection, hidden state, cell state, recurrent weights and bias; cell type,
/// number of steps, their rows in the inputs and in the results. Output: the hidden states, or a
/// list of these and the last cell state.
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let layer = Layer::of(e, args)?;
    if layer.rows == 0 || layer.hidden == 0 {
        return Ok(());
    }
    match way(layer.rows, layer.hidden, layer.cell.gates()) {
        Some(Way::Steps) => layer.encode_steps(e),
        _ => layer.encode_rows(e),
    }
}

impl Layer {
    fn of(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = RecurrentArgs::of(args)?;
        let (x, h, w) = (e.tensor(call.input)?, e.tensor(call.h)?, e.tensor(call.weight)?);
        let c = e.optional_tensor(call.c)?;
        let bias = e.optional_tensor(call.bias)?;
        let cell = e.int(call.cell)?;
        let found = Cell::ALL.into_iter().find(|it| i64::from(it.number()) == cell);
        let cell = found.ok_or_else(|| Error::Invalid(format!("cell type {cell} is unknown")))?;
        let steps = usize::try_from(e.int(call.steps)?).unwrap_or(0);
        let (out, last) = match e.outs(args)?[..] {
            [out] => (out, None),
            [out, last] if cell == Cell::Lstm => (out, Some(last)),
            _ => {
                return Err(Error::invalid("expected one output, or for an LSTM one or two"));
            }
        };

        let gates = cell.gates();
        let misfit = || {
            Error::Invalid(format!(
                "input {:?}, state {:?} and weight {:?} of {cell:?} with {steps} steps do not \
                 match each other, the cell state, the bias or the output",
                x.sizes, h.sizes, w.sizes
            ))
        };
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
            && (hidden == 0 || rows == 0 || way(rows, hidden, gates).is_some())
            && (1..=MAX_STEPS).contains(&steps);
        let count = match x.sizes[..] {
            [count, of, width] if of == rows && width == gates * hidden => count,
            _ => return Err(misfit()),
        };
        let places = match e.tensor(out)?.sizes[..] {
            [places, _, width] if width == hidden && fits => places,
            _ => return Err(misfit()),
        };
        let from = Places::of(e, [call.first, call.next], steps, count)?;
        let to = Places::of(e, [call.first_out, call.next_out], steps, places)?;
        let out = e.resize(out, &[places, rows, hidden])?;
        let last = last.map(|last| e.resize(last, &[1, rows, hidden])).transpose()?;
        if !out.element.is_floating() || last.as_ref().is_some_and(|it| it.element != out.element) {
            return Err(misfit());
        }
        Ok(Layer { cell, x, h, c, w, bias, steps, from, to, out, last, rows, hidden })
    }

    /// Returns the element type of the bias binding.
    fn bias_element(&self) -> Element {
        self.bias.as_ref().unwrap_or(&self.w).element
    }

    /// Emits one dispatch, in which a workgroup computes all steps of a batch row.
    fn encode_rows(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let Layer { cell, rows, hidden, from, to, .. } = self;
        let sums = cell.gates() * hidden;
        let w = transposed(e, &self.w, Matrices { count: 1, rows: sums, columns: hidden })?;
        let Shares { lanes, kept, parts } = Shares::of(hidden, cell.gates());
        let pipeline = Recurrent {
            cell: cell.number(),
            input: self.x.element,
            state: self.h.element,
            weight: w.element,
            bias: self.bias.as_ref().map_or(w.element, |bias| bias.element),
            output: self.out.element,
            has_bias: self.bias.is_some(),
            hidden: u32_of(hidden)?,
            sums: u32_of(sums.div_ceil(lanes))?,
            kept: u32_of(kept)?,
            keeps_cell: self.last.is_some(),
            parts: u32_of(parts)?,
        };
        let push = RecurrentPush {
            batch: u32_of(rows)?,
            steps: u32_of(self.steps)?,
            pitch: u32_of(w.size(2))?,
            first_in: from.first,
            next_in: from.next,
            first_out: to.first,
            next_out: to.next,
        };
        let id = |operand: &Option<Operand>, or: &Operand| operand.as_ref().unwrap_or(or).id;
        let accesses = [
            read(self.x.id),
            read(self.h.id),
            read(id(&self.c, &self.h)),
            read(w.id),
            read(id(&self.bias, &w)),
            write(self.out.id),
            // Declared as written even if they are unused.
            write(id(&self.last, &self.out)),
        ];
        e.dispatch_along_y(&pipeline, accesses, &push, [lanes, rows], [u32_of(lanes)?, 1])
    }

    /// Emits one dispatch per step, with many workgroups.
    fn encode_steps(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let Layer { cell, rows, hidden, from, to, .. } = self;
        // If all steps write to the same row, states alternate between two buffers, because a step
        // must not overwrite the state that it reads.
        let turns = match to.next == 0 && self.steps > 1 {
            true => Some(e.temporary(self.out.element, &[2, rows, hidden])?),
            false => None,
        };
        let inner = match cell {
            Cell::Lstm => Some(e.temporary(Element::F32, &[1, rows, hidden])?),
            _ => None,
        };
        let mut before = (self.h.clone(), 0);
        let mut cell_before = self.c.clone();
        for step in 0..self.steps {
            let is_last = step + 1 == self.steps;
            let (target, place) = match &turns {
                Some(turns) if !is_last => (turns, u32_of(step % 2)?),
                _ => (&self.out, to.at(step)?),
            };
            let cell_behind = self.last.as_ref().filter(|_| is_last).or(inner.as_ref());
            let cell_in = cell_before.as_ref().unwrap_or(&before.0);
            let cell_out = cell_behind.unwrap_or(target);
            let pipeline = RecurrentStep {
                cell: cell.number(),
                input: self.x.element,
                state: before.0.element,
                cell_input: cell_in.element,
                weight: self.w.element,
                bias: self.bias_element(),
                output: target.element,
                cell_output: cell_out.element,
                has_bias: self.bias.is_some(),
                hidden: u32_of(hidden)?,
            };
            let push = RecurrentStepPush {
                batch: u32_of(rows)?,
                place_in: from.at(step)?,
                place_before: before.1,
                place_out: place,
            };
            let accesses = [
                read(self.x.id),
                read(before.0.id),
                read(cell_in.id),
                read(self.w.id),
                read(self.bias.as_ref().unwrap_or(&self.w).id),
                write(target.id),
                write(cell_out.id),
            ];
            let width = hidden.div_ceil(STEP_ELEMENTS) * STEP_WORKGROUP;
            let workgroup = [u32_of(STEP_WORKGROUP)?, 1];
            e.dispatch_along_y(&pipeline, accesses, &push, [width, rows], workgroup)?;
            before = (target.clone(), place);
            cell_before = cell_behind.cloned();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_workgroup_takes_small_weights() {
        let [lstm, gru, plain] = [4, 3, 1].map(|gates| move |hidden| recurs(1, hidden, gates));
        assert!(lstm(1) && lstm(128) && gru(128) && plain(256));
        assert!(!lstm(0) && !lstm(258) && lstm(192) && gru(256) && lstm(1024));
        assert_eq!(way(1, 192, 4), Some(Way::Steps));
        assert_eq!(way(MAX_ROWS_OF_STEPS + 1, 192, 4), None);
        assert_eq!(way(1, 128, 4), Some(Way::Steps));
        assert_eq!(way(32, 128, 4), Some(Way::Rows));
        assert_eq!(way(1, 114, 4), Some(Way::Rows));
        assert_eq!(way(MAX_ROWS, 8, 4), Some(Way::Rows));
        assert_eq!(way(MAX_ROWS + 1, 8, 1), None);
    }

    #[test]
    fn all_products_of_a_step_are_shared_out() {
        for gates in [1, 3, 4] {
            for hidden in 1..=MAX_HIDDEN {
                let shares = Shares::of(hidden, gates);
                let quads = (gates * hidden).div_ceil(4);
                assert!(hidden <= shares.lanes && shares.lanes <= MAX_HIDDEN);
                assert!(
                    shares.kept > 1 || shares.parts == 1 || quads * shares.parts <= shares.lanes
                );
                assert!(shares.kept <= MAX_CACHED);
            }
        }
    }
}
