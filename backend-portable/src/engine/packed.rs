//! Packed weights, which all methods share that use the same ones.

use super::lines::Lines;
use super::numbers::Precision;
use super::ops::Taps;
use crate::compute::conv::{ConvParams, Layout};
use crate::compute::simd::Tier;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::vec::Vec;

/// What packed weights depend on: where the plain ones are, and for what they were packed.
///
/// Plain weights lie in the program's storage, which is lent as long as a method lives; so as long
/// as somebody holds the packed ones, nothing else is at that address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) address: usize,
    pub(super) bytes: usize,
    pub(super) precision: Option<Precision>,
    pub(super) tier: Tier,
    pub(super) form: Form,
}

/// What weights are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Convolutions over images of any size.
    Convolution {
        channels: [usize; 2],
        groups: usize,
        kernel: [usize; 3],
        transposed: bool,
        channels_last: bool,
    },
    /// Numbers of 16 bits as the engine computes with them.
    Widened { len: usize },
    /// The right operand of a product: numbers of 16 bits stay so.
    Product { k: usize, n: usize, transposed: bool },
    /// Codes of 8 bits, the right operand of a product.
    Codes { k: usize, n: usize },
    /// Codes of 8 bits of a part of a convolution: blocks of as many groups, groups of a block, and
    /// outputs and inputs of a group.
    CodesOfPart { channels: [usize; 4], taps: [Taps; 2] },
    /// Some of the taps of a convolution over images of any size.
    Phase { channels: [usize; 2], groups: usize, channels_last: bool, taps: [Taps; 2] },
    /// Codes of 8 bits of a convolution of each channel for itself.
    Depthwise { taps: usize, channels: usize },
    /// Codes of 8 bits of a convolution of groups so narrow that several share a vector: taps,
    /// channels, and those of a group.
    #[cfg(target_arch = "x86_64")]
    Narrow { taps: usize, channels: usize, group: usize },
    /// Codes of 4 bits in groups, the right operand of a product.
    Nibbles { k: usize, n: usize, groups: usize },
    /// The scales of these, or the upper halves of them.
    Scales { n: usize, groups: usize, are_upper: bool },
}

impl Form {
    /// What the weights of a convolution are packed for.
    pub(super) fn of_convolution(p: &ConvParams) -> Self {
        Form::Convolution {
            channels: [p.in_channels, p.out_channels],
            groups: p.groups,
            kernel: p.kernel,
            transposed: p.transposed,
            channels_last: p.layout == Layout::ChannelsLast,
        }
    }

    /// The form in numbers, together with what it was packed for.
    pub(super) fn numbers(&self, tier: Tier) -> Vec<i64> {
        let (rows, lanes) = tier.tile();
        let machine = [rows, lanes, tier.lanes()];
        let form: &[usize] = match *self {
            Form::Convolution { channels, groups, kernel, transposed, channels_last } => {
                let ([i, o], [d, h, w]) = (channels, kernel);
                &[0, i, o, groups, d, h, w, transposed.into(), channels_last.into()]
            }
            Form::Product { k, n, transposed } => &[1, k, n, transposed.into()],
            Form::Codes { k, n } => &[2, k, n],
            Form::Widened { len } => &[8, len],
            Form::Depthwise { taps, channels } => &[3, taps, channels],
            #[cfg(target_arch = "x86_64")]
            Form::Narrow { taps, channels, group } => &[10, taps, channels, group],
            Form::Nibbles { k, n, groups } => &[4, k, n, groups],
            Form::Scales { n, groups, are_upper } => &[5, n, groups, are_upper.into()],
            Form::CodesOfPart { channels, taps } => {
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

/// Elements that do not change.
#[derive(Debug, Clone)]
pub(super) enum Constant<'p> {
    /// They are where the program is.
    Lent(&'p [f32]),
    /// They are the engine's, and perhaps several methods'.
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

/// The packed weights that are in use.
#[derive(Debug, Default)]
pub(super) struct Packs {
    packs: Mutex<HashMap<Key, Weak<Lines>>>,
}

impl Packs {
    /// What was packed before, or what `pack` makes. Weights without a key are the caller's alone.
    pub(super) fn get<E>(
        &self,
        key: Option<Key>,
        pack: impl FnOnce() -> Result<Lines, E>,
    ) -> Result<Arc<Lines>, E> {
        let Some(key) = key else { return pack().map(Arc::new) };
        // A panic elsewhere leaves the table whole.
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
        let form = Form::Product { k: 2, n: 3, transposed: false };
        let precision = Some(Precision::Single);
        let key = Key { address: 64, bytes: 24, precision, tier: Tier::SCALAR, form };
        let pack = || Lines::zeroed(6).ok_or(());
        let first = packs.get(Some(key), pack).unwrap();
        let same = packs.get(Some(key), || Err(())).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let other = Key { precision: Some(Precision::BFloat), ..key };
        assert!(packs.get(Some(other), || Err(())).is_err(), "the same bytes are other numbers");
        let turned = Key { form: Form::Product { k: 2, n: 3, transposed: true }, ..key };
        assert!(packs.get(Some(turned), || Err(())).is_err());
        assert!(packs.get(None, || Err(())).is_err());
        drop((first, same));
        assert!(packs.get(Some(key), || Err(())).is_err(), "nobody used them any more");
    }
}
