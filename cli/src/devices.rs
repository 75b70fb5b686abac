//! `torchlet devices`.

use crate::terminal::{FAINT, NAME, count, paint};
use serde_json::{Value, json};
use std::thread::available_parallelism;
use torchlet::graph::device::{DeviceListing, DeviceOptions, Property};
use torchlet::portable::compute::simd::Tier;
use torchlet::{DEVICE_APIS, DEVICE_NAMES};

/// Lists the processors and devices that programs can run on.
pub(crate) fn devices(json: bool) {
    let threads = available_parallelism().map_or(1, usize::from);
    let architecture = std::env::consts::ARCH;
    if json {
        let tiers: Vec<&str> = Tier::available().map(Tier::name).collect();
        let portable = json!({ "architecture": architecture, "tiers": tiers, "threads": threads });
        let mut all = json!({ "portable": portable });
        for name in DEVICE_NAMES {
            all[name] = match listed(name) {
                Ok(found) => {
                    let devices = found.into_iter().map(|device| object(device.properties));
                    json!({ "devices": devices.collect::<Vec<_>>() })
                }
                Err(error) => json!({ "error": error }),
            };
        }
        println!("{all:#}");
        return;
    }
    let tier = Tier::detect().name();
    let threads = count(threads, "thread");
    anstream::println!("{}  {architecture}, {tier}, {threads}", paint(NAME, "portable"));
    for name in DEVICE_NAMES {
        match listed(name) {
            Ok(found) => found.iter().for_each(|device| show(name, device)),
            Err(error) => anstream::println!("{}    {}", paint(NAME, name), paint(FAINT, error)),
        }
    }
}

/// The devices of an API, with cached findings of earlier loads of this command.
fn listed(name: &str) -> Result<Vec<DeviceListing>, String> {
    let api = DEVICE_APIS.iter().find(|api| api.name() == name);
    let api = api.ok_or_else(|| format!("built without the feature `{name}`"))?;
    let cache = crate::model::pipeline_folder(*api, None);
    let options = DeviceOptions { cache, ..DeviceOptions::default() };
    api.devices(&options).map_err(|error| error.to_string())
}

fn show(name: &str, device: &DeviceListing) {
    let mut lines = device.lines.iter();
    anstream::println!("{}  {}", paint(NAME, name), lines.next().map_or("", String::as_str));
    for line in lines {
        anstream::println!("{}", paint(FAINT, format!("           {line}")));
    }
}

fn object(properties: Vec<(&'static str, Property)>) -> Value {
    Value::Object(properties.into_iter().map(|(name, it)| (name.into(), json(it))).collect())
}

fn json(property: Property) -> Value {
    match property {
        Property::None => Value::Null,
        Property::Bool(value) => value.into(),
        Property::Number(value) => value.into(),
        Property::Text(text) => text.into(),
        Property::List(items) => items.into_iter().map(json).collect(),
        Property::Object(properties) => object(properties),
    }
}
