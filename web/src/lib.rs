//! The native part of the JavaScript package: loads, describes and runs a program.
//!
//! It is small and passes simple types only: strings, numbers, bytes. The convenient interface, and
//! the handling of traps, are written in TypeScript (`web/api`). An instance of the module holds
//! one program: its memory is freed with it, and a trap affects no other program. Start reading at
//! [`LoadedProgram`].

#![forbid(unsafe_code)]

mod describe;
mod values;

use std::sync::Mutex;
use torchlet::{Module, RunOn};
use torchlet_page::Page;
use values::{InputValues, OutputValues, Side};
use wasm_bindgen::prelude::*;

/// Message of the last panic, because the resulting trap has none.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Installs the panic hook. Called once at instantiation.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.try_lock() {
            *text = info.to_string();
        }
    }));
}

/// Returns the message of the last panic.
#[wasm_bindgen(js_name = lastPanic)]
pub fn last_panic() -> String {
    PANIC.try_lock().map(|text| text.clone()).unwrap_or_default()
}

/// Bytes of memory that this instance has allocated from the engine; it never shrinks.
#[wasm_bindgen(js_name = memoryBytes)]
pub fn memory_bytes() -> f64 {
    const PAGE: f64 = 65536.0;
    #[cfg(target_arch = "wasm32")]
    let pages = core::arch::wasm32::memory_size(0) as f64;
    #[cfg(not(target_arch = "wasm32"))]
    let pages = 0.0;
    pages * PAGE
}

/// Converts an error for JavaScript.
fn failure(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

/// Options for opening a program.
#[wasm_bindgen]
#[derive(Default)]
pub struct Opening {
    data: Vec<Vec<u8>>,
    as_exported: bool,
    memory_limit: Option<u64>,
}

#[wasm_bindgen]
impl Opening {
    /// Creates default options.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Opening {
        Opening::default()
    }

    /// Adds a file of external data.
    pub fn data(&mut self, bytes: Vec<u8>) {
        self.data.push(bytes);
    }

    /// Runs the program as exported, instead of compiling it.
    #[wasm_bindgen(js_name = asExported)]
    pub fn as_exported(&mut self) {
        self.as_exported = true;
    }

    /// Sets the memory limit of a method in bytes.
    #[wasm_bindgen(js_name = memoryLimit)]
    pub fn memory_limit(&mut self, bytes: f64) {
        self.memory_limit = Some(bytes.max(0.0) as u64);
    }

    /// Opens a program.
    ///
    /// # Errors
    /// If the file is malformed, or requires unsupported operators or backends.
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

/// A loaded program.
#[wasm_bindgen]
pub struct LoadedProgram {
    module: Module,
}

#[wasm_bindgen]
impl LoadedProgram {
    /// Describes the program as JSON.
    ///
    /// # Errors
    /// If the file is malformed.
    pub fn describe(&self) -> Result<String, JsError> {
        describe::program(&self.module).map(|value| value.to_string()).map_err(failure)
    }

    /// Loads a method; the first call would do so too.
    ///
    /// # Errors
    /// If the method does not exist, or requires unsupported operators or backends.
    pub fn load(&mut self, method: &str) -> Result<(), JsError> {
        self.module.load_method(method).map_err(failure)
    }

    /// Executes a method.
    ///
    /// # Errors
    /// If the inputs do not match, or the program fails.
    pub fn execute(&mut self, method: &str, inputs: InputValues) -> Result<OutputValues, JsError> {
        let values = inputs.into_values();
        self.module.execute(method, values).map(OutputValues::new).map_err(failure)
    }

    /// Resets a method's state to its initial values.
    ///
    /// # Errors
    /// If the method does not exist.
    pub fn reset(&mut self, method: &str) -> Result<(), JsError> {
        self.module.reset(method).map_err(failure)
    }

    /// The inputs of a test case; `None` if it does not exist.
    ///
    /// # Errors
    /// If the test case is malformed.
    #[wasm_bindgen(js_name = caseInputs)]
    pub fn case_inputs(&self, method: &str, case: usize) -> Result<Option<OutputValues>, JsError> {
        values::case(&self.module, method, case, Side::Inputs).map_err(failure)
    }

    /// The expected outputs of a test case, as computed by PyTorch; `None` if it does not exist.
    ///
    /// # Errors
    /// If the test case is malformed.
    #[wasm_bindgen(js_name = caseOutputs)]
    pub fn case_outputs(&self, method: &str, case: usize) -> Result<Option<OutputValues>, JsError> {
        values::case(&self.module, method, case, Side::Outputs).map_err(failure)
    }

    /// Renders an HTML page with graphs, memory plans and weights. `bytes` is the file that the
    /// program was opened from.
    ///
    /// # Errors
    /// If the page cannot be rendered.
    pub fn page(&self, file: &str, bytes: Vec<u8>) -> Result<String, JsError> {
        let exported = Module::builder().threads(1).run_on(RunOn::AsExported).from_bytes(bytes);
        let exported = exported.map_err(failure)?;
        Page::new(file, &exported).compiled(&self.module).html().map_err(failure)
    }
}
