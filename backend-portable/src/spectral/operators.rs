//! `_fft_c2c`, `_fft_r2c` and `_fft_c2r`.

use super::transform::Transform;
use crate::compute::split::for_each_tile_mut;
use crate::elementwise::complex::{Complex, is_complex, part, read, write};
use crate::number::{load, store, unsupported};
use crate::real::Real;
use crate::scratch;
use crate::shape::bad;
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Bool, Int, IntList, Out, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Bounded, Invoke, InvokeFn, Kernel, KernelError, Parallel, Plan, Prepare, ScalarType,
    TensorInfo, TensorRef,
};

kernels! { FOURIER:
    /// `aten::_fft_c2c.out(self, dim, normalization, forward, out)`: the forward or inverse
    /// transform over the dims `dim`. `normalization` selects the divisor: 1 (0), the square
    /// root of the number of transformed values (1), or that number (2).
    FFT_C2C_OUT = Kernel::new("aten::_fft_c2c.out", &[Tensor, IntList, Int, Bool, Out], |ctx| {
        let input = ctx.info(0)?;
        complex(0, &input)?;
        let size = input.sizes;
        prepare(ctx, 4, &size, size.len(), [to_complex::<f32>, to_complex::<f64>])
    });
    /// `aten::_fft_r2c.out(self, dim, normalization, onesided, out)`: the transform of real values.
    /// With `onesided`, the last dimension of `dim` has only the first half of the result; the rest
    /// is redundant.
    FFT_R2C_OUT = Kernel::new("aten::_fft_r2c.out", &[Tensor, IntList, Int, Bool, Out], |ctx| {
        let input = ctx.info(0)?;
        if !input.scalar_type.is_floating() {
            return Err(unsupported(0, input.scalar_type));
        }
        let mut sizes = input.sizes;
        let last = dims(ctx)?.last().copied().ok_or(bad(1, "expected at least one dim"))?;
        if ctx.bool(3)?
            && let Some(size) = sizes.get_mut(last)
        {
            *size = *size / 2 + 1;
        }
        prepare(ctx, 4, &sizes, last, [to_complex::<f32>, to_complex::<f64>])
    });
    /// `aten::_fft_c2r.out(self, dim, normalization, last_dim_size, out)`: the inverse transform to
    /// real values, `last_dim_size` of them in the last dimension of `dim`. `self` has the first
    /// half of the spectrum.
    FFT_C2R_OUT = Kernel::new("aten::_fft_c2r.out", &[Tensor, IntList, Int, Int, Out], |ctx| {
        let input = ctx.info(0)?;
        complex(0, &input)?;
        let last = dims(ctx)?.last().copied().ok_or(bad(1, "expected at least one dim"))?;
        ctx.scratch_at_most(scratch_for(ctx, 4, last)?);
        let size = i32::try_from(ctx.int(3)?).ok().filter(|size| *size > 0);
        let size = size.ok_or(bad(3, "size of the last dim: expected 1 to 2^31 - 1"))?;
        if input.size(last) < size as usize / 2 + 1 {
            return Err(bad(3, "size exceeds what the last dim of the spectrum determines, 2 * \
                               (values - 1) + 1"));
        }
        let mut sizes = input.sizes;
        if let Some(slot) = sizes.get_mut(last) {
            *slot = size;
        }
        let out = ctx.info(4)?;
        if part(input.scalar_type) != Some(out.scalar_type) {
            return Err(unsupported(4, out.scalar_type));
        }
        prepare(ctx, 4, &sizes, last, [to_real::<f32>, to_real::<f64>])
    });
}

type Dims = Bounded<usize, MAX_RANK>;

/// The dims, which must differ.
fn dims(args: &Arguments) -> Result<Dims, KernelError> {
    let rank = args.info(0)?.rank();
    let mut dims = Dims::new();
    for dim in &args.ints(1)? {
        let dim = (rank > 0).then(|| normalize_dim(*dim, rank)).flatten();
        let dim = dim.filter(|dim| !dims.contains(dim));
        let dim = dim.ok_or(bad(1, "expected distinct dims of the tensor"))?;
        dims.push(dim).map_err(|_| bad(1, "more dims than the highest supported rank"))?;
    }
    Ok(dims)
}

fn complex(arg: usize, info: &TensorInfo) -> Result<(), KernelError> {
    // PyTorch has no FFT of 16-bit complex numbers on CPUs.
    let known = [ScalarType::ComplexFloat, ScalarType::ComplexDouble].contains(&info.scalar_type);
    if known { Ok(()) } else { Err(unsupported(arg, info.scalar_type)) }
}

