//! Kernels implemented in C.
//!
//! The core library calls plain functions, which receive the call and nothing else. They find the C
//! callbacks by the address of the kernel's parameter list, which the call exposes: in the caller's
//! memory, that list directly follows the kernel's description.

use crate::call::torchlet_call;
use crate::fault::Fault;
use crate::pointer;
use crate::registry::sorted;
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use torchlet_core::{Invoke, Kernel, KernelError, Param, Plan, Prepare};

/// The kind of an operator's parameter, as in its schema.
pub type torchlet_param = u8;

/// `Tensor`.
pub const TORCHLET_PARAM_TENSOR: torchlet_param = 0;
/// `Tensor?`.
pub const TORCHLET_PARAM_OPTIONAL_TENSOR: torchlet_param = 1;
/// `Tensor[]`.
pub const TORCHLET_PARAM_TENSOR_LIST: torchlet_param = 2;
/// `Tensor?[]`.
pub const TORCHLET_PARAM_OPTIONAL_TENSOR_LIST: torchlet_param = 3;
/// `Tensor(a!)`: an output.
pub const TORCHLET_PARAM_OUT: torchlet_param = 4;
/// `Tensor(a!)[]`: a list of outputs.
pub const TORCHLET_PARAM_OUT_LIST: torchlet_param = 5;
/// `int`, `SymInt`, and enumerations.
pub const TORCHLET_PARAM_INT: torchlet_param = 6;
/// `int?`.
pub const TORCHLET_PARAM_OPTIONAL_INT: torchlet_param = 7;
/// `int[]`.
pub const TORCHLET_PARAM_INT_LIST: torchlet_param = 8;
/// `int[]?`.
pub const TORCHLET_PARAM_OPTIONAL_INT_LIST: torchlet_param = 9;
/// `float`.
pub const TORCHLET_PARAM_FLOAT: torchlet_param = 10;
/// `float?`.
pub const TORCHLET_PARAM_OPTIONAL_FLOAT: torchlet_param = 11;
/// `float[]?`.
pub const TORCHLET_PARAM_OPTIONAL_FLOAT_LIST: torchlet_param = 12;
/// `bool`.
pub const TORCHLET_PARAM_BOOL: torchlet_param = 13;
/// `bool?`.
pub const TORCHLET_PARAM_OPTIONAL_BOOL: torchlet_param = 14;
/// `bool[]`.
pub const TORCHLET_PARAM_BOOL_LIST: torchlet_param = 15;
/// `Scalar`.
pub const TORCHLET_PARAM_SCALAR: torchlet_param = 16;
/// `Scalar?`.
pub const TORCHLET_PARAM_OPTIONAL_SCALAR: torchlet_param = 17;
/// `str`.
pub const TORCHLET_PARAM_STRING: torchlet_param = 18;
/// `str?`.
pub const TORCHLET_PARAM_OPTIONAL_STRING: torchlet_param = 19;
/// A scalar output.
pub const TORCHLET_PARAM_OUT_SCALAR: torchlet_param = 20;
/// `Tensor(a!)` that exporters reserve as workspace of an operator, as for `cortex_m`. Its contents
/// are meaningless: kernels request scratch memory (`torchlet_plan`) instead.
pub const TORCHLET_PARAM_SCRATCH: torchlet_param = 21;

fn param(number: torchlet_param) -> Option<Param> {
    Some(match number {
        TORCHLET_PARAM_TENSOR => Param::Tensor,
        TORCHLET_PARAM_OPTIONAL_TENSOR => Param::OptionalTensor,
        TORCHLET_PARAM_TENSOR_LIST => Param::TensorList,
        TORCHLET_PARAM_OPTIONAL_TENSOR_LIST => Param::OptionalTensorList,
        TORCHLET_PARAM_OUT => Param::Out,
        TORCHLET_PARAM_OUT_LIST => Param::OutList,
        TORCHLET_PARAM_INT => Param::Int,
        TORCHLET_PARAM_OPTIONAL_INT => Param::OptionalInt,
        TORCHLET_PARAM_INT_LIST => Param::IntList,
        TORCHLET_PARAM_OPTIONAL_INT_LIST => Param::OptionalIntList,
        TORCHLET_PARAM_FLOAT => Param::Float,
        TORCHLET_PARAM_OPTIONAL_FLOAT => Param::OptionalFloat,
        TORCHLET_PARAM_OPTIONAL_FLOAT_LIST => Param::OptionalFloatList,
        TORCHLET_PARAM_BOOL => Param::Bool,
        TORCHLET_PARAM_OPTIONAL_BOOL => Param::OptionalBool,
        TORCHLET_PARAM_BOOL_LIST => Param::BoolList,
        TORCHLET_PARAM_SCALAR => Param::Scalar,
        TORCHLET_PARAM_OPTIONAL_SCALAR => Param::OptionalScalar,
        TORCHLET_PARAM_STRING => Param::String,
        TORCHLET_PARAM_OPTIONAL_STRING => Param::OptionalString,
        TORCHLET_PARAM_OUT_SCALAR => Param::OutScalar,
        TORCHLET_PARAM_SCRATCH => Param::Scratch,
        _ => return None,
    })
}

