//! Methods of several programs that share activation memory and run in turn.

use crate::{Failed, Test, array, close, same, tensor};
use crate::{digits, external_two_files, state_unplanned, torchlet_image, two_methods};
use torchlet::core::InputError;
use torchlet::core::error::InstructionError;
use torchlet::firmware::Error;

pub(crate) const TESTS: &[Test] = &[("methods in turn", turns)];

fn turns() -> Result<(), Failed> {
    let mut memory = torchlet_image::activations()?;
    let shared = &mut memory;
    if !matches!(torchlet_image::activations(), Err(Error::Taken)) {
        return Err(Failed::NotRefused("memory that was taken"));
    }
    let mut two = two_methods::load(shared)?;
    let mut external = external_two_files::load(shared)?;
    let mut counter = state_unplanned::load(shared)?;
    let mut digits = digits::load(shared)?;
    macro_rules! round {
        ($input:literal, $total:literal, $calls:literal) => {
            let y = two.encode(shared, array(tensor!("two_methods.encode.0.in0"))?)?;
            close(y, tensor!("two_methods.encode.0.out0"), "encode")?;
            let y =
                external.forward(shared, array(tensor!("external_two_files.forward.0.in0"))?)?;
            close(y, tensor!("external_two_files.forward.0.out0"), "external")?;
            // Its state is not in the shared memory.
            let (total, calls) = counter.forward(shared, array(tensor!($input))?)?;
            close(total, tensor!($total), "the sum")?;
            same(calls, tensor!($calls), "the number of calls")?;
            let logits = digits.forward(shared, array(tensor!("digits.forward.0.in0"))?)?;
            same(logits, tensor!("digits.forward.0.out0"), "logits")?;
            let y = two.forward(shared, array(tensor!("two_methods.forward.0.in0"))?)?;
            close(y, tensor!("two_methods.forward.0.out0"), "forward")?;
        };
    }
    round!(
        "state_unplanned.forward.0.in0",
        "state_unplanned.forward.0.out0",
        "state_unplanned.forward.0.out1"
    );
    round!(
        "state_unplanned.forward.1.in0",
        "state_unplanned.forward.1.out0",
        "state_unplanned.forward.1.out1"
    );
    round!(
        "state_unplanned.forward.2.in0",
        "state_unplanned.forward.2.out0",
        "state_unplanned.forward.2.out1"
    );

    // Outputs are readable until another method runs, and inputs must be set after that.
    close(two.forward.outputs(shared)?, tensor!("two_methods.forward.0.out0"), "forward, later")?;
    if !matches!(digits.forward.outputs(shared), Err(Error::Input(InputError::Stale))) {
        return Err(Failed::NotRefused("outputs that another method ran over"));
    }
    digits.forward.set_inputs(shared, array(tensor!("digits.forward.0.in0"))?)?;
    two.encode(shared, array(tensor!("two_methods.encode.0.in0"))?)?;
    match digits.forward.as_core().attach(shared)?.execute() {
        Err(error) if error.source == InstructionError::Stale => Ok(()),
        _ => Err(Failed::NotRefused("inputs that another method ran over")),
    }
}