/// Length of the transform over a dim, from the shapes of input and output. For one-sided
/// spectra, the length of the real side.
fn full_size(args: &Arguments, dim: usize, last: usize) -> Result<usize, KernelError> {
    let (input, out) = (args.info(0)?, args.info(4)?);
    let is_one_sided = dim == last && is_complex(input.scalar_type) != is_complex(out.scalar_type);
    Ok(match is_one_sided && !is_complex(out.scalar_type) {
        true => out.size(dim),
        false => input.size(dim),
    })
}

fn prepare(
    ctx: &mut Prepare,
    out: usize,
    sizes: &[i32],
    last: usize,
    functions: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    if !(0..=2).contains(&ctx.int(2)?) {
        return Err(bad(2, "normalization: expected 0, 1 or 2"));
    }
    ctx.resize(out, sizes)?;
    let (input, found) = (ctx.info(0)?, ctx.info(out)?);
    let number = |info: &TensorInfo| part(info.scalar_type).unwrap_or(info.scalar_type);
    let both = [ScalarType::Float, ScalarType::Double];
    if number(&input) != number(&found) || !both.contains(&number(&found)) {
        return Err(unsupported(out, found.scalar_type));
    }
    let is_double = number(&found) == ScalarType::Double;
    let scratch = scratch_for(ctx, out, last)?;
    Ok(Plan::new(functions[usize::from(is_double)]).with_scratch(scratch))
}

/// Bytes of scratch memory for the current shapes, which may be upper bounds.
fn scratch_for(ctx: &Prepare, out: usize, last: usize) -> Result<usize, KernelError> {
    let (input, found) = (ctx.info(0)?, ctx.info(out)?);
    let is_double = [ScalarType::Double, ScalarType::ComplexDouble].contains(&found.scalar_type);
    let element = if is_double { 16 } else { 8 };
    let is_fixed = ctx.has_fixed_shape(0) && ctx.has_fixed_shape(out);
    let mut len = 0usize;
    let (dims, threads) = (dims(ctx)?, ctx.threads().max(1));
    for dim in &dims {
        let size = full_size(ctx, *dim, last)?;
        if size == 0 && found.numel() == 0 {
            continue;
        }
        // A shorter length can need more memory than a longer one.
        let lines = if is_fixed { Lines::new(size) } else { Lines::with_most_memory(size) };
        let lines = lines.ok_or(bad(0, "size of a transformed dim is zero or too large"))?;
        len = len.max(lines.memory(threads).ok_or(bad(0, "shape is too large"))?);
    }
    if !is_complex(found.scalar_type) && dims.len() > 1 {
        // Intermediate results between the dims are complex.
        len = len.checked_add(input.numel()).ok_or(bad(0, "shape is too large"))?;
    }
    scratch::bytes_for(len, element)
}

/// The transform for lines of one length.
struct Lines {
    transform: Transform,
    length: usize,
}

impl Lines {
    fn new(length: usize) -> Option<Self> {
        Some(Lines { transform: Transform::new(length)?, length })
    }

    /// The transform that needs the most memory, among all lengths up to this one.
    fn with_most_memory(length: usize) -> Option<Self> {
        Some(Lines { transform: Transform::with_most_memory(length)?, length })
    }

    /// Complex values of workspace for each thread.
    fn slot(&self) -> usize {
        self.length + self.transform.workspace_len()
    }

    fn memory(&self, threads: usize) -> Option<usize> {
        self.slot().checked_mul(threads)?.checked_add(self.transform.table_len())
    }

    /// Splits the memory into the table, which it fills, and the rest.
    fn tabulate<'m, C: Real>(
        &self,
        memory: &'m mut [Complex<C>],
    ) -> Option<(&'m [Complex<C>], &'m mut [Complex<C>])> {
        let (table, rest) = memory.split_at_mut_checked(self.transform.table_len())?;
        self.transform.tabulate(table, rest);
        Some((table, rest))
    }

    /// Transforms a line at the start of a thread's memory, and scales it.
    fn run<'w, C: Real>(
        &self,
        own: &'w mut [Complex<C>],
        table: &[Complex<C>],
        (forward, scale): (bool, C),
        fill: &dyn Fn(&mut [Complex<C>]),
    ) -> Option<&'w mut [Complex<C>]> {
        let (line, workspace) = own.split_at_mut_checked(self.length)?;
        fill(line);
        // The inverse transform is the forward one, with real and imaginary parts exchanged before
        // and after.
        let exchange = |line: &mut [Complex<C>]| line.iter_mut().for_each(|value| value.swap(0, 1));
        if !forward {
            exchange(line);
        }
        self.transform.run(line, table, workspace);
        if !forward {
            exchange(line);
        }
        line.iter_mut().for_each(|value| *value = value.map(|part| part * scale));
        Some(line)
    }
}

