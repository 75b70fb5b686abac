//! Inline lists of at most `N` items, without heap: shapes, lists of integers.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// A list of at most `N` items, stored inline. Dereferences to a slice.
#[derive(Clone, PartialEq, Eq)]
pub struct Bounded<T, const N: usize>(heapless::Vec<T, N, u8>);

/// Error: the list is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CapacityError;

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list is full")
    }
}

impl core::error::Error for CapacityError {}

impl<T, const N: usize> Bounded<T, N> {
    /// An empty list.
    pub const fn new() -> Self {
        Bounded(heapless::Vec::new())
    }

    /// Creates a list from a slice.
    ///
    /// # Errors
    /// The slice has more than `N` items.
    pub fn from_slice(items: &[T]) -> Result<Self, CapacityError>
    where
        T: Clone,
    {
        heapless::Vec::from_slice(items).map(Bounded).map_err(|_| CapacityError)
    }

    /// Appends an item.
    ///
    /// # Errors
    /// The list is full.
    pub fn push(&mut self, item: T) -> Result<(), CapacityError> {
        self.0.push(item).map_err(|_| CapacityError)
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Inserts an item before the one at `index`, or at the end.
    ///
    /// # Errors
    /// The list is full, or `index` is past the end.
    pub fn insert(&mut self, index: usize, item: T) -> Result<(), CapacityError> {
        if index > self.0.len() {
            return Err(CapacityError);
        }
        self.0.insert(index, item).map_err(|_| CapacityError)
    }

    /// Removes the item at `index`; `None` if out of range.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        (index < self.0.len()).then(|| self.0.remove(index))
    }

    /// Resizes the list to `len`, filling new entries with copies of `item`.
    ///
    /// # Errors
    /// `len` exceeds `N`.
    pub fn resize(&mut self, len: usize, item: T) -> Result<(), CapacityError>
    where
        T: Clone,
    {
        self.0.resize(len, item).map_err(|_| CapacityError)
    }

    /// Appends all items of a slice.
    ///
    /// # Errors
    /// They do not all fit; the list is unchanged.
    pub fn extend_from_slice(&mut self, items: &[T]) -> Result<(), CapacityError>
    where
        T: Clone,
    {
        self.0.extend_from_slice(items).map_err(|_| CapacityError)
    }

    /// Shortens the list to the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> Default for Bounded<T, N> {
    fn default() -> Self {
        Bounded::new()
    }
}

impl<T, const N: usize> Deref for Bounded<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> DerefMut for Bounded<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Bounded<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Ignores items beyond the first `N`.
impl<T, const N: usize> FromIterator<T> for Bounded<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Bounded::new();
        for item in items.into_iter().take(N) {
            // Cannot fail: at most N items are pushed.
            let _ = list.push(item);
        }
        list
    }
}

impl<T, const N: usize> IntoIterator for Bounded<T, N> {
    type Item = T;
    type IntoIter = IntoIter<T, N>;
    fn into_iter(self) -> IntoIter<T, N> {
        IntoIter(self.0.into_iter())
    }
}

/// By-value iterator over a [`Bounded`] list.
pub struct IntoIter<T, const N: usize>(heapless::vec::IntoIter<T, N, u8>);

impl<T, const N: usize> Iterator for IntoIter<T, N> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Bounded<T, N> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;
    fn into_iter(self) -> core::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a mut Bounded<T, N> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;
    fn into_iter(self) -> core::slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T]> for Bounded<T, N> {
    fn eq(&self, other: &[T]) -> bool {
        self.as_slice() == other
    }
}

impl<T: PartialEq, const N: usize, const M: usize> PartialEq<[T; M]> for Bounded<T, N> {
    fn eq(&self, other: &[T; M]) -> bool {
        self.as_slice() == other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<&[T]> for Bounded<T, N> {
    fn eq(&self, other: &&[T]) -> bool {
        self.as_slice() == *other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<Bounded<T, N>> for [T] {
    fn eq(&self, other: &Bounded<T, N>) -> bool {
        self == other.as_slice()
    }
}
