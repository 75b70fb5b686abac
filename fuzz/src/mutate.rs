//! Structure-aware mutations: an integer gets another value, an offset refers to another object of
//! the same kind, a vector gets longer. Random bytes rarely pass the first check.

use super::places::{Kind, Place, places};

/// A random number generator (xorshift): the same seed yields the same file on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u32) -> Self {
        // Spreads neighbouring seeds, and avoids zero, which xorshift cannot leave.
        Random(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.next() >> 16) % bound).unwrap_or(0)
    }
}

/// Mutates one to four fields of a file. Returns false if the file has no known structure.
pub fn mutate(bytes: &mut [u8], random: &mut Random) -> bool {
    let places = places(bytes);
    if places.is_empty() {
        return false;
    }
    for _ in 0..=random.below(4) {
        let place = places[random.below(places.len())];
        // Sometimes a field gets the value of another of its kind: an existing index, a known type.
        let same: Vec<&Place> = if random.below(3) == 0 {
            places.iter().filter(|other| other.kind == place.kind).collect()
        } else {
            Vec::new()
        };
        let old = read(bytes, place.at, place.kind.size());
        let new = match same.get(random.below(same.len())) {
            Some(other) if place.kind == Kind::Offset => {
                // Refers to the other offset's target.
                let target = other.at as u64 + read(bytes, other.at, 4);
                target.wrapping_sub(place.at as u64)
            }
            Some(other) => read(bytes, other.at, place.kind.size()),
            None => another(place.kind, old, random),
        };
        write(bytes, place.at, place.kind.size(), new);
    }
    true
}

/// Returns another value for a field of this kind.
fn another(kind: Kind, old: u64, random: &mut Random) -> u64 {
    let step = match kind {
        Kind::Digit => return u64::from(b'0') + random.below(10) as u64,
        Kind::Scalar(_) | Kind::Length => 1,
        Kind::Field => 2,
        Kind::Offset | Kind::Vtable => 4,
    };
    let bits = 8 * u32::try_from(kind.size()).unwrap_or(4);
    match random.below(8) {
        0 => 0,
        1 => 1,
        2 => old.wrapping_add(step),
        3 => old.wrapping_sub(step),
        4 => u64::MAX,
        // The largest and the smallest signed integer.
        5 => (1 << (bits - 1)) - 1,
        6 => 1 << (bits - 1),
        _ => random.next() >> random.below(64),
    }
}

fn read(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = [0; 8];
    if let Some(found) = bytes.get(at..at + size) {
        number[..size].copy_from_slice(found);
    }
    u64::from_le_bytes(number)
}

fn write(bytes: &mut [u8], at: usize, size: usize, number: u64) {
    if let Some(target) = bytes.get_mut(at..at + size) {
        target.copy_from_slice(&number.to_le_bytes()[..size]);
    }
}
