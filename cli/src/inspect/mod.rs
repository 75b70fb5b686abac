//! `torchlet inspect`.

mod describe;
mod json;
mod plan;
mod text;

use crate::arguments::{Backend, InspectArguments, ModelOptions};
use crate::failure::Failure;
use crate::model;
use describe::Description;

/// Shows what a program consists of.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<(), Failure> {
    let options = &arguments.model_options;
    // A file is shown as it is, whatever it is going to run on.
    let as_exported = ModelOptions { backend: Backend::AsExported, ..options.clone() };
    let module = model::open(&arguments.model, &as_exported)?;
    let description = Description::of(&module, arguments.target.as_ref())?;
    let planned = arguments.plan.then(|| model::open(&arguments.model, options)).transpose()?;
    if arguments.json {
        let mut object = json::object(&arguments.model, &description);
        if let Some(module) = &planned {
            object["plan"] = plan::object(module.plan());
        }
        println!("{object}");
        return Ok(());
    }
    text::show(&arguments.model, &description);
    if let Some(module) = &planned {
        plan::show(module);
    }
    Ok(())
}