/// Memory requirements of a call, which a kernel decides when it is prepared.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_plan {
    /// Bytes of scratch memory during the call.
    pub scratch: usize,
    /// Bytes that `pack` fills once, when the method is loaded; they are valid as long as the
    /// method. Only data derived from constant arguments can be packed, and every preparation must
    /// request the same size.
    pub packed: usize,
}

/// Checks the arguments of a call, sets the shapes of outputs (`torchlet_call_resize`), and plans
/// the memory. Called when a method is loaded, and again before a call whose shapes or scalars may
/// have changed.
pub type torchlet_prepare_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        call: *mut torchlet_call,
        plan: *mut torchlet_plan,
    ) -> u32,
>;
/// Computes the outputs.
pub type torchlet_invoke_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, call: *mut torchlet_call) -> u32>;
/// Fills packed memory from constant arguments.
pub type torchlet_pack_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        call: *mut torchlet_call,
        packed: *mut c_void,
        size: usize,
    ) -> u32,
>;

/// A kernel implemented in C. Its callbacks return `TORCHLET_OK`, the status of a function that
/// they called, or `torchlet_call_fail(...)`; other statuses are reported as
/// `TORCHLET_NOT_SUPPORTED`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_custom_kernel {
    /// The operator with namespace and overload, such as `my_ops::scale.out`.
    pub name: *const c_char,
    /// The kinds of its parameters.
    pub params: *const torchlet_param,
    /// Number of parameters.
    pub param_count: usize,
    /// Required.
    pub prepare: torchlet_prepare_fn,
    /// Required.
    pub invoke: torchlet_invoke_fn,
    /// May be null.
    pub pack: torchlet_pack_fn,
    /// First argument of all callbacks.
    pub context: *mut c_void,
}

/// Description that precedes a kernel's parameter list.
#[derive(Clone, Copy)]
struct Custom {
    prepare: unsafe extern "C" fn(*mut c_void, *mut torchlet_call, *mut torchlet_plan) -> u32,
    invoke: unsafe extern "C" fn(*mut c_void, *mut torchlet_call) -> u32,
    pack: torchlet_pack_fn,
    context: *mut c_void,
}

/// Alignment of all parts.
const ALIGN: usize = 8;

const _: () = assert!(align_of::<Custom>() <= ALIGN && align_of::<Kernel>() <= ALIGN);
// `TORCHLET_CUSTOM_KERNEL_SIZE` reserves 20 pointers per kernel, and one byte per parameter,
// rounded up to a multiple of 8.
const _: () = assert!(size_of::<Kernel>() + size_of::<Custom>() + 8 <= 20 * size_of::<usize>());
const _: () = assert!(size_of::<Param>() == 1);

/// Bytes of a description with its parameter list.
fn piece(params: usize) -> Option<usize> {
    size_of::<Custom>().checked_add(params)?.checked_next_multiple_of(ALIGN)
}

fn kernels_size(count: usize) -> Option<usize> {
    size_of::<Kernel>().checked_mul(count)?.checked_next_multiple_of(ALIGN)
}

pub(crate) fn needed(kernels: &[torchlet_custom_kernel]) -> Option<usize> {
    kernels.iter().try_fold(kernels_size(kernels.len())?, |sum, kernel| {
        sum.checked_add(piece(kernel.param_count)?)
    })
}

