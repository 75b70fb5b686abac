//! Packed weights, shared between all methods that use the same weights.

use super::lines::Lines;
use super::numbers::Precision;
use super::ops::Taps;
use crate::compute::conv::{ConvParams, Layout};
use crate::compute::simd::Tier;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::vec::Vec;

/// Cache key of packed weights: address of the original weights and packed form.
///
/// The original weights are in the program's storage, which is borrowed for as long as a method
/// lives. As long as packed weights are referenced, no other data can be at that address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) address: usize,
    pub(super) bytes: usize,
    pub(super) precision: Option<Precision>,
    pub(super) tier: Tier,
    pub(super) form: Form,
}

/// Operation and layout that weights are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Convolutions of any image size.
    Convolution {
        channels: [usize; 2],
        groups: usize,
        kernel: [usize; 3],
        transposed: bool,
        channels_last: bool,
    },
    /// 16-bit values, widened to `f32`.
    Widened { len: usize },
    /// The right operand of a matrix multiplication. 16-bit values keep their type.
    Matmul { k: usize, n: usize, transposed: bool },
    /// int8 right operand of a matrix multiplication.
    Int8Matmul { k: usize, n: usize },
    /// int8 right operand for a part of a convolution. `channels` holds the number of blocks, the
    /// groups per block, and the output and input channels per group.
    Int8Part { channels: [usize; 4], taps: [Taps; 2] },
    /// The taps of one phase of a transposed convolution, for any image size.
    Phase { channels: [usize; 2], groups: usize, channels_last: bool, taps: [Taps; 2] },
    /// int8 weights of a depthwise convolution.
    Depthwise { taps: usize, channels: usize },
    /// int8 weights of a grouped convolution whose groups are so narrow that several share a
    /// vector. `group` is the number of channels per group.
    #[cfg(target_arch = "x86_64")]
    Narrow { taps: usize, channels: usize, group: usize },
    /// Group-quantized int4 right operand of a matrix multiplication.
    Nibbles { k: usize, n: usize, groups: usize },
    /// The scales of [`Nibbles`](Form::Nibbles); `bfloat16` if `are_upper`.
    Scales { n: usize, groups: usize, are_upper: bool },
}

impl Form {
    /// Returns the form for the weights of a convolution.
    pub(super) fn of_convolution(p: &ConvParams) -> Self {
        Form::Convolution {
            channels: [p.in_channels, p.out_channels],
            groups: p.groups,
            kernel: p.kernel,
            transposed: p.transposed,
            channels_last: p.layout == Layout::ChannelsLast,
        }
    }

    /// Serializes the form, and the machine properties that the packed layout depends on.
    pub(super) fn numbers(&self, tier: Tier) -> Vec<i64> {
        let (rows, lanes) = tier.tile();
        let machine = [rows, lanes, tier.lanes()];
        let form: &[usize] = match *self {
            Form::Convolution { channels, groups, kernel, transposed, channels_last } => {
                let ([i, o], [d, h, w]) = (channels, kernel);
                &[0, i, o, groups, d, h, w, transposed.into(), channels_last.into()]
            }
            Form::Matmul { k, n, transposed } => &[1, k, n, transposed.into()],
            Form::Int8Matmul { k, n } => &[2, k, n],
            Form::Widened { len } => &[8, len],
            Form::Depthwise { taps, channels } => &[3, taps, channels],
            #[cfg(target_arch = "x86_64")]
            Form::Narrow { taps, channels, group } => &[10, taps, channels, group],
            Form::Nibbles { k, n, groups } => &[4, k, n, groups],
            Form::Scales { n, groups, are_upper } => &[5, n, groups, are_upper.into()],
            Form::Int8Part { channels, taps } => {
                &[&[9][..], &channels, &taps[0].numbers(), &taps[1].numbers()].concat()
            }
            Form::Phase { channels, groups, channels_last, taps } => {
                let [a, b] = channels;
                &[
                    &[7, a, b, groups, channels_last.into()][..],
                    &taps[0].numbers(),
                    &taps[1].numbers(),
                ]
                .concat()
            }
        };
        let numbers = machine.iter().chain(form);
        numbers.map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect()
    }
}

/// Elements of a constant.
#[derive(Debug, Clone)]
pub(super) enum Constant<'p> {
    /// Borrowed from the program.
    Lent(&'p [f32]),
    /// Owned by the engine, possibly shared between methods.
    Shared(Arc<Lines>),
}

impl Constant<'_> {
    pub(super) fn as_slice(&self) -> &[f32] {
        match self {
            Constant::Lent(elements) => elements,
            Constant::Shared(lines) => lines.as_slice(),
        }
    }
}

/// Cache of packed weights that are in use.
#[derive(Debug, Default)]
pub(super) struct Packs {
    packs: Mutex<HashMap<Key, Weak<Lines>>>,
}

impl Packs {
    /// Returns cached packed weights, or packs them with `pack`. Weights without a key are not
    /// cached.
    pub(super) fn get<E>(
        &self,
        key: Option<Key>,
        pack: impl FnOnce() -> Result<Lines, E>,
    ) -> Result<Arc<Lines>, E> {
        let Some(key) = key else { return pack().map(Arc::new) };
        // A panic elsewhere leaves the table consistent.
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = packs.get(&key).and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let packed = Arc::new(pack()?);
        packs.retain(|_, pack| pack.strong_count() > 0);
        packs.insert(key, Arc::downgrade(&packed));
        Ok(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_packed_once_and_freed() {
        let packs = Packs::default();
        let form = Form::Matmul { k: 2, n: 3, transposed: false };
        let precision = Some(Precision::Single);
        let key = Key { address: 64, bytes: 24, precision, tier: Tier::SCALAR, form };
        let pack = || Lines::zeroed(6).ok_or(());
        let first = packs.get(Some(key), pack).unwrap();
        let same = packs.get(Some(key), || Err(())).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let other = Key { precision: Some(Precision::BFloat), ..key };
        assert!(
            packs.get(Some(other), || Err(())).is_err(),
            "the same bytes with another precision"
        );
        let transposed_key = Key { form: Form::Matmul { k: 2, n: 3, transposed: true }, ..key };
        assert!(packs.get(Some(transposed_key), || Err(())).is_err());
        assert!(packs.get(None, || Err(())).is_err());
        drop((first, same));
        assert!(packs.get(Some(key), || Err(())).is_err(), "no longer referenced");
    }
}
