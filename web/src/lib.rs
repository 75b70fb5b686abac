//! The native part of the package for JavaScript: a program, what it says of itself, and runs of
//! it.
//!
//! It is small and passes plain things: names, numbers, bytes. What makes it pleasant, and what
//! happens where it ends in a trap, is written in TypeScript (`web/api`). An instance of the module
//! holds one program: all its memory goes when that goes, and a trap ends nothing else. Start
//! reading at [`LoadedProgram`].

mod describe;
mod values;

use std::sync::Mutex;
use torchlet::{Module, RunOn};
use torchlet_page::Page;
use values::{InputValues, OutputValues, Side};
use wasm_bindgen::prelude::*;

/// What a panic said last: it ends in a trap, which says nothing.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Notes what a panic says. To be called first.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.try_lock() {
            *text = info.to_string();
        }
    }));
}

/// What a panic said, for those who caught its trap.
#[wasm_bindgen(js_name = lastPanic)]
pub fn last_panic() -> String {
    PANIC.try_lock().map(|text| text.clone()).unwrap_or_default()
}

/// The bytes of memory that this instance has taken from the system; it gives none back.
#[wasm_bindgen(js_name = memoryBytes)]
pub fn memory_bytes() -> f64 {
    const PAGE: f64 = 65536.0;
    #[cfg(target_arch = "wasm32")]
    let pages = core::arch::wasm32::memory_size(0) as f64;
    #[cfg(not(target_arch = "wasm32"))]
    let pages = 0.0;
    pages * PAGE
}

/// An error as JavaScript gets it.
fn failure(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

/// How a program is opened.
#[wasm_bindgen]
#[derive(Default)]
pub struct Opening {
    data: Vec<Vec<u8>>,
    as_exported: bool,
    memory_limit: Option<u64>,
}

#[wasm_bindgen]
impl Opening {
    /// With nothing but the program.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Opening {
        Opening::default()
    }

    /// A file of external data that belongs to it.
    pub fn data(&mut self, bytes: Vec<u8>) {
        self.data.push(bytes);
    }

    /// Leaves the program as it was exported, instead of compiling it.
    #[wasm_bindgen(js_name = asExported)]
    pub fn as_exported(&mut self) {
        self.as_exported = true;
    }

    /// The most memory that a method may take for itself.
    #[wasm_bindgen(js_name = memoryLimit)]
    pub fn memory_limit(&mut self, bytes: f64) {
        self.memory_limit = Some(bytes.max(0.0) as u64);
    }

    /// Opens a program.
    ///
    /// # Errors
    /// It is malformed, or needs what is not here.
    pub fn open(self, bytes: Vec<u8>) -> Result<LoadedProgram, JsError> {
        let run_on = if self.as_exported { RunOn::AsExported } else { RunOn::Cpu };
        let builder = || {
            let builder = Module::builder().threads(1);
            let builder = match self.memory_limit {
                Some(bytes) => builder.memory_limit(bytes),
                None => builder,
            };
            let data = self.data.iter();
            data.fold(builder, |builder, bytes| builder.data_bytes(bytes.clone()))
        };
        let module = builder().run_on(run_on).from_bytes(bytes).map_err(failure)?;
        Ok(LoadedProgram { module })
    }
}

/// A program, ready to be called.
#[wasm_bindgen]
pub struct LoadedProgram {
    module: Module,
}

#[wasm_bindgen]
impl LoadedProgram {
    /// What it consists of, as JSON.
    ///
    /// # Errors
    /// It is malformed.
    pub fn describe(&self) -> Result<String, JsError> {
        describe::program(&self.module).map(|value| value.to_string()).map_err(failure)
    }

    /// Loads a method, which its first call would do.
    ///
    /// # Errors
    /// There is none of the name, or it needs what is not here.
    pub fn load(&mut self, method: &str) -> Result<(), JsError> {
        self.module.load_method(method).map_err(failure)
    }

    /// Calls a method.
    ///
    /// # Errors
    /// The inputs do not fit, or the program fails with them.
    pub fn execute(&mut self, method: &str, inputs: InputValues) -> Result<OutputValues, JsError> {
        let values = inputs.into_values();
        self.module.execute(method, values).map(OutputValues::new).map_err(failure)
    }

    /// Sets a method's state back to what it was at first.
    ///
    /// # Errors
    /// There is no method of the name.
    pub fn reset(&mut self, method: &str) -> Result<(), JsError> {
        self.module.reset(method).map_err(failure)
    }

    /// What a test case of the file gives to a method; nothing where there is no such case.
    ///
    /// # Errors
    /// It is malformed.
    #[wasm_bindgen(js_name = caseInputs)]
    pub fn case_inputs(&self, method: &str, case: usize) -> Result<Option<OutputValues>, JsError> {
        values::case(&self.module, method, case, Side::Inputs).map_err(failure)
    }

    /// What a test case of the file expects of a method: PyTorch's numbers.
    ///
    /// # Errors
    /// It is malformed.
    #[wasm_bindgen(js_name = caseOutputs)]
    pub fn case_outputs(&self, method: &str, case: usize) -> Result<Option<OutputValues>, JsError> {
        values::case(&self.module, method, case, Side::Outputs).map_err(failure)
    }

    /// A page that shows graphs, memory plans and weights. The bytes are those that the program was
    /// opened from.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn page(&self, file: &str, bytes: Vec<u8>) -> Result<String, JsError> {
        let exported = Module::builder().threads(1).run_on(RunOn::AsExported).from_bytes(bytes);
        let exported = exported.map_err(failure)?;
        Page::new(file, &exported).compiled(&self.module).html().map_err(failure)
    }
}