/// Builds a kernel table in the given memory.
///
/// # Safety
/// The kernels are valid, as documented at `torchlet_custom_kernel`.
pub(crate) unsafe fn table(
    kernels: &[torchlet_custom_kernel],
    memory: &'static mut [MaybeUninit<u8>],
) -> Result<&'static [Kernel], Fault> {
    let needed = needed(kernels).ok_or(Fault::Huge("kernels"))?;
    let available = memory.len();
    if available < needed {
        return Err(Fault::TooSmall { what: "memory", needed, available });
    }
    if !memory.as_ptr().addr().is_multiple_of(ALIGN) {
        return Err(Fault::Misaligned("memory"));
    }
    let start = memory.as_mut_ptr();
    // Descriptions are found by address from now on: see `Custom::of`.
    let _ = start.expose_provenance();
    let table = start.cast::<MaybeUninit<Kernel>>();
    let mut next = kernels_size(kernels.len()).ok_or(Fault::Huge("kernels"))?;
    for (index, kernel) in kernels.iter().enumerate() {
        // SAFETY: strings and lists from C are valid, as guaranteed by the caller. The memory has
        // at least `needed` bytes, as checked above. The offsets are those that `needed` sums up,
        // and multiples of 8, like the memory's address.
        unsafe {
            let name: &'static str = pointer::text(kernel.name, "kernel->name")?;
            let params = pointer::items(kernel.params, kernel.param_count, "kernel->params")?;
            let custom = Custom {
                prepare: kernel.prepare.ok_or(Fault::Null("kernel->prepare"))?,
                invoke: kernel.invoke.ok_or(Fault::Null("kernel->invoke"))?,
                pack: kernel.pack,
                context: kernel.context,
            };
            let place = start.add(next);
            place.cast::<Custom>().write(custom);
            let list = place.add(size_of::<Custom>()).cast::<Param>();
            for (position, number) in params.iter().enumerate() {
                let param = param(*number);
                let param =
                    param.ok_or(Fault::Argument("unknown TORCHLET_KIND_... of a parameter"))?;
                list.add(position).write(param);
            }
            let list: &'static [Param] = core::slice::from_raw_parts(list, params.len());
            (*table.add(index)).write(Kernel::new(name, list, prepare));
            next += piece(params.len()).ok_or(Fault::Huge("kernel->params"))?;
        }
    }
    // SAFETY: all kernels were written above; they are at the start of the memory, which is
    // borrowed for `'static`.
    Ok(unsafe { sorted(core::slice::from_raw_parts_mut(table, kernels.len())) })
}

impl Custom {
    /// Reads the description that precedes a parameter list.
    fn of(params: &[Param]) -> Self {
        let place = params.as_ptr().addr().wrapping_sub(size_of::<Custom>());
        // SAFETY: only kernels built by `table` use the functions below, and there the description
        // precedes the list. The provenance of that memory was exposed.
        unsafe { core::ptr::with_exposed_provenance::<Custom>(place).read() }
    }
}

fn prepare(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let custom = Custom::of(call.params());
    let mut plan = torchlet_plan { scratch: 0, packed: 0 };
    torchlet_call::preparing(call, |call| {
        // SAFETY: whoever registered the kernel guaranteed that its callbacks can be called; `call`
        // and `plan` outlive the callback.
        unsafe { (custom.prepare)(custom.context, call, &mut plan) }
    })?;
    let result = Plan::new(invoke).with_scratch(plan.scratch);
    if plan.packed == 0 {
        return Ok(result);
    }
    if custom.pack.is_none() {
        return Err(KernelError::unsupported("the C kernel has no pack function"));
    }
    Ok(result.with_packed(plan.packed, pack))
}

fn invoke(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let custom = Custom::of(call.params());
    torchlet_call::invoking(call, |call| {
        // SAFETY: as in `prepare`.
        unsafe { (custom.invoke)(custom.context, call) }
    })
}

fn pack(call: &mut Invoke<'_, '_>, memory: &mut [u8]) -> Result<(), KernelError> {
    let custom = Custom::of(call.params());
    let Some(pack) = custom.pack else { return Ok(()) };
    torchlet_call::invoking(call, |call| {
        // SAFETY: as in `prepare`; pointer and size are those of `memory`.
        unsafe { pack(custom.context, call, memory.as_mut_ptr().cast(), memory.len()) }
    })
}
