//! Runs a program during compilation.

use crate::error::Error;
use crate::package::Package;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use torchlet_core::{
    ArenaBlock, LoadOptions, MethodMemory, Program, Registry, TensorRef, ValueRef,
};

/// Element type of the buffers that a method may use, which determines their alignment.
type Block = u128;

fn blocks(bytes: usize) -> Vec<Block> {
    vec![0; bytes.div_ceil(size_of::<Block>())]
}

/// Runs the first method of a program with kernels of a registry, and passes each output to `take`.
pub(crate) fn run(
    package: &Package<'_>,
    registry: &Registry<'_>,
    inputs: &[TensorRef<'_>],
    mut take: impl FnMut(usize, &TensorRef<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let program = Program::load(package)?;
    let name = program.method_names()?.next().transpose()?;
    let name = name.ok_or_else(|| Error::invalid("the program has no methods"))?;
    let meta = program.method_meta(name)?;
    let options = LoadOptions::default();
    let loading = |error: torchlet_core::InitError| Error::Invalid(error.to_string());
    let table_bytes = meta.table_bytes(&options.limits).map_err(loading)?;
    let mut tables = vec![ArenaBlock::UNINIT; table_bytes.div_ceil(size_of::<ArenaBlock>())];
    let tables: &mut [MaybeUninit<u8>] = ArenaBlock::bytes(&mut tables);
    let prepared = meta.prepare(tables, registry, options).map_err(loading)?;
    let needs = prepared.needs();
    let mut arena = vec![ArenaBlock::UNINIT; needs.arena.div_ceil(size_of::<ArenaBlock>())];
    let mut scratch = blocks(needs.scratch);
    let mut buffers = Vec::new();
    for index in 0..meta.planned_buffer_count() {
        buffers.push(blocks(meta.planned_buffer_size(index)?));
    }
    let mut planned: Vec<&mut [u8]> =
        buffers.iter_mut().map(|buffer| bytemuck::cast_slice_mut(buffer)).collect();
    let memory = MethodMemory {
        arena: ArenaBlock::bytes(&mut arena),
        planned: &mut planned,
        scratch: bytemuck::cast_slice_mut(&mut scratch),
    };
    let mut method = prepared.finish(memory).map_err(loading)?;
    let failed = |what: &dyn core::fmt::Display| Error::Invalid(format!("{what}"));
    for (index, input) in inputs.iter().enumerate() {
        method.set_input_tensor(index, input).map_err(|error| failed(&error))?;
    }
    method.execute().map_err(|error| failed(&error))?;
    for index in 0..method.output_count() {
        match method.output(index).map_err(|error| failed(&error))? {
            ValueRef::Tensor(tensor) => take(index, &tensor)?,
            _ => return Err(Error::Invalid(format!("output {index}: expected a tensor"))),
        }
    }
    Ok(())
}
