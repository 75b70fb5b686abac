//! [`Model`]: the program interface that a runner requires.

use torchlet_core::{MethodMeta, TensorInfo, ValueMeta, ValueRef};

/// Error of a [`Model`].
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A loaded program, as used by a [`Runner`](crate::Runner).
pub trait Model: Send {
    /// Returns the names of the methods.
    ///
    /// # Errors
    /// The program is malformed.
    fn method_names(&self) -> Result<Vec<String>, Failure>;

    /// Returns the inputs and outputs of a method.
    ///
    /// # Errors
    /// The method does not exist, or the program is malformed.
    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure>;

    /// Returns the dtype and shape of a method's first output, if it is a tensor. Dynamic shapes
    /// are reported at their maximum.
    ///
    /// # Errors
    /// The method does not exist, or the program is malformed.
    fn output_info(&self, method: &str) -> Result<Option<TensorInfo>, Failure> {
        match self.method_meta(method)?.output(0)? {
            Some(ValueMeta::Tensor(tensor)) => Ok(Some(tensor.info)),
            _ => Ok(None),
        }
    }

    /// Loads a method.
    ///
    /// # Errors
    /// The method does not exist, or cannot be loaded.
    fn load(&mut self, method: &str) -> Result<(), Failure>;

    /// Runs a method, and calls `read` with the index and value of each output, in order.
    ///
    /// # Errors
    /// An input does not fit, or the method failed.
    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure>;

    /// Runs a method as [`run`](Self::run). If the device can compute the argmax of the first
    /// output without transferring it, such as a GPU, returns that instead of passing the output to
    /// `read`.
    ///
    /// The argmax is over the last dim, one index per row. The first of equal maxima wins. An index
    /// is `None` if no element of the row is greater than minus infinity; NaN elements are ignored.
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

    /// Restores the initial values of a method's state, such as its KV cache.
    ///
    /// # Errors
    /// A delegate failed.
    fn reset(&mut self, method: &str) -> Result<(), Failure>;

    /// Returns the dtypes and shapes of a method's state tensors, such as its KV cache.
    ///
    /// # Errors
    /// The method does not exist, or the program is malformed.
    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure>;

    /// Returns the number of sequences that a run may have. With 2 or more, the methods that keep
    /// state have a slot for each: their inputs and outputs have a leading dim of rows, integers
    /// are tensors of rank 1, and an additional last input names the slot of each row.
    fn sequences(&self) -> usize {
        1
    }

    /// Returns the inputs and outputs of a method as exported, for one sequence.
    ///
    /// # Errors
    /// The method does not exist, or the program is malformed.
    fn exported_method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        self.method_meta(method)
    }

    /// Restores the initial values of a method's state in one slot.
    ///
    /// # Errors
    /// The model has no slots, or a delegate failed.
    fn reset_sequence(&mut self, method: &str, slot: usize) -> Result<(), Failure> {
        Err(format!("the method '{method}' has no slot {slot}").into())
    }

    /// Returns the same program with separate state.
    fn new_instance(&self) -> Box<dyn Model>;

    /// Like [`new_instance`](Self::new_instance), but this model is not used any more: a defect
    /// left its state unknown.
    fn replaced(&mut self) -> Box<dyn Model> {
        self.new_instance()
    }

    /// Whether the state is lost because of a defect elsewhere: the model has to be
    /// [replaced](Self::replaced).
    fn is_lost(&self) -> bool {
        false
    }
}
