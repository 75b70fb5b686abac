//! `torchlet inspect`.

mod describe;
mod json;
mod text;

use crate::arguments::InspectArguments;
use crate::failure::Failure;
use crate::model;
use describe::Description;

/// Shows what a program consists of.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<(), Failure> {
    let module = model::open(&arguments.model, &arguments.model_options)?;
    let description = Description::of(&module, arguments.target.as_ref())?;
    if arguments.json {
        println!("{}", json::object(&arguments.model, &description));
    } else {
        text::show(&arguments.model, &description);
    }
    Ok(())
}
