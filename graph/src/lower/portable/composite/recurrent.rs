//! Recurrent layers, one call per time step. The projection of the inputs is one matrix
//! multiplication for all steps.

use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{GruArgs, LstmArgs, Operator};
use alloc::format;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::GRU_INPUT, |b, args| single(b, args, Cell::Gru)),
    (Operator::LSTM_INPUT, lstm),
    (Operator::RNN_RELU_INPUT, |b, args| single(b, args, Cell::Relu)),
    (Operator::RNN_TANH_INPUT, |b, args| single(b, args, Cell::Tanh)),
];

/// Maximum number of time steps over all layers and directions.
const STEPS: usize = 1 << 13;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Relu,
    Tanh,
}

/// A recurrent network, layer by layer.
struct Network {
    cell: Cell,
    params: Vec<ValueId>,
    has_biases: bool,
    layers: usize,
    directions: usize,
    batch_first: bool,
}

/// Parameters of one direction of a layer.
struct Weights {
    input: ValueId,
    hidden: ValueId,
    input_bias: Option<ValueId>,
    hidden_bias: Option<ValueId>,
}

fn items(b: &Builder<'_, '_>, list: ValueId) -> Result<Vec<ValueId>, Error> {
    Ok(match b.value(list)? {
        Value::List(items) => items.clone(),
        _ => [list].to_vec(),
    })
}

fn lstm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LstmArgs::of(args)?;
    let states = items(b, call.hx)?;
    let flags = [call.has_biases, call.train, call.bidirectional, call.batch_first];
    let network = Network::new(b, Cell::Lstm, call.params, flags, call.num_layers, call.dropout)?;
    let [hidden, cell] = states[..] else {
        return Err(Error::invalid("an LSTM: expected two initial states"));
    };
    network.emit(b, call.input, &[hidden, cell], &b.outs(args)?)
}

fn single(b: &mut Builder<'_, '_>, args: &[ValueId], cell: Cell) -> Result<(), Error> {
    let call = GruArgs::of(args)?;
    let flags = [call.has_biases, call.train, call.bidirectional, call.batch_first];
    let network = Network::new(b, cell, call.params, flags, call.num_layers, call.dropout)?;
    network.emit(b, call.input, &[call.hx], &b.outs(args)?)
}

impl Network {
    fn new(
        b: &Builder<'_, '_>,
        cell: Cell,
        params: ValueId,
        [biases, train, bidirectional, batch_first]: [ValueId; 4],
        layers: ValueId,
        dropout: ValueId,
    ) -> Result<Self, Error> {
        if b.truth(train)? && b.number(dropout)? != 0.0 {
            return Err(Error::unsupported("dropout of training; call `eval()` before the export"));
        }
        let layers = usize::try_from(b.int(layers)?).unwrap_or(0);
        Ok(Network {
            cell,
            params: items(b, params)?,
            has_biases: b.truth(biases)?,
            layers,
            directions: if b.truth(bidirectional)? { 2 } else { 1 },
            batch_first: b.truth(batch_first)?,
        })
    }

    /// The parameters of a layer, in the order of `torch.nn.RNNBase`.
    fn weights(&self, number: usize, has_projection: bool) -> Result<Weights, Error> {
        let each = if self.has_biases { 4 } else { 2 };
        if has_projection || self.params.len() != self.layers.saturating_mul(self.directions * each)
        {
            return Err(Error::Unsupported(format!(
                "a recurrent network with {} parameters, as with a projection size",
                self.params.len()
            )));
        }
        let at = |position: usize| self.params.get(number * each + position).copied();
        let missing = || Error::invalid("a recurrent network lacks parameters");
        let bias = |position: usize| if self.has_biases { at(position) } else { None };
        Ok(Weights {
            input: at(0).ok_or_else(missing)?,
            hidden: at(1).ok_or_else(missing)?,
            input_bias: bias(2),
            hidden_bias: bias(3),
        })
    }

    fn emit(
        &self,
        b: &mut Builder<'_, '_>,
        input: ValueId,
        states: &[ValueId],
        outs: &[ValueId],
    ) -> Result<(), Error> {
        let info = b.info(input)?;
        let is_batch = info.rank() == 3;
        // `[time, batch, element]`
        let mut x = match (is_batch, self.batch_first) {
            (true, true) => b.permute(input, &[1, 0, 2])?,
            (true, false) => input,
            (false, _) => b.unsqueeze(input, 1)?,
        };
        let steps = b.info(x)?.size(0);
        // Only the batch may vary.
        if info.dynamic && !b.is_known(input, usize::from(is_batch && self.batch_first)) {
            return Err(Error::unsupported(
                "a recurrent network over a dynamic number of time steps",
            ));
        }
        let total = steps.saturating_mul(self.layers).saturating_mul(self.directions);
        if total > STEPS {
            return Err(Error::Unsupported(format!(
                "a recurrent network of {total} time steps: at most {STEPS} are supported"
            )));
        }
        let mut last: Vec<Vec<ValueId>> = states.iter().map(|_| Vec::new()).collect();
        for layer in 0..self.layers {
            let mut sides = Vec::new();
            for direction in 0..self.directions {
                let number = layer * self.directions + direction;
                let mut state = Vec::new();
                for all in states {
                    let all = if is_batch { *all } else { b.unsqueeze(*all, 1)? };
                    state.push(selected(b, all, number)?);
                }
                let width = state.first().map_or(Ok(0), |h| b.info(*h).map(|info| info.last()))?;
                let weights = self.weights(number, false)?;
                if b.info(weights.hidden)?.last() != width {
                    return Err(Error::unsupported("an LSTM with a projection size"));
                }
                sides.push(self.run(b, x, &weights, &mut state, direction == 1)?);
                for (list, state) in last.iter_mut().zip(state) {
                    list.push(b.unsqueeze(state, 0)?);
                }
            }
            x = match sides[..] {
                [one] => one,
                _ => b.cat(&sides, 2)?,
            };
        }
        let mut results = [x].to_vec();
        for list in last {
            results.push(match list[..] {
                [one] => one,
                _ => b.cat(&list, 0)?,
            });
        }
        for (position, (value, out)) in results.into_iter().zip(outs).enumerate() {
            let value = match (is_batch, position) {
                (true, 0) if self.batch_first => b.permute(value, &[1, 0, 2])?,
                (true, _) => value,
                (false, _) => squeezed(b, value, 1)?,
            };
            b.finish_with(value, *out)?;
        }
        Ok(())
    }

