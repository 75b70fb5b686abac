//! Shapes of concatenating, repeating and padding tensors.

use super::normalize_dim;
use crate::layout::{Sizes, checked_numel};

/// Result shape of concatenating tensors over `dim`, and the normalised dim.
///
/// Tensors of shape `[0]` are skipped, whatever the other shapes are. An unknown shape (`None`)
/// makes the result unknown.
pub fn cat(shapes: impl IntoIterator<Item = Option<Sizes>>, dim: i64) -> Option<(Sizes, usize)> {
    let mut result: Option<(Sizes, usize)> = None;
    let mut any = false;
    for shape in shapes {
        let shape = shape?;
        any = true;
        if shape == [0] {
            continue;
        }
        let Some((sizes, along)) = &mut result else {
            // Scalar tensors have no dim to concatenate over.
            let along = if shape.is_empty() { None } else { normalize_dim(dim, shape.len()) };
            result = Some((shape, along?));
            continue;
        };
        if shape.len() != sizes.len() {
            return None;
        }
        for (at, (total, &size)) in sizes.iter_mut().zip(&shape).enumerate() {
            if at == *along {
                *total = total.checked_add(size)?;
            } else if *total != size {
                return None;
            }
        }
    }
    if result.is_none() && any {
        result = Some((Sizes::from_slice(&[0]).ok()?, normalize_dim(dim, 1)?));
    }
    checked_numel(&result.as_ref()?.0)?;
    result
}

/// Result shape of padding. `pad` holds the padding before and after each dim, starting with the
/// last dim; negative values crop.
pub fn pad(sizes: &[i32], pad: &[i64]) -> Option<Sizes> {
    let mut result = Sizes::from_slice(sizes).ok()?;
    let (pairs, []) = pad.as_chunks::<2>() else { return None };
    if pairs.len() > result.len() {
        return None;
    }
    for (size, [before, after]) in result.iter_mut().rev().zip(pairs) {
        let padded = i64::from(*size).checked_add(*before)?.checked_add(*after)?;
        if padded < 0 {
            return None;
        }
        *size = i32::try_from(padded).ok()?;
    }
    checked_numel(&result)?;
    Some(result)
}

/// Result shape of repeating a tensor along each dim; missing leading dims are added.
pub fn repeat(sizes: &[i32], repeats: &[i64]) -> Option<Sizes> {
    let missing = repeats.len().checked_sub(sizes.len())?;
    let mut result = Sizes::new();
    for (dim, &count) in repeats.iter().enumerate() {
        let size = match dim.checked_sub(missing) {
            Some(own) => i64::from(*sizes.get(own)?),
            None => 1,
        };
        if count < 0 {
            return None;
        }
        result.push(i32::try_from(size.checked_mul(count)?).ok()?).ok()?;
    }
    checked_numel(&result)?;
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(shapes: &[&[i32]], dim: i64) -> Option<(Sizes, usize)> {
        cat(shapes.iter().map(|shape| Sizes::from_slice(shape).ok()), dim)
    }

    #[test]
    fn cat_adds_sizes_of_one_dim() {
        let (sizes, dim) = joined(&[&[2, 3], &[0], &[2, 4]], -1).unwrap();
        assert_eq!((&sizes[..], dim), (&[2, 7][..], 1));
        assert_eq!(joined(&[&[0], &[0]], 0).unwrap().0, [0]);
        assert!(joined(&[&[2, 3], &[3, 3]], 1).is_none());
        assert!(joined(&[&[2, 3], &[2]], 1).is_none());
        assert!(joined(&[], 0).is_none());
        assert!(joined(&[&[i32::MAX], &[1]], 0).is_none());
    }

    #[test]
    fn padding_extends_and_crops() {
        assert_eq!(pad(&[2, 3], &[1, -2]).unwrap(), [2, 2]);
        assert_eq!(pad(&[2, 3], &[0, 0, 1, 1]).unwrap(), [4, 3]);
        assert!(pad(&[2, 3], &[-2, -2]).is_none());
        assert!(pad(&[2, 3], &[1]).is_none());
        assert!(pad(&[2], &[1, 1, 1, 1]).is_none());
        assert!(pad(&[2], &[i64::MAX, 1]).is_none());
    }

    #[test]
    fn repeating_multiplies() {
        assert_eq!(repeat(&[2, 3], &[4, 1, 2]).unwrap(), [4, 2, 6]);
        assert_eq!(repeat(&[2], &[0]).unwrap(), [0]);
        assert!(repeat(&[2, 3], &[2]).is_none());
        assert!(repeat(&[2], &[-1]).is_none());
        assert!(repeat(&[2], &[i64::MAX]).is_none());
    }
}
