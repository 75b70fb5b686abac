//! From sums of 32 bits to codes: a multiplier of 31 fractional bits, a shift, an offset and bounds.

/// A real factor: `multiplier * 2^(shift - 31)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    multiplier: i32,
    shift: i32,
}

impl Scale {
    /// `None` for a shift outside `-31..=31`, and for a multiplier of 33 bits or the least of 32, whose negation has no place.
    pub fn new(multiplier: i64, shift: i64) -> Option<Self> {
        let scale = Scale {
            multiplier: i32::try_from(multiplier).ok()?,
            shift: i32::try_from(shift).ok()?,
        };
        scale.is_valid().then_some(scale)
    }

    fn is_valid(self) -> bool {
        self.multiplier != i32::MIN && (-31..=31).contains(&self.shift)
    }

    /// The multiplier.
    pub fn multiplier(self) -> i32 {
        self.multiplier
    }

    /// The shift: to the left where it is positive.
    pub fn shift(self) -> i32 {
        self.shift
    }

    /// The product with `value`, rounded twice: to 31 bits to the nearest, halves up; then what is shifted out, halves away from
    /// zero. What is shifted out to the left is lost.
    #[inline(always)]
    pub fn apply(self, value: i32) -> i32 {
        let left = self.shift.max(0) as u32;
        let right = self.shift.min(0).unsigned_abs();
        let value = i64::from(value.wrapping_shl(left));
        // Fits: neither factor's negation overflows, so that the product is less than 2^62 apart from what is added.
        halve(((value * i64::from(self.multiplier) + (1 << 30)) >> 31) as i32, right)
    }
}

/// Shifts up to 31 bits out to the right; to the nearest, halves away from zero. Not for the least number.
#[inline(always)]
pub(super) fn halve(value: i32, bits: u32) -> i32 {
    // One less than a negative number rounds halves down. The last bit is shifted out alone, so that nothing overflows.
    let twice = value.wrapping_add(value >> 31) >> (bits.wrapping_sub(1) & 31);
    let rounded = (twice >> 1).wrapping_add(twice & 1);
    if bits == 0 { value } else { rounded }
}

/// The scales of channels.
#[derive(Debug, Clone, Copy)]
enum Scales<'a> {
    One(Scale),
    /// Multipliers and shifts, as many of each.
    Each(&'a [i32], &'a [i32]),
}

/// What sums become: codes of an output's channels.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    scales: Scales<'a>,
    bias: &'a [i32],
    offset: i32,
    bounds: (i32, i32),
}

impl<'a> Results<'a> {
    /// One scale for all channels. The bias may be empty.
    pub fn uniform(scale: Scale, bias: &'a [i32], offset: i32, bounds: (i32, i32)) -> Self {
        Results { scales: Scales::One(scale), bias, offset, bounds }
    }

    /// A scale for each channel; `None` where one is not valid (see [`Scale::new`]).
    pub fn per_channel(
        multipliers: &'a [i32],
        shifts: &'a [i32],
        bias: &'a [i32],
        offset: i32,
        bounds: (i32, i32),
    ) -> Option<Self> {
        let mut scales = multipliers.iter().zip(shifts);
        let valid = scales.all(|(&multiplier, &shift)| Scale { multiplier, shift }.is_valid());
        let scales = Scales::Each(multipliers, shifts);
        (valid && multipliers.len() == shifts.len()).then_some(Results {
            scales,
            bias,
            offset,
            bounds,
        })
    }

    /// Sets the sums of the channels from `first` on to their bias.
    #[inline(always)]
    pub(super) fn begin(&self, first: usize, sums: &mut [i32]) {
        match self.bias.get(first..first + sums.len()) {
            Some(bias) => sums.copy_from_slice(bias),
            None => sums.fill(0),
        }
    }

    /// Adds the bias of the channels from `first` on, and `shared`.
    #[inline(always)]
    pub(super) fn add_bias(&self, first: usize, shared: i32, sums: &mut [i32]) {
        if let Some(bias) = self.bias.get(first..first + sums.len()) {
            for (sum, &bias) in sums.iter_mut().zip(bias) {
                *sum = sum.wrapping_add(bias);
            }
        }
        if shared != 0 {
            for sum in sums {
                *sum = sum.wrapping_add(shared);
            }
        }
    }

    #[inline(always)]
    fn code(&self, scale: Scale, sum: i32) -> i8 {
        let code = scale.apply(sum).wrapping_add(self.offset);
        code.max(self.bounds.0).min(self.bounds.1) as i8
    }

    /// The codes of the channels from `first` on.
    #[inline(always)]
    pub(super) fn finish(&self, first: usize, sums: &[i32], out: &mut [i8]) {
        match self.scales {
            Scales::One(scale) => {
                for (out, &sum) in out.iter_mut().zip(sums) {
                    *out = self.code(scale, sum);
                }
            }
            Scales::Each(multipliers, shifts) => {
                let multipliers = multipliers.get(first..).unwrap_or(&[]);
                let shifts = shifts.get(first..).unwrap_or(&[]);
                let scales = multipliers.iter().zip(shifts);
                for ((out, &sum), (&multiplier, &shift)) in out.iter_mut().zip(sums).zip(scales) {
                    *out = self.code(Scale { multiplier, shift }, sum);
                }
            }
        }
    }
}
