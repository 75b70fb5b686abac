//! Hash maps keyed by the small indices of values and calls, which are looked up for every encoded
//! call.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
pub(crate) type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Multiplicative hashing. Keys chosen to collide are harmless: a file has at most as many keys as
/// values, and they differ in their low bits, as do their hashes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdHasher(u64);

/// 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // Hash tables use both the lowest and the highest bits.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, Hash};

    fn hash(of: impl Hash) -> u64 {
        BuildHasherDefault::<IdHasher>::default().hash_one(of)
    }

    #[test]
    fn small_ids_hash_to_distinct_buckets() {
        let ids: Vec<u64> = (0usize..4096).map(hash).collect();
        let lowest: HashSet<u64> = ids.iter().map(|hash| hash % 4096).collect();
        let highest: HashSet<u64> = ids.iter().map(|hash| hash >> 57).collect();
        assert!(lowest.len() > 2000, "{}", lowest.len());
        assert_eq!(highest.len(), 128);
        // Pairs of a call and a per-call counter do not collide either.
        let pairs: HashSet<u64> =
            (0usize..1024).flat_map(|call| (0usize..4).map(move |at| hash((call, at)))).collect();
        assert_eq!(pairs.len(), 4096);
    }
}