    /// Runs a direction of a layer. Updates the state, and returns all outputs.
    fn run(
        &self,
        b: &mut Builder<'_, '_>,
        x: ValueId,
        weights: &Weights,
        state: &mut [ValueId],
        reversed: bool,
    ) -> Result<ValueId, Error> {
        let steps = b.info(x)?.size(0);
        let projected = b.linear(x, weights.input, weights.input_bias)?;
        let mut outputs = Vec::new();
        for step in 0..steps {
            let at = if reversed { steps - 1 - step } else { step };
            let x = selected(b, projected, at)?;
            self.step(b, x, weights, state)?;
            let Some(h) = state.first() else { break };
            outputs.push(b.unsqueeze(*h, 0)?);
        }
        if reversed {
            outputs.reverse();
        }
        b.cat(&outputs, 0)
    }

    fn step(
        &self,
        b: &mut Builder<'_, '_>,
        x: ValueId,
        weights: &Weights,
        state: &mut [ValueId],
    ) -> Result<(), Error> {
        let Some(h) = state.first().copied() else { return Ok(()) };
        let recurrent = b.linear(h, weights.hidden, weights.hidden_bias)?;
        let next = match (self.cell, state.get(1).copied()) {
            (Cell::Tanh | Cell::Relu, _) => {
                let sum = b.binary(Operator::ADD_TENSOR, x, recurrent)?;
                let relu = self.cell == Cell::Relu;
                b.unary(if relu { Operator::RELU } else { Operator::TANH }, sum)?
            }
            (Cell::Gru, _) => {
                let ([xr, xz, xn], [hr, hz, hn]) = (parts(b, x)?, parts(b, recurrent)?);
                let r = b.binary(Operator::ADD_TENSOR, xr, hr)?;
                let r = b.unary(Operator::SIGMOID, r)?;
                let z = b.binary(Operator::ADD_TENSOR, xz, hz)?;
                let z = b.unary(Operator::SIGMOID, z)?;
                let n = b.binary(Operator::MUL_TENSOR, hn, r)?;
                let n = b.binary(Operator::ADD_TENSOR, n, xn)?;
                let n = b.unary(Operator::TANH, n)?;
                // `(h - n) * z + n`
                let difference = b.binary(Operator::SUB_TENSOR, h, n)?;
                let kept = b.binary(Operator::MUL_TENSOR, difference, z)?;
                b.binary(Operator::ADD_TENSOR, kept, n)?
            }
            (Cell::Lstm, Some(c)) => {
                let gates = b.binary(Operator::ADD_TENSOR, recurrent, x)?;
                let [i, f, g, o] = parts(b, gates)?;
                let [i, f, o] = [i, f, o].map(|gate| b.unary(Operator::SIGMOID, gate));
                let (i, f, o) = (i?, f?, o?);
                let g = b.unary(Operator::TANH, g)?;
                let kept = b.binary(Operator::MUL_TENSOR, f, c)?;
                let new = b.binary(Operator::MUL_TENSOR, i, g)?;
                let c = b.binary(Operator::ADD_TENSOR, kept, new)?;
                if let Some(slot) = state.get_mut(1) {
                    *slot = c;
                }
                let activated = b.unary(Operator::TANH, c)?;
                b.binary(Operator::MUL_TENSOR, o, activated)?
            }
            (Cell::Lstm, None) => return Err(Error::invalid("an LSTM lacks its cell state")),
        };
        if let Some(slot) = state.first_mut() {
            *slot = next;
        }
        Ok(())
    }
}

/// Element `at` of the first dim.
fn selected(b: &mut Builder<'_, '_>, value: ValueId, at: usize) -> Result<ValueId, Error> {
    let mut info: Info = b.info(value)?;
    if info.rank() > 0 {
        info.sizes.remove(0);
    }
    let (dim, at) = (b.new_int(0), b.new_int(at as i64));
    Ok(b.call(Operator::SELECT_COPY_INT, &[value, dim, at], info))
}

fn squeezed(b: &mut Builder<'_, '_>, value: ValueId, dim: usize) -> Result<ValueId, Error> {
    let mut info: Info = b.info(value)?;
    if dim < info.rank() {
        info.sizes.remove(dim);
    }
    let dim = b.new_int(dim as i64);
    Ok(b.call(Operator::SQUEEZE_COPY_DIM, &[value, dim], info))
}

/// Splits the gates of a cell, along the last dim.
fn parts<const N: usize>(b: &mut Builder<'_, '_>, gates: ValueId) -> Result<[ValueId; N], Error> {
    let info: Info = b.info(gates)?;
    let width = info.last() / N.max(1);
    let mut sizes = info.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = width;
    }
    let made = [(); N].map(|()| b.new_tensor(info.with_sizes(sizes.clone())));
    let list = b.push(Value::List(made.to_vec()));
    let (size, dim) = (b.new_int(width as i64), b.new_int(-1));
    b.call_into(Operator::SPLIT_COPY_TENSOR, &[gates, size, dim], list);
    Ok(made)
}
