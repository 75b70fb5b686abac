//! `torchlet inspect`.

mod describe;
mod json;
mod plan;
mod text;

use crate::arguments::{Backend, InspectArguments, ModelOptions, Picture};
use crate::etdump::write_file;
use crate::failure::Failure;
use crate::page::{self, Extras};
use crate::{model, profile};
use describe::Description;
use torchlet::Module;
use torchlet::graph::method::Program;

/// Shows what a program consists of.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<(), Failure> {
    let options = &arguments.model_options;
    // A file is shown as it is, whatever it is going to run on.
    let as_exported = ModelOptions { backend: Backend::AsExported, ..options.clone() };
    let module = model::open(&arguments.model, &as_exported)?;
    if let Some(Picture::Memory) = arguments.svg {
        return picture(&module);
    }
    if let Some(path) = &arguments.html {
        let page = page::page(arguments, &module, &extras(arguments, &module)?)?;
        return write_file(path, page.as_bytes());
    }
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

/// Prints the memory plan of the first method.
fn picture(module: &Module) -> Result<(), Failure> {
    let program = module.program();
    let program = Program::read(&program).map_err(|error| Failure::new(error.to_string()))?;
    let method = program.methods.first();
    let method = method.ok_or_else(|| Failure::new("the program has no method"))?;
    print!("{}", page::svg(method));
    Ok(())
}

/// What the options bring along for the page.
fn extras(arguments: &InspectArguments, exported: &Module) -> Result<Extras, Failure> {
    let source = arguments.etrecord.as_deref().map(|path| {
        let source = profile::Source::read(path, None)?;
        Ok::<_, Failure>(source.with_compiled(exported, "forward"))
    });
    let profile = arguments.profile.as_deref().map(profile::read_profile);
    Ok(Extras { source: source.transpose()?, profile: profile.transpose()? })
}
