//! What a runner asks of a loaded program.

use torchlet_core::{MethodMeta, TensorInfo, ValueMeta, ValueRef};

/// Why a [`Model`] failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A loaded program, as a [`Runner`](crate::Runner) sees it.
pub trait Model: Send {
    /// Names of the methods.
    ///
    /// # Errors
    /// The program is malformed.
    fn method_names(&self) -> Result<Vec<String>, Failure>;

    /// What a method takes and gives.
    ///
    /// # Errors
    /// There is no such method, or the program is malformed.
    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure>;

    /// Type and shape of a method's first output, if that is a tensor; where the shape may vary,
    /// the largest.
    ///
    /// # Errors
    /// There is no such method, or the program is malformed.
    fn gives(&self, method: &str) -> Result<Option<TensorInfo>, Failure> {
        match self.method_meta(method)?.output(0)? {
            Some(ValueMeta::Tensor(tensor)) => Ok(Some(tensor.info)),
            _ => Ok(None),
        }
    }

    /// Gets a method ready to run.
    ///
    /// # Errors
    /// What is missing or wrong.
    fn load(&mut self, method: &str) -> Result<(), Failure>;

    /// Runs a method, and shows its outputs, in order, with their numbers.
    ///
    /// # Errors
    /// An input does not fit, or the method failed.
    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure>;

    /// Runs a method, and shows its outputs as [`run`](Self::run) does, but for the first one where
    /// it is known without its numbers, as on a GPU, where the largest in each of its rows, of the
    /// last dimension, is. Then that is the answer: the first of equals, and `None` for a row that
    /// has none larger than minus infinity. What is not a number is none.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn run_argmax(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<Vec<Option<u32>>>, Failure> {
        self.run(method, inputs, read).map(|()| None)
    }

    /// Gives a method's state, such as its caches, its first values again.
    ///
    /// # Errors
    /// A delegate failed.
    fn reset(&mut self, method: &str) -> Result<(), Failure>;

    /// Types and shapes of the tensors that a method keeps from run to run, such as its caches.
    ///
    /// # Errors
    /// There is no such method, or the program is malformed.
    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure>;

    /// The same program with state of its own.
    fn another(&self) -> Box<dyn Model>;
}
