//! Merging of dims, and shapes of broadcasts.

use crate::error::Error;
use torchlet_core::rules::broadcast_all;
use torchlet_shaders::MAX_DIMS;

/// Merges dims that have compatible strides in all tensors, and drops dims of size 1.
/// Returns the remaining sizes with their strides.
pub(super) fn merge_dims(
    sizes: &[usize],
    strides: &[Vec<i64>],
) -> Result<Vec<(usize, Vec<i64>)>, Error> {
    let mut dims: Vec<(usize, Vec<i64>)> = Vec::new();
    for (dim, size) in sizes.iter().enumerate().filter(|(_, size)| **size != 1) {
        let steps: Vec<i64> = strides.iter().map(|strides| strides[dim]).collect();
        match dims.last_mut() {
            Some((outer, outer_steps))
                if outer_steps
                    .iter()
                    .zip(&steps)
                    .all(|(outer, step)| *outer == step * *size as i64) =>
            {
                *outer *= size;
                *outer_steps = steps;
            }
            _ => dims.push((*size, steps)),
        }
    }
    if dims.len() > MAX_DIMS {
        return Err(Error::unsupported(format!(
            "{} dims that cannot be merged; the limit is {MAX_DIMS}",
            dims.len()
        )));
    }
    Ok(dims)
}

/// Returns the shape that these shapes broadcast to.
pub(super) fn common_shape<'s>(
    shapes: impl IntoIterator<Item = &'s [usize]>,
) -> Option<Vec<usize>> {
    let narrow = |sizes: &[usize]| sizes.iter().map(|size| *size as i32).collect();
    let shapes: Vec<Vec<i32>> = shapes.into_iter().map(narrow).collect();
    let shape = broadcast_all(shapes.iter().map(Vec::as_slice))?;
    Some(shape.iter().map(|size| *size as usize).collect())
}
