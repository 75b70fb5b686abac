//! Einsum: sums of products over labelled dims, as batched matrix multiplications.

use super::{Builder, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{EinsumArgs, Operator};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[(Operator::EINSUM, einsum)];

/// Label of a dim. Dims under an ellipsis have numbers, from the last one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An operand, and the label of each dim.
struct Operand {
    value: ValueId,
    labels: Vec<Label>,
}

fn einsum(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = EinsumArgs::of(args)?;
    let equation: String = b.text(call.equation)?.unwrap_or_default();
    let equation: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
    let fail = |what: &str| Error::Invalid(format!("einsum `{equation}`: {what}"));
    let tensors = match b.value(call.tensors)? {
        Value::List(items) => items.clone(),
        _ => [call.tensors].to_vec(),
    };
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != tensors.len() {
        return Err(fail("the number of terms differs from the number of tensors"));
    }
    let mut operands = Vec::new();
    let mut sizes: BTreeMap<Label, Size> = BTreeMap::new();
    let mut hidden = 0;
    for (term, value) in terms.iter().zip(tensors) {
        let rank = b.info(value)?.rank();
        let labels = labels(term, Some(rank)).ok_or_else(|| fail("a term does not match"))?;
        for (dim, label) in labels.iter().enumerate() {
            if labels.iter().filter(|other| *other == label).count() > 1 {
                return Err(Error::Unsupported(format!(
                    "einsum `{equation}` with a repeated label in a term"
                )));
            }
            let size = b.size(value, dim)?;
            let known = sizes.entry(*label).or_insert(size);
            if known.bound == 1 {
                *known = size;
            }
            if let Label::Ellipsis(number) = label {
                hidden = hidden.max(number + 1);
            }
        }
        operands.push(Operand { value, labels });
    }
    let wanted = match output {
        Some(term) => {
            let rank = term.chars().filter(|letter| letter.is_alphabetic()).count();
            let rank = if term.contains("...") { rank + hidden } else { rank };
            labels(term, Some(rank)).ok_or_else(|| fail("the output does not match"))?
        }
        // By default, the labels that occur once, in alphabetical order.
        None => {
            let count = |label: &Label| {
                operands.iter().filter(|operand| operand.labels.contains(label)).count()
            };
            let is_kept = |label: &&Label| matches!(label, Label::Ellipsis(_)) || count(label) == 1;
            let mut list: Vec<Label> = sizes.keys().filter(is_kept).copied().collect();
            // Numbers count from the last dim on.
            let dims = list.iter().filter(|label| matches!(label, Label::Ellipsis(_))).count();
            list.get_mut(..dims).unwrap_or_default().reverse();
            list
        }
    };
    if !wanted.iter().all(|label| sizes.contains_key(label)) {
        return Err(fail("the output has a label that no term has"));
    }
    let mut operands = operands.into_iter();
    let mut product = operands.next().ok_or_else(|| fail("there are no terms"))?;
    let mut rest: Vec<Operand> = operands.collect();
    rest.reverse();
    while let Some(next) = rest.pop() {
        let is_needed = |label: &Label| {
            wanted.contains(label) || rest.iter().any(|operand| operand.labels.contains(label))
        };
        product = multiply(b, product, next, &sizes, &is_needed)?;
    }
    let product = summed(b, product, &|label| wanted.contains(label))?;
    let value = arranged(b, &product, &wanted)?;
    b.finish_with(value, call.out)
}

/// Parses a term for a tensor of this rank.
fn labels(term: &str, rank: Option<usize>) -> Option<Vec<Label>> {
    let letters = |text: &str| -> Option<Vec<Label>> {
        let letter = |letter: char| letter.is_ascii_alphabetic().then_some(Label::Letter(letter));
        text.chars().map(letter).collect()
    };
    match term.split_once("...") {
        None => letters(term).filter(|list| rank.is_none_or(|rank| rank == list.len())),
        Some((front, back)) => {
            let (front, back) = (letters(front)?, letters(back)?);
            let hidden = rank?.checked_sub(front.len() + back.len())?;
            let dims = (0..hidden).rev().map(Label::Ellipsis);
            Some(front.into_iter().chain(dims).chain(back).collect())
        }
    }
}

/// Sums over the dims that are not needed.
fn summed(
    b: &mut Builder<'_, '_>,
    operand: Operand,
    is_needed: &dyn Fn(&Label) -> bool,
) -> Result<Operand, Error> {
    let dims = operand.labels.iter().enumerate().filter(|(_, label)| !is_needed(label));
    let dims: Vec<usize> = dims.map(|(dim, _)| dim).collect();
    if dims.is_empty() {
        return Ok(operand);
    }
    let mut info = b.info(operand.value)?;
    let mut dim = 0..info.sizes.len();
    info.sizes.retain(|_| dim.next().is_none_or(|dim| !dims.contains(&dim)));
    let list: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let (list, no, none) = (b.new_ints(&list), b.push(Value::Bool(false)), b.none());
    let value = b.call(Operator::SUM_DIM_INT_LIST, &[operand.value, list, no, none], info);
    let labels = operand.labels.into_iter().filter(is_needed).collect();
    Ok(Operand { value, labels })
}

/// Permutes an operand to this order of labels.
fn arranged(b: &mut Builder<'_, '_>, operand: &Operand, order: &[Label]) -> Result<ValueId, Error> {
    let at = |label: &Label| operand.labels.iter().position(|own| own == label);
    let dims: Option<Vec<usize>> = order.iter().map(at).collect();
    let dims = dims.ok_or_else(|| Error::invalid("einsum with a label that no term has"))?;
    if dims.iter().enumerate().all(|(to, from)| to == *from) {
        return Ok(operand.value);
    }
    b.permute(operand.value, &dims)
}

/// The product of two operands, summed over labels that nothing else needs.
fn multiply(
    b: &mut Builder<'_, '_>,
    one: Operand,
    other: Operand,
    sizes: &BTreeMap<Label, Size>,
    is_needed: &dyn Fn(&Label) -> bool,
) -> Result<Operand, Error> {
    // Labels that only one operand has are summed first.
    let one = summed(b, one, &|label| is_needed(label) || other.labels.contains(label))?;
    let other = summed(b, other, &|label| is_needed(label) || one.labels.contains(label))?;
    let both = |label: &&Label| other.labels.contains(label);
    let shared: Vec<Label> = one.labels.iter().filter(both).copied().collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = shared.iter().copied().partition(is_needed);
    let rest = |operand: &Operand| -> Vec<Label> {
        operand.labels.iter().filter(|label| !shared.contains(label)).copied().collect()
    };
    let (left, right) = (rest(&one), rest(&other));
    let lhs = arranged(b, &one, &[&batch[..], &left, &inner].concat())?;
    let rhs = arranged(b, &other, &[&batch[..], &inner, &right].concat())?;
    let size = |label: &Label| sizes.get(label).copied();
    let list = |labels: &[Label]| -> Vec<Size> { labels.iter().filter_map(size).collect() };
    let (batch_sizes, inner_sizes) = (list(&batch), list(&inner));
    let (left_sizes, right_sizes) = (list(&left), list(&right));
    let [merged_batch, merged_left, merged_inner, merged_right] =
        [&batch_sizes, &left_sizes, &inner_sizes, &right_sizes].map(|list| merged(b, list));
    let lhs = expanded(b, lhs, &[&batch_sizes[..], &left_sizes, &inner_sizes].concat())?;
    let rhs = expanded(b, rhs, &[&batch_sizes[..], &inner_sizes, &right_sizes].concat())?;
    let (merged_batch, merged_left) = (merged_batch?, merged_left?);
    let (merged_inner, merged_right) = (merged_inner?, merged_right?);
    let (lhs, rhs) = if batch.is_empty() {
        let lhs = b.view(lhs, &[merged_left, merged_inner])?;
        (lhs, b.view(rhs, &[merged_inner, merged_right])?)
    } else {
        let lhs = b.view(lhs, &[merged_batch, merged_left, merged_inner])?;
        (lhs, b.view(rhs, &[merged_batch, merged_inner, merged_right])?)
    };
    let product = b.matmul(lhs, rhs)?;
    let sizes = [&batch_sizes[..], &left_sizes, &right_sizes].concat();
    let value = b.view(product, &sizes)?;
    let labels = [&batch[..], &left, &right].concat();
    Ok(Operand { value, labels })
}

/// The product of sizes.
fn merged(b: &mut Builder<'_, '_>, sizes: &[Size]) -> Result<Size, Error> {
    let mut all = b.known(1);
    for size in sizes {
        let bound = all.bound.saturating_mul(size.bound);
        let value = match (b.value(all.value)?, b.value(size.value)?) {
            (Value::Int(_), Value::Int(_)) => b.new_int(bound as i64),
            (Value::Int(1), _) => size.value,
            _ => {
                let product = b.push(Value::SymInt(bound as i64));
                b.call_into(Operator::SYM_MUL, &[all.value, size.value], product);
                product
            }
        };
        all = Size { bound, value };
    }
    Ok(all)
}

/// Repeats dims of size one where another operand has more elements.
fn expanded(b: &mut Builder<'_, '_>, value: ValueId, sizes: &[Size]) -> Result<ValueId, Error> {
    let info = b.info(value)?;
    let bounds: Vec<usize> = sizes.iter().map(|size| size.bound).collect();
    if info.sizes == bounds {
        return Ok(value);
    }
    let (list, no) = (b.sizes(sizes)?, b.push(Value::Bool(false)));
    Ok(b.call(Operator::EXPAND_COPY, &[value, list, no], info.with_sizes(bounds)))
}
