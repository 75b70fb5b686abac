//! Differences as a table and as JSON.

use super::Compared;
use crate::terminal::{BAD, FAINT, GOOD, NAME, TITLE, count, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet_devtools::Difference;

/// Shows all values in execution order, and the first one out of tolerance.
pub(super) fn show(compared: &[Compared], left: &str, right: &str) {
    println!("{right} against {left}");
    let header = format!(
        "{:>10} {:>10} {:>8} {:>10} {:>6}  value",
        "max", "mean", "SNR dB", "cosine", "NaNs"
    );
    println!("{}", paint(TITLE, header));
    for value in compared {
        let figures = match &value.difference {
            Ok(difference) => figures(difference),
            Err(why) => format!("{:>48}", why),
        };
        let figures = if value.is_close() { figures } else { paint(BAD, figures) };
        println!("{figures}  {}", described(value));
    }
    let bad = compared.iter().filter(|value| !value.is_close()).count();
    let all = count(compared.len(), "value");
    let Some(first) = compared.iter().find(|value| !value.is_close()) else {
        println!("\n{}", paint(GOOD, format!("{all}, all in tolerance")));
        return;
    };
    println!("\n{}", paint(BAD, format!("{bad} of {all} out of tolerance")));
    println!("the first is {}", described(first));
    if let Ok(Difference { first: Some((index, found, expected)), mismatches, count, .. }) =
        &first.difference
    {
        println!(
            "  element {index} is {found}, expected {expected}; {mismatches} of {count} elements \
             are out of tolerance"
        );
    }
    match &first.origin {
        Some(origin) => {
            let made_of: Vec<String> = origin.made_of.iter().map(|at| format!("#{at}")).collect();
            let inputs = if made_of.is_empty() {
                "inputs and constants".to_owned()
            } else {
                made_of.join(", ")
            };
            println!(
                "  computed by instruction {} ({}) from {inputs}, which are in tolerance",
                origin.instruction, origin.operator
            );
        }
        None => println!(
            "  all intermediate values are in tolerance: the difference comes from fusion or \
             16-bit arithmetic, which recording intermediate values turns off"
        ),
    }
}

fn figures(difference: &Difference) -> String {
    let Difference { max, mean, snr, cosine, nans, .. } = difference;
    let snr = if snr.is_infinite() { "exact".to_owned() } else { format!("{snr:.1}") };
    let nans = match nans {
        [0, 0] => String::new(),
        [found, expected] => format!("{found}/{expected}"),
    };
    format!("{max:>10.2e} {mean:>10.2e} {snr:>8} {cosine:>10.7} {nans:>6}")
}

fn described(value: &Compared) -> String {
    match &value.origin {
        Some(origin) => {
            let result =
                if origin.result > 0 { format!(".{}", origin.result) } else { String::new() };
            let number = paint(FAINT, format!("#{}{result}", origin.instruction));
            format!("{number} {} {}", paint(NAME, &origin.operator), value.what)
        }
        None => format!("{} {}", paint(TITLE, format!("output {}", value.output)), value.what),
    }
}

/// Returns the differences as JSON.
pub(super) fn object(compared: &[Compared]) -> Value {
    let number =
        |number: f64| if number.is_finite() { json!(number) } else { json!(number.to_string()) };
    let values = compared.iter().map(|value| {
        let mut object = json!({ "value": value.what, "close": value.is_close() });
        match &value.origin {
            Some(origin) => {
                object["instruction"] = origin.instruction.into();
                object["operator"] = origin.operator.clone().into();
                object["result"] = origin.result.into();
            }
            None => object["output"] = value.output.into(),
        }
        match &value.difference {
            Ok(difference) => {
                object["max"] = number(difference.max);
                object["mean"] = number(difference.mean);
                object["snr"] = number(difference.snr);
                object["cosine"] = number(difference.cosine);
                object["nans"] = json!(difference.nans);
                object["mismatches"] = difference.mismatches.into();
            }
            Err(why) => object["error"] = why.clone().into(),
        }
        object
    });
    json!({
        "close": compared.iter().all(Compared::is_close),
        "first": compared.iter().position(|value| !value.is_close()),
        "values": values.collect::<Vec<_>>(),
    })
}
