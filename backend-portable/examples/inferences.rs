//! Runs a program on the CPU kernels COUNT times, for profilers: `inferences FILE.pte COUNT`.
//!
//! Inputs are zeros. Memory is exactly what the program requires.

use std::error::Error;
use torchlet_core::{
    ArenaBlock, BundledProgram, LoadOptions, MethodMemory, Program, Registry, Scalar, ValueMeta,
};

/// Capacity of the method's tables, far more than small programs need.
const TABLES: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (file, count) = (arguments.next().ok_or("which file?")?, arguments.next());
    let count: u32 = count.ok_or("how many times?")?.parse()?;
    let bytes = std::fs::read(file)?;
    // Extracts the program of a bundle. `Vec<u8>` allocations are 16-byte aligned in practice.
    let bytes = match BundledProgram::from_bytes(&bytes) {
        Ok(bundle) => bundle.program()?.to_vec(),
        Err(_) => bytes,
    };
    let program = Program::from_bytes(&bytes)?;
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS)?;
    let mut tables = vec![ArenaBlock::UNINIT; TABLES];
    let meta = program.method_meta("forward")?;
    let tables = ArenaBlock::bytes(&mut tables);
    let prepared = meta.prepare(tables, &registry, LoadOptions::default())?;
    let blocks = |bytes: usize| vec![ArenaBlock::UNINIT; bytes.div_ceil(size_of::<ArenaBlock>())];
    let needs = prepared.needs();
    let mut arena = blocks(needs.arena);
    let mut scratch = vec![0u128; needs.scratch.div_ceil(16)];
    let mut planned = Vec::new();
    for buffer in 0..meta.planned_buffer_count() {
        planned.push(vec![0u128; meta.planned_buffer_size(buffer)?.div_ceil(16)]);
    }
    let mut planned: Vec<&mut [u8]> =
        planned.iter_mut().map(|buffer| bytemuck::cast_slice_mut(buffer)).collect();
    let mut method = prepared.finish(MethodMemory {
        arena: ArenaBlock::bytes(&mut arena),
        planned: &mut planned,
        scratch: bytemuck::cast_slice_mut(&mut scratch),
    })?;
    let mut zeros: Vec<Vec<u128>> = Vec::new();
    for index in 0..meta.input_count() {
        let bytes = match meta.input(index)? {
            Some(ValueMeta::Tensor(tensor)) => tensor.info.nbytes(),
            _ => 0,
        };
        zeros.push(vec![0; bytes.div_ceil(16)]);
    }
    for (index, zeros) in zeros.iter().enumerate() {
        match meta.input(index)? {
            Some(ValueMeta::Tensor(tensor)) => {
                let bytes = &bytemuck::cast_slice(zeros)[..tensor.info.nbytes()];
                let tensor = torchlet_core::TensorRef::new(tensor.info, bytes);
                method.set_input_tensor(index, &tensor.ok_or("an input of odd shape")?)?;
            }
            Some(ValueMeta::Scalar(Scalar::Int(_))) => {
                method.set_input(index, &Scalar::Int(0).into())?
            }
            _ => {}
        }
    }
    for _ in 0..count {
        method.execute()?;
    }
    Ok(())
}