/// Normalization factor, which only one of the transforms applies.
fn factor<C: Real>(ctx: &Invoke, dims: &Dims, last: usize) -> Result<C, KernelError> {
    let mut count = C::real(1.0);
    for dim in dims {
        count = count * C::count(full_size(ctx, *dim, last)?);
    }
    Ok(match ctx.int(2)? {
        0 => C::real(1.0),
        1 => C::real(1.0) / count.sqrt(),
        _ => C::real(1.0) / count,
    })
}

/// Transforms all lines of a tensor over a dim in place.
fn in_place<C: Real>(
    parallel: &dyn Parallel,
    info: &TensorInfo,
    dim: usize,
    bytes: &mut [u8],
    memory: &mut [Complex<C>],
    (forward, scale): (bool, C),
) -> Option<()> {
    let lines = Lines::new(info.size(dim))?;
    let (table, rest) = lines.tabulate(memory)?;
    let size = info.scalar_type.size();
    let stride = info.strides().get(dim).copied().unwrap_or(1);
    let width = stride.checked_mul(size)?;
    let shape = (info.size(dim), size);
    for_each_tile_mut(parallel, bytes, width, shape, (rest, lines.slot()), &|_, tile, own| {
        let first = tile.rows().start;
        let mut values = Tile { tile, first, scalar_type: info.scalar_type };
        let Some((line, _)) = own.split_at_mut_checked(lines.length) else { return };
        values.read(line);
        if let Some(line) = lines.run(own, table, (forward, scale), &|_| {}) {
            values.write(line);
        }
    });
    Some(())
}

/// A line of a tensor over the transformed dim, in a tile that is one element wide. Row `first` of
/// the tile has the first value.
struct Tile<'t, 'd> {
    tile: &'t mut crate::compute::split::Tile<'d, u8>,
    first: usize,
    scalar_type: ScalarType,
}

impl Tile<'_, '_> {
    fn read<C: Real>(&mut self, line: &mut [Complex<C>]) {
        let part = part(self.scalar_type).unwrap_or(self.scalar_type);
        for (number, value) in line.iter_mut().enumerate() {
            load(part, self.tile.row(self.first + number), 0, 1, value);
        }
    }

    fn write<C: Real>(&mut self, line: &[Complex<C>]) {
        let part = part(self.scalar_type).unwrap_or(self.scalar_type);
        for (number, value) in line.iter().enumerate() {
            store(part, self.tile.row(self.first + number), value);
        }
    }
}

fn memory<'c, C: Real>(ctx: &mut Invoke<'c, '_>) -> &'c mut [Complex<C>] {
    bytemuck::try_cast_slice_mut(ctx.scratch()).unwrap_or_default()
}

const SCRATCH_TOO_SMALL: KernelError =
    KernelError::unsupported("internal error: scratch memory is smaller than requested");

/// Transform of real or complex values to complex ones.
fn to_complex<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (input, mut dims) = (ctx.tensor(0)?, dims(ctx)?);
    let is_real = !is_complex(input.scalar_type);
    let last = if is_real { dims.last().copied().unwrap_or(0) } else { input.rank() };
    let scale = factor::<C>(ctx, &dims, last)?;
    let forward = is_real || ctx.bool(3)?;
    let (memory, parallel) = (memory::<C>(ctx), ctx.parallel());
    let out = ctx.out(4)?;
    let info = out.info().clone();
    let bytes = out.into_bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    let mut scale = scale;
    if is_real {
        one_sided::<C>(parallel, &input, (&info, &mut *bytes), last, memory, scale)
            .ok_or(SCRATCH_TOO_SMALL)?;
        scale = C::real(1.0);
        dims.pop();
    } else {
        let walk = Walk::broadcast(&info, [input.info()])?;
        let size = info.scalar_type.size();
        crate::shape::moves::copy(parallel, size, &walk, input.bytes(), bytes);
        if dims.is_empty() {
            return Ok(());
        }
    }
    for dim in dims.iter().rev() {
        in_place(parallel, &info, *dim, bytes, memory, (forward, scale))
            .ok_or(SCRATCH_TOO_SMALL)?;
        scale = C::real(1.0);
    }
    Ok(())
}

