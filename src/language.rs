//! Lets language models run on a [`Module`].

use crate::module::Module;
use torchlet_core::{MethodMeta, TensorInfo, ValueRef};
use torchlet_llm::{Failure, Model};

impl Model for Module {
    fn method_names(&self) -> Result<Vec<String>, Failure> {
        Ok(Module::method_names(self)?)
    }

    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        Ok(Module::method_meta(self, method)?)
    }

    fn load(&mut self, method: &str) -> Result<(), Failure> {
        Ok(self.load_method(method)?)
    }

    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure> {
        let mut method = self.method(method)?;
        method.execute_ref(inputs)?;
        for index in 0..method.output_count() {
            read(index, method.output(index)?);
        }
        Ok(())
    }

    fn run_argmax(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<Vec<Option<u32>>>, Failure> {
        let mut method = self.method(method)?;
        method.set_inputs_ref(inputs)?;
        let found = match method.output_count() {
            0 => method.run().map(|()| None),
            _ => method.run_argmax(0),
        }?;
        for index in usize::from(found.is_some())..method.output_count() {
            read(index, method.output(index)?);
        }
        Ok(found)
    }

    fn reset(&mut self, method: &str) -> Result<(), Failure> {
        Ok(Module::reset(self, method)?)
    }

    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
        Ok(self.method(method)?.state()?.into_iter().map(|tensor| tensor.info).collect())
    }

    fn sequences(&self) -> usize {
        Module::sequences(self)
    }

    fn exported_method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        Ok(Module::exported_method_meta(self, method)?)
    }

    fn reset_sequence(&mut self, method: &str, slot: usize) -> Result<(), Failure> {
        let mut method = self.method(method)?;
        for tensor in method.state()? {
            method.clear_state_slot(tensor.value, slot)?;
        }
        Ok(())
    }

    fn new_instance(&self) -> Box<dyn Model> {
        Box::new(self.share())
    }
}
