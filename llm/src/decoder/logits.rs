//! Reads the logits of some tokens from the output of a method.

use super::describe;
use crate::sampler::argmax;
use std::ops::Range;
use torchlet_core::{Element, ScalarType, TensorRef};

/// Output rows of the wanted tokens. The output has a row for each of `count` tokens, or for the
/// last one only.
pub(super) fn requested_rows(
    rows: usize,
    count: usize,
    requested: &Range<usize>,
) -> Option<Range<usize>> {
    match rows {
        rows if rows == count => Some(requested.clone()),
        1 if *requested == (count.checked_sub(1)?..count) => Some(0..1),
        _ => None,
    }
}

/// Argmax for some of `count` tokens, from an output with logits for each token or for the last one
/// only.
pub(super) fn argmax_rows(
    tensor: &TensorRef<'_>,
    count: usize,
    requested: &Range<usize>,
    argmax_tokens: &mut Vec<Option<u32>>,
) -> Result<(), String> {
    let vocabulary = tensor.info().sizes.last().and_then(|size| usize::try_from(*size).ok());
    let vocabulary = vocabulary.unwrap_or(0).max(1);
    let mut copied = Vec::new();
    let in_place = tensor.data::<f32>().ok().and_then(|all| {
        let range = requested_rows(all.len() / vocabulary, count, requested)?;
        all.get(range.start * vocabulary..range.end * vocabulary)
    });
    let logits = match in_place {
        Some(logits) => logits,
        None => {
            rows(tensor, count, requested, &mut copied)?;
            copied.as_slice()
        }
    };
    argmax_tokens.clear();
    argmax_tokens.extend(logits.chunks_exact(vocabulary).map(argmax));
    Ok(())
}

/// Logits of some of `count` tokens, from an output with logits for each token or for the last one
/// only.
pub(crate) fn rows(
    tensor: &TensorRef<'_>,
    count: usize,
    requested: &Range<usize>,
    logits: &mut Vec<f32>,
) -> Result<(), String> {
    let info = tensor.info();
    let fail = || format!("output 0: expected logits of {count} tokens, found {}", describe(info));
    let sizes: Vec<usize> =
        info.sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    let vocabulary = *sizes.last().ok_or_else(fail)?;
    let mut rows = sizes[..sizes.len() - 1].iter();
    let rows = rows.try_fold(1usize, |rows, &size| rows.checked_mul(size)).ok_or_else(fail)?;
    let requested = requested_rows(rows, count, requested).ok_or_else(fail)?;
    let (from, to) = (requested.start * vocabulary, requested.end * vocabulary);
    logits.clear();
    match info.scalar_type {
        ScalarType::Float => {
            logits.extend_from_slice(
                tensor.data::<f32>().ok().and_then(|all| all.get(from..to)).ok_or_else(fail)?,
            );
        }
        ScalarType::Half => {
            extend_with::<half::f16>(logits, tensor, from..to).ok_or_else(fail)?;
        }
        ScalarType::BFloat16 => {
            extend_with::<half::bf16>(logits, tensor, from..to).ok_or_else(fail)?;
        }
        _ => return Err(fail()),
    }
    Ok(())
}

/// Appends a range of elements. `None` if the dtype or the range does not match.
fn extend_with<T: Element + Into<f32>>(
    logits: &mut Vec<f32>,
    tensor: &TensorRef<'_>,
    range: Range<usize>,
) -> Option<()> {
    let elements = tensor.data::<T>().ok()?.get(range)?;
    logits.extend(elements.iter().map(|&element| element.into()));
    Some(())
}