/// Returns the offset in `input` of the line that contains the element at memory position
/// `position` of `out`.
fn line_start(out: &TensorInfo, input: &TensorInfo, dim: usize, position: usize) -> usize {
    let strides = input.strides();
    let mut at = 0usize;
    for (other, (&step, out_step)) in strides.iter().zip(out.strides()).enumerate() {
        if other != dim {
            at += position / out_step.max(1) % out.size(other).max(1) * step;
        }
    }
    at
}

/// Transforms real lines, and truncates the results to the length of the output.
fn one_sided<C: Real>(
    parallel: &dyn Parallel,
    input: &TensorRef,
    (info, bytes): (&TensorInfo, &mut [u8]),
    dim: usize,
    memory: &mut [Complex<C>],
    scale: C,
) -> Option<()> {
    let lines = Lines::new(input.size(dim))?;
    let (table, rest) = lines.tabulate(memory)?;
    let size = info.scalar_type.size();
    let stride = info.strides().get(dim).copied().unwrap_or(1);
    let step = input.strides().get(dim).copied().unwrap_or(1) as isize;
    let width = stride.checked_mul(size)?;
    let count = info.size(dim);
    for_each_tile_mut(
        parallel,
        bytes,
        width,
        (count, size),
        (rest, lines.slot()),
        &|column, tile, own| {
            let first = tile.rows().start;
            let start = line_start(info, input.info(), dim, first * stride + column / size);
            let fill = |line: &mut [Complex<C>]| read(input, start as isize, step, line);
            if let Some(line) = lines.run(own, table, (true, scale), &fill) {
                let mut values = Tile { tile, first, scalar_type: info.scalar_type };
                values.write(line.get(..count).unwrap_or_default());
            }
        },
    );
    Some(())
}

/// Inverse transform to real values from the first half of the spectrum.
fn to_real<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (input, dims) = (ctx.tensor(0)?, dims(ctx)?);
    let last = dims.last().copied().unwrap_or(0);
    let scale = factor::<C>(ctx, &dims, last)?;
    let (mut memory, parallel) = (memory::<C>(ctx), ctx.parallel());
    let out = ctx.out(4)?;
    let info = out.info().clone();
    let bytes = out.into_bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    let mut input = input;
    if dims.len() > 1 {
        let (copy, rest) = memory.split_at_mut_checked(input.numel()).ok_or(SCRATCH_TOO_SMALL)?;
        memory = rest;
        let copy: &mut [u8] = bytemuck::cast_slice_mut(copy);
        copy.copy_from_slice(input.bytes());
        for dim in dims.iter().rev().skip(1) {
            let unscaled = (false, C::real(1.0));
            in_place(parallel, input.info(), *dim, copy, memory, unscaled)
                .ok_or(SCRATCH_TOO_SMALL)?;
        }
        let layout = input.info().clone();
        input = TensorRef::new(layout, copy).ok_or(SCRATCH_TOO_SMALL)?;
    }
    let lines = Lines::new(info.size(last)).ok_or(SCRATCH_TOO_SMALL)?;
    let (table, rest) = lines.tabulate(memory).ok_or(SCRATCH_TOO_SMALL)?;
    let size = info.scalar_type.size();
    let stride = info.strides().get(last).copied().unwrap_or(1);
    let step = input.strides().get(last).copied().unwrap_or(1) as isize;
    let length = lines.length;
    let shape = (length, size);
    let width = stride.saturating_mul(size);
    for_each_tile_mut(parallel, bytes, width, shape, (rest, lines.slot()), &|column, tile, own| {
        let first = tile.rows().start;
        let start = line_start(&info, input.info(), last, first * stride + column / size);
        let fill = |line: &mut [Complex<C>]| {
            let half = length / 2 + 1;
            read(&input, start as isize, step, line.get_mut(..half).unwrap_or_default());
            // Coefficients that are their own conjugates are real.
            for own in
                [Some(0), length.is_multiple_of(2).then_some(length / 2)].into_iter().flatten()
            {
                if let Some(value) = line.get_mut(own) {
                    value[1] = C::default();
                }
            }
            for index in half..length {
                let [re, im] = line.get(length - index).copied().unwrap_or_default();
                if let Some(value) = line.get_mut(index) {
                    *value = [re, -im];
                }
            }
        };
        if let Some(line) = lines.run(own, table, (false, scale), &fill) {
            for (number, value) in line.iter().enumerate() {
                write(info.scalar_type, tile.row(first + number), core::slice::from_ref(value));
            }
        }
    });
    Ok(())
}
