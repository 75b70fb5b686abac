//! `torchlet inspect`.

mod describe;
mod json;
mod licences;
mod plan;
mod text;

use crate::arguments::{Diagram, InspectArguments, ModelOptions};
use crate::containers::Container;
use crate::etdump::write_file;
use crate::failure::Failure;
use crate::{containers, model, profile};
use describe::Description;
use torchlet::{Module, RunOn};
use torchlet_page::{Page, memory_plan};

/// Shows the contents of a program.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<(), Failure> {
    let options = &arguments.model_options;
    // The file is shown as exported, independent of the backend.
    let as_exported = ModelOptions { backend: RunOn::AsExported, ..options.clone() };
    let exported = model::open(&arguments.model, &as_exported)?;
    if let Some(Diagram::Memory) = arguments.svg {
        print!("{}", memory_plan(&exported)?);
        return Ok(());
    }
    if let Some(path) = &arguments.html {
        return write_file(path, page(arguments, &exported)?.as_bytes());
    }
    if arguments.licences {
        return licences::show(&exported, arguments.json);
    }
    let description = Description::of(&exported, arguments.target.as_ref())?;
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

/// Renders the HTML page of a program.
fn page(arguments: &InspectArguments, exported: &Module) -> Result<String, Failure> {
    let options = &arguments.model_options;
    let file = arguments.model.file_name().unwrap_or_default().to_string_lossy();
    let profile = arguments.profile.as_deref().map(profile::read_profile).transpose()?;
    let compiled = match options.backend {
        RunOn::AsExported => None,
        // A program that cannot be compiled here is shown as exported only.
        _ => model::open(&arguments.model, options).ok(),
    };
    let source = arguments.etrecord.as_deref().map(|path| {
        let source = profile::Source::read(path, None)?;
        let origins = compiled.as_ref().map(|module| profile::origins(module, "forward"));
        Ok::<_, Failure>(source.with_program(exported, "forward", origins.unwrap_or_default()))
    });
    let source = source.transpose()?;
    let containers = containers::of(exported)?;
    let containers = containers.iter().map(Container::object).collect();
    let mut page = Page::new(&file, exported).containers(containers);
    if let Some(source) = &source {
        page = page.modules(source);
    }
    if let Some((profile, is_as_exported)) = &profile {
        page = page.profile(profile, *is_as_exported);
    }
    if let Some(compiled) = &compiled {
        page = page.compiled(compiled);
    }
    Ok(page.html()?)
}
