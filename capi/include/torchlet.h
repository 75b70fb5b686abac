/* torchlet: runs PyTorch programs that were exported with ExecuTorch (.pte files).
 *
 * Made by cbindgen from capi/src: `cargo xtask capi --overwrite`.
 *
 * There are two parts. `torchlet_module_...` opens a file and runs it, on machines with an operating system. All else is the
 * runtime as it is on microcontrollers: handles lie in the caller's memory, sizes of all memory are known before anything is
 * reserved, and nothing allocates.
 *
 * Rules
 *
 * - Functions return TORCHLET_OK or an error, and write the error's text where `error` says, unless that is null. Results are
 *   written on success alone.
 * - A pointer that is not null points to what its type says, aligned and as large as said, and to a value where it is read. Null and misaligned
 *   pointers, and sizes that cannot be, are errors; what no check can find is undefined behaviour, as in C everywhere.
 * - Texts that go in are UTF-8 with a null byte behind them. Texts that come out are `torchlet_string`s, without.
 * - What a handle was given when it was opened (bytes, buffers, registries' kernels, tracers) must stay, and be left alone, until it is closed.
 *   A handle is filled by the function that opens it; make it zeros before (`= {0}`) where it may be closed or used without having been
 *   opened. Handles can be moved as bytes, external data only before methods use it; of the copies one is used, and closed, once.
 * - Threads: programs, descriptions, external data and backends can be used by many threads at once once they are open. A method, a module,
 *   a registry is used by one thread at a time, whichever; a call that uses a method while another one runs it fails and changes nothing, but
 *   on processors without atomic exchange, as Cortex-M0, this holds for interrupts alone, not for tasks that take turns by a timer. Several methods of one program run at once, each in its memory. Methods that share
 *   memory are used as one is: where tasks use them, a lock is held from the first input that is set to where the last output was read.
 * - No function throws, jumps or panics through C. Functions of the caller must not throw or jump through torchlet.
 */


#ifndef TORCHLET_H
#define TORCHLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel of torchlet's: see torchlet_kernels.h. */
typedef struct torchlet_kernel torchlet_kernel;

/* Bytes of memory that torchlet_registry_add_kernels takes for so many kernels. */
#define TORCHLET_KERNELS_SIZE(count) ((count) * TORCHLET_KERNEL_WORDS * sizeof(void *))

/* Bytes of memory that are enough for a kernel with so many arguments in torchlet_registry_add_custom_kernels. */
#define TORCHLET_CUSTOM_KERNEL_SIZE(params) (20 * sizeof(void *) + ((params) + 7) / 8 * 8)

#ifdef __cplusplus
}
#endif


// The most files that external data consists of.
#define TORCHLET_MAX_DATA_FILES 4

// Where memory that is lent to methods has to start: at a multiple of this.
#define TORCHLET_ALIGN 16

// Pointers that a kernel takes in memory of the caller: see `TORCHLET_KERNELS_SIZE`.
#define TORCHLET_KERNEL_WORDS 10

// The most dimensions that a tensor can have.
#define TORCHLET_MAX_RANK 16

// A call of a kernel or delegate. It is there as long as the function that gets it runs. Arguments
// count from 0, in the order of the operator's schema.
typedef struct torchlet_call torchlet_call;

// A delegate as the program describes it. It is there as long as the function that gets it runs.
typedef struct torchlet_delegate_info torchlet_delegate_info;

// A delegate in the making. It is there as long as the function that gets it runs.
typedef struct torchlet_delegate_init torchlet_delegate_init;

// A program that is opened, and its loaded methods. One thread uses it at a time;
// `torchlet_module_share` gives another thread a module of its own.
typedef struct torchlet_module torchlet_module;

// Records events of the modules that are opened with it (`torchlet_module_options`), on all their
// threads. Modules keep what they record into: it can be freed before them.
typedef struct torchlet_recorder torchlet_recorder;

// What a method gave.
typedef struct torchlet_values torchlet_values;

// How a call ended: `TORCHLET_OK`, or an error. The numbers are those of ExecuTorch's `Error`.
typedef uint32_t torchlet_status;

// Text without a null byte behind it. It belongs to what it was asked of.
typedef struct torchlet_string {
    // The text in UTF-8.
    const char *data;
    // Its bytes.
    size_t size;
} torchlet_string;

// A bundled program, in memory of the caller. It never changes, so that many threads can use it,
// and need not be closed.
typedef struct torchlet_bundle {
    uint64_t opaque;
    size_t words[6];
} torchlet_bundle;

// Memory of the caller for the text of an error: one sentence, with a null byte behind it, cut
// where it does not fit. It is written when a call fails, and left alone else.
typedef struct torchlet_text {
    // Where to write.
    char *data;
    // Bytes that fit there, the null byte included. 160 are enough for nearly all texts.
    size_t size;
} torchlet_text;

// What a value is.
typedef uint32_t torchlet_kind;

// The type of a tensor's elements, with PyTorch's numbers.
typedef int8_t torchlet_scalar_type;

// Type, shape and memory order of a tensor.
typedef struct torchlet_tensor_info {
    // The type of the elements.
    torchlet_scalar_type scalar_type;
    // The dimensions from outermost to innermost in memory: 0, 1, 2 ... for row-major order.
    uint8_t dim_order[TORCHLET_MAX_RANK];
    // Number of dimensions.
    size_t rank;
    // The size of each dimension.
    int32_t sizes[TORCHLET_MAX_RANK];
} torchlet_tensor_info;

// A tensor to be read.
typedef struct torchlet_tensor {
    // What it is.
    struct torchlet_tensor_info info;
    // Its elements in memory order.
    const void *data;
    // Bytes of the elements.
    size_t size;
} torchlet_tensor;

// A value, by its kind.
typedef union torchlet_value_data {
    // Of a tensor.
    struct torchlet_tensor tensor;
    // Of an integer.
    int64_t integer;
    // Of a floating-point number.
    double number;
    // Of a truth value: not 0 if it is true.
    uint8_t boolean;
    // Of text.
    struct torchlet_string string;
    // Of a list: its length.
    size_t length;
} torchlet_value_data;

// A value that goes into a method or comes out.
typedef struct torchlet_value {
    // Which of the members counts.
    torchlet_kind kind;
    // The value.
    union torchlet_value_data data;
} torchlet_value;

// A tensor to be written.
typedef struct torchlet_tensor_mut {
    // What it is.
    struct torchlet_tensor_info info;
    // Its elements in memory order.
    void *data;
    // Bytes of the elements.
    size_t size;
} torchlet_tensor_mut;

// External data, in memory of the caller: opened `.ptd` files, searched in the order in which they
// were added. It never changes once methods use it, so that many threads can; it must stay where
// it is as long as they do.
typedef struct torchlet_data {
    uint64_t opaque;
    size_t words[44];
} torchlet_data;

// Copies `size` bytes from `offset` within the file; returns `TORCHLET_OK`, or anything else if it
// cannot.
typedef uint32_t (*torchlet_read_fn)(void *context,
                                     uint64_t offset,
                                     void *into,
                                     size_t size);

// Lends `size` bytes from `offset` within the file where they are in memory anyway, else returns
// null.
typedef const void *(*torchlet_lend_fn)(void *context,
                                        uint64_t offset,
                                        size_t size);

// Storage that holds a file. It must stay where it is as long as the file is open; its functions
// can be called from every thread that uses the program, and what is lent stays as long.
typedef struct torchlet_loader {
    // What the functions get.
    void *context;
    // Bytes of the file.
    uint64_t size;
    // Reads.
    torchlet_read_fn read;
    // Lends; may be null. Without it, a buffer for the program is needed, and constants are copied
    // into the arena.
    torchlet_lend_fn lend;
} torchlet_loader;

// Gets a line of a log, without null byte behind it, and its level: 1 error, 2 warning, 3
// information, 4 debugging, 5 trace.
typedef void (*torchlet_log_fn)(void *context,
                                uint32_t level,
                                const uint8_t *text,
                                size_t size);

// The description of a method, in memory of the caller. It need not be closed.
typedef struct torchlet_method_meta {
    uint64_t opaque;
    size_t words[18];
} torchlet_method_meta;

// What an input or output is.
typedef struct torchlet_value_meta {
    // Its kind, and for numbers and text what they were at export. A tensor has type and shape, of
    // a dynamic shape the bound, and no data.
    struct torchlet_value value;
    // Whether the shape of a tensor can change between runs.
    bool dynamic;
    // Whether a tensor has a place in planned memory. Else the caller binds memory to it, or it is
    // constant.
    bool planned;
    // Whether the data of a tensor comes with the program.
    bool constant;
    // The name of a tensor, where the exporter kept it: that of a parameter or buffer. Else its
    // data is null.
    struct torchlet_string name;
} torchlet_value_meta;

// The time, in any unit; a counter that wraps is the caller's to subtract.
typedef uint64_t (*torchlet_clock_fn)(void *context);

// What an event is.
typedef uint32_t torchlet_event_kind;

// Something that happened.
typedef struct torchlet_event {
    // What it was.
    torchlet_event_kind kind;
    // The operator, backend or method. It is there as long as the call lasts.
    struct torchlet_string name;
    // The index of the instruction, or of the delegate; 0 for whole methods.
    size_t instruction;
    // When it began, by the clock.
    uint64_t start;
    // When it ended, by the clock.
    uint64_t end;
} torchlet_event;

// Is told of an event when it ends.
typedef void (*torchlet_event_fn)(void *context,
                                  const struct torchlet_event *event);

// Who is told of what methods do. It must stay where it is, and not change, as long as methods
// that were loaded with it are open; its functions are called on the threads that load and run
// them.
typedef struct torchlet_tracer {
    // What the functions get.
    void *context;
    // The clock. Without it, all times are 0.
    torchlet_clock_fn clock;
    // The function that is told; may be null.
    torchlet_event_fn event;
} torchlet_tracer;

// Ends runs from another thread, or from an interrupt. It must stay where it is as long as methods
// that were loaded with it are open.
typedef struct torchlet_canceller {
    bool cancelled;
} torchlet_canceller;

// What a program may ask for: a malicious file can ask for any amount of work and memory.
// `torchlet_limits_init` fills it.
typedef struct torchlet_limits {
    // Values of a method.
    uint64_t values;
    // Items of its lists.
    uint64_t list_items;
    // Its instructions.
    uint64_t instructions;
    // Its operators.
    uint64_t operators;
    // Its delegates.
    uint64_t delegates;
    // Tensors among the arguments of one call.
    uint64_t call_tensors;
    // Bytes of its planned buffers.
    uint64_t planned_bytes;
    // Bytes of its constants.
    uint64_t constant_bytes;
    // Comparisons of names while looking for external data.
    uint64_t name_lookups;
    // Backward jumps in one run.
    uint64_t backward_jumps;
} torchlet_limits;

// What a method is loaded with. Each can be null; so can be the whole, for methods that need
// nothing of it.
typedef struct torchlet_options {
    // External data.
    const struct torchlet_data *data;
    // Who is told of events.
    const struct torchlet_tracer *tracer;
    // What ends runs.
    const struct torchlet_canceller *canceller;
    // What the program may ask for.
    const struct torchlet_limits *limits;
} torchlet_options;

// A method, in memory of the caller: prepared, so that it tells what it needs, or loaded, so that
// it runs. One thread uses it at a time, and while a function runs that changes it, other calls
// with it fail (`TORCHLET_INVALID_STATE`); several methods of a program can run at once. It must
// be closed before its memory and its program are used otherwise.
typedef struct torchlet_method {
    uint64_t opaque;
    size_t words[136];
} torchlet_method;

// Kernels and backends, in memory of the caller. Methods copy it when they are loaded, so that it
// need not outlive that; what it names must stay as long as methods use it. It need not be closed.
typedef struct torchlet_registry {
    uint64_t opaque;
    size_t words[56];
} torchlet_registry;

// The exact memory that a method takes, beside its planned buffers
// (`torchlet_method_meta_planned_size`). All start at multiples of `TORCHLET_ALIGN`.
typedef struct torchlet_needs {
    // Bytes of its tables.
    size_t tables;
    // Bytes of the arena, for delegates, copied constants and packed weights.
    size_t arena;
    // Bytes of scratch memory.
    size_t scratch;
} torchlet_needs;

// Memory of the caller.
typedef struct torchlet_buffer {
    // Where it starts.
    void *data;
    // Its bytes.
    size_t size;
} torchlet_buffer;

// The memory of a method, the method's until it is closed.
typedef struct torchlet_memory {
    // For `torchlet_method_finish`, `arena` bytes of `torchlet_needs`; for `torchlet_method_load`,
    // `tables` and `arena` together.
    struct torchlet_buffer arena;
    // For kernels while they run.
    struct torchlet_buffer scratch;
    // For tensors: a buffer for each planned buffer, at least as large. The list itself is not
    // used after loading.
    const struct torchlet_buffer *planned;
    // How many there are.
    size_t planned_count;
} torchlet_memory;

// An opened program, in memory of the caller. It never changes, so that many threads can use it.
// It must be open as long as methods of it are. What is in it is not for callers.
typedef struct torchlet_program {
    uint64_t opaque;
    size_t words[12];
} torchlet_program;

// Planned and scratch memory that several methods use in turn, in memory of the caller: methods of
// one program that keep state together, or of several programs, which need none of their
// activations after a run. Methods are loaded into it by `torchlet_method_finish_shared`, and then
// used as others, all by one thread at a time. A run needs all inputs that were set before another
// method used the memory to be set again; outputs are read before another one runs.
//
// It must stay where it is as long as methods that were loaded into it are open, and need not be
// closed.
typedef struct torchlet_shared_memory {
    uint64_t opaque;
    size_t words[44];
} torchlet_shared_memory;

// A tensor of a method's state.
typedef struct torchlet_state {
    // The index of its value, by which it is read and written.
    size_t value;
    // Its name, where the exporter kept it; else its data is null.
    struct torchlet_string name;
    // What it is.
    struct torchlet_tensor_info info;
    // Whether it has memory; else some must be bound.
    bool bound;
} torchlet_state;

// A tensor that a delegate keeps from run to run.
typedef struct torchlet_delegate_state {
    // The delegate, and the tensor there, by which it is read and written.
    size_t delegate;
    // See `delegate`.
    size_t number;
    // Its name in the model, where it is known; else its data is null.
    struct torchlet_string name;
    // What it is: in row-major order.
    struct torchlet_tensor_info info;
} torchlet_delegate_state;

// What a program runs on.
typedef uint32_t torchlet_run_on;

// How files get into memory. Whoever has them mapped promises that nobody writes to them or cuts
// them short.
typedef uint32_t torchlet_file_access;

// How a module is opened. `torchlet_module_options_init` fills it.
typedef struct torchlet_module_options {
    // What it runs on.
    torchlet_run_on run_on;
    // The number of threads that kernels use; 0 for as many as there are processors.
    size_t threads;
    // How files get into memory.
    torchlet_file_access file_access;
    // The most bytes that a method may take; 0 for 4 GiB.
    uint64_t memory_limit;
    // Paths of `.ptd` files with external data.
    const char *const *data_paths;
    // How many there are.
    size_t data_count;
    // A folder for compiled programs, or null.
    const char *compile_cache;
    // Kernels and backends of the caller's, besides those of the library, or null. They must stay
    // as long as the module, and those that share it.
    const struct torchlet_registry *registry;
    // Whether all methods use one memory for activations in turn, as large as the largest needs
    // it. What methods give is copied, so that it stays.
    bool share_activations;
    // Who records events, or null.
    const struct torchlet_recorder *recorder;
} torchlet_module_options;

// What is called when torchlet panics: with the file and line of its source.
typedef void (*torchlet_panic_handler)(const char *file,
                                       size_t size,
                                       uint32_t line);

// The kind of an argument of an operator, as in its schema.
typedef uint8_t torchlet_param;

// What a kernel in C decides when it is prepared.
typedef struct torchlet_plan {
    // Bytes of scratch memory that it needs while it runs.
    size_t scratch;
    // Bytes that its `pack` fills once, when the method is loaded; they stay as long as the
    // method. Only what comes from constant arguments can be packed, and the same number must be
    // asked for each time.
    size_t packed;
} torchlet_plan;

// Checks the arguments of a call, gives outputs their shapes (`torchlet_call_resize`), and says
// what memory it needs. Called when a method is loaded, and again before a call whose shapes or
// numbers may have changed.
typedef uint32_t (*torchlet_prepare_fn)(void *context,
                                        struct torchlet_call *call,
                                        struct torchlet_plan *plan);

// Computes.
typedef uint32_t (*torchlet_invoke_fn)(void *context,
                                       struct torchlet_call *call);

// Fills packed memory from constant arguments.
typedef uint32_t (*torchlet_pack_fn)(void *context,
                                     struct torchlet_call *call,
                                     void *packed,
                                     size_t size);

// A kernel that is written in C. Its functions return `TORCHLET_OK`, what a function that they
// called returned, or `torchlet_call_fail(...)`; other codes are reported as
// `TORCHLET_NOT_SUPPORTED`.
typedef struct torchlet_custom_kernel {
    // The operator with namespace and overload, such as `my_ops::scale.out`.
    const char *name;
    // The kinds of its arguments.
    const torchlet_param *params;
    // How many it has.
    size_t param_count;
    // Prepares.
    torchlet_prepare_fn prepare;
    // Computes.
    torchlet_invoke_fn invoke;
    // Packs; may be null.
    torchlet_pack_fn pack;
    // What the functions get.
    void *context;
} torchlet_custom_kernel;

// Whether the backend can work here: `TORCHLET_OK`, or why not.
typedef uint32_t (*torchlet_backend_available_fn)(void *context);

// Bytes that `init` is going to allocate from the method's arena, each allocation rounded up to a
// multiple of 16.
typedef uint32_t (*torchlet_backend_arena_fn)(void *context,
                                              const struct torchlet_delegate_info *info,
                                              size_t *bytes);

// Makes a delegate: looks at the processed bytes, allocates, and leaves a pointer of its own in
// `delegate`.
typedef uint32_t (*torchlet_backend_init_fn)(void *context,
                                             struct torchlet_delegate_init *init,
                                             void **delegate);

// Runs a delegate: says what is input (`torchlet_call_split`), reads inputs, writes outputs.
typedef uint32_t (*torchlet_backend_execute_fn)(void *context,
                                                void *delegate,
                                                struct torchlet_call *call);

// Makes a delegate forget the state that it keeps between runs.
typedef uint32_t (*torchlet_backend_reset_fn)(void *context,
                                              void *delegate);

// Frees what a delegate holds outside of the arena.
typedef void (*torchlet_backend_destroy_fn)(void *context,
                                            void *delegate);

// Says what a tensor is that a delegate keeps from run to run, counted from 0: type and shape, in
// row-major order, and its name in the model, which stays as long as the delegate, or null.
// `TORCHLET_NOT_FOUND` if there are no more.
typedef uint32_t (*torchlet_backend_state_fn)(void *context,
                                              void *delegate,
                                              size_t number,
                                              struct torchlet_string *name,
                                              struct torchlet_tensor_info *info);

// Copies such a tensor to memory of its size.
typedef uint32_t (*torchlet_backend_read_state_fn)(void *context,
                                                   void *delegate,
                                                   size_t number,
                                                   void *into,
                                                   size_t size);

// Gives such a tensor other contents, of its size.
typedef uint32_t (*torchlet_backend_write_state_fn)(void *context,
                                                    void *delegate,
                                                    size_t number,
                                                    const void *data,
                                                    size_t size);

// A backend that is written in C: it runs parts of models that were lowered for it. Its functions
// can be called from every thread that uses methods with it; one delegate is used by one thread at
// a time.
typedef struct torchlet_backend {
    // The name that programs call it by. It must stay.
    const char *name;
    // What the functions get.
    void *context;
    // May be null.
    torchlet_backend_available_fn available;
    // May be null, for backends that allocate nothing from the arena.
    torchlet_backend_arena_fn arena;
    // Makes delegates.
    torchlet_backend_init_fn init;
    // Runs them.
    torchlet_backend_execute_fn execute;
    // May be null.
    torchlet_backend_reset_fn reset;
    // May be null.
    torchlet_backend_destroy_fn destroy;
    // May be null, for delegates without state, or whose state nobody saves.
    torchlet_backend_state_fn state;
    // May be null, if `state` is.
    torchlet_backend_read_state_fn read_state;
    // May be null, if `state` is.
    torchlet_backend_write_state_fn write_state;
} torchlet_backend;

// `Tensor`.
#define TORCHLET_PARAM_TENSOR 0

// `Tensor?`.
#define TORCHLET_PARAM_OPTIONAL_TENSOR 1

// `Tensor[]`.
#define TORCHLET_PARAM_TENSOR_LIST 2

// `Tensor?[]`.
#define TORCHLET_PARAM_OPTIONAL_TENSOR_LIST 3

// `Tensor(a!)`: it is written.
#define TORCHLET_PARAM_OUT 4

// `Tensor(a!)[]`: all are written.
#define TORCHLET_PARAM_OUT_LIST 5

// `int`, `SymInt`, and enumerations.
#define TORCHLET_PARAM_INT 6

// `int?`.
#define TORCHLET_PARAM_OPTIONAL_INT 7

// `int[]`.
#define TORCHLET_PARAM_INT_LIST 8

// `int[]?`.
#define TORCHLET_PARAM_OPTIONAL_INT_LIST 9

// `float`.
#define TORCHLET_PARAM_FLOAT 10

// `float?`.
#define TORCHLET_PARAM_OPTIONAL_FLOAT 11

// `float[]?`.
#define TORCHLET_PARAM_OPTIONAL_FLOAT_LIST 12

// `bool`.
#define TORCHLET_PARAM_BOOL 13

// `bool?`.
#define TORCHLET_PARAM_OPTIONAL_BOOL 14

// `bool[]`.
#define TORCHLET_PARAM_BOOL_LIST 15

// `Scalar`.
#define TORCHLET_PARAM_SCALAR 16

// `Scalar?`.
#define TORCHLET_PARAM_OPTIONAL_SCALAR 17

// `str`.
#define TORCHLET_PARAM_STRING 18

// `str?`.
#define TORCHLET_PARAM_OPTIONAL_STRING 19

// A number that is written.
#define TORCHLET_PARAM_OUT_SCALAR 20

// `Tensor(a!)` that exporters reserve for an operator to compute in, as those of `cortex_m`. Its
// contents mean nothing: kernels ask for scratch memory (`torchlet_plan`) instead.
#define TORCHLET_PARAM_SCRATCH 21

// What takes the least time, as far as that can be estimated.
#define TORCHLET_RUN_ON_AUTO 0

// What it was lowered for.
#define TORCHLET_RUN_ON_AS_EXPORTED 1

// The CPU.
#define TORCHLET_RUN_ON_CPU 2

// A GPU, through Vulkan, if the library was built with the feature `vulkan`.
#define TORCHLET_RUN_ON_VULKAN 3

// They are read.
#define TORCHLET_FILE_READ 0

// The system maps them.
#define TORCHLET_FILE_MAP 1

// The system maps them, and is asked to read everything ahead.
#define TORCHLET_FILE_MAP_PREFETCHED 2

// The system maps them, and keeps them in memory.
#define TORCHLET_FILE_MAP_LOCKED 3

// It succeeded.
#define TORCHLET_OK 0

// A fault of the library, of a kernel, or of a device.
#define TORCHLET_INTERNAL 1

// A handle is not in the state that the call needs: it was not opened, was closed, or has no
// memory yet.
#define TORCHLET_INVALID_STATE 2

// `torchlet_method_step` found the method at its end.
#define TORCHLET_END_OF_METHOD 3

// The program asks for something that is not supported.
#define TORCHLET_NOT_SUPPORTED 16

// It is not implemented.
#define TORCHLET_NOT_IMPLEMENTED 17

// An argument of the call is wrong: null, misaligned, out of range, no such method.
#define TORCHLET_INVALID_ARGUMENT 18

// A value is of another kind, or a tensor of another element type.
#define TORCHLET_INVALID_TYPE 19

// Operators have no kernel in the registry.
#define TORCHLET_OPERATOR_MISSING 20

// A registry is full.
#define TORCHLET_TOO_MANY_KERNELS 21

// A kernel or backend is registered already.
#define TORCHLET_ALREADY_REGISTERED 22

// A backend or state is not there.
#define TORCHLET_NOT_FOUND 32

// A memory is too small.
#define TORCHLET_MEMORY_ALLOCATION_FAILED 33

// A file, or storage, cannot be read.
#define TORCHLET_ACCESS_FAILED 34

// The program is malformed.
#define TORCHLET_INVALID_PROGRAM 35

// External data is missing or malformed.
#define TORCHLET_INVALID_EXTERNAL_DATA 36

// The program asks for more than the limits allow.
#define TORCHLET_OUT_OF_RESOURCES 37

// A backend does not understand a delegate, or lacks something that it needs.
#define TORCHLET_DELEGATE_INCOMPATIBLE 48

// A backend has no memory for a delegate.
#define TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED 49

// A delegate is not valid any more.
#define TORCHLET_DELEGATE_INVALID_HANDLE 50

// `uint8_t`.
#define TORCHLET_BYTE 0

// `int8_t`.
#define TORCHLET_CHAR 1

// `int16_t`.
#define TORCHLET_SHORT 2

// `int32_t`.
#define TORCHLET_INT 3

// `int64_t`.
#define TORCHLET_LONG 4

// 16 bits of IEEE 754.
#define TORCHLET_HALF 5

// `float`.
#define TORCHLET_FLOAT 6

// `double`.
#define TORCHLET_DOUBLE 7

// A byte that is 0 or 1.
#define TORCHLET_BOOL 11

// The upper 16 bits of a `float`.
#define TORCHLET_BFLOAT16 15

// `uint16_t`.
#define TORCHLET_UINT16 27

// `uint32_t`.
#define TORCHLET_UINT32 28

// `uint64_t`.
#define TORCHLET_UINT64 29

// Something else: kinds may be added.
#define TORCHLET_EVENT_OTHER 0

// A method was loaded.
#define TORCHLET_EVENT_LOAD 1

// A delegate was made while its method was loaded.
#define TORCHLET_EVENT_DELEGATE_INIT 2

// A method ran.
#define TORCHLET_EVENT_EXECUTE 3

// An operator's kernel ran.
#define TORCHLET_EVENT_OPERATOR 4

// A delegate ran.
#define TORCHLET_EVENT_DELEGATE 5

// Nothing. As an input, it leaves the input as it was.
#define TORCHLET_KIND_NONE 0

// A tensor.
#define TORCHLET_KIND_TENSOR 1

// An integer.
#define TORCHLET_KIND_INTEGER 2

// A floating-point number.
#define TORCHLET_KIND_NUMBER 3

// A truth value.
#define TORCHLET_KIND_BOOLEAN 4

// Text.
#define TORCHLET_KIND_STRING 5

// A list, by its length.
#define TORCHLET_KIND_LIST 6

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Bytes that the exporter made of the delegate's part of the model.
size_t torchlet_delegate_info_size(const struct torchlet_delegate_info *info);

// Copies some of those bytes.
torchlet_status torchlet_delegate_info_read(const struct torchlet_delegate_info *info,
                                            size_t offset,
                                            void *into,
                                            size_t size);

// A value that the exporter added under a key (a compile spec). It is there as long as the
// program.
torchlet_status torchlet_delegate_info_compile_spec(const struct torchlet_delegate_info *info,
                                                    const char *key,
                                                    const void **data,
                                                    size_t *size);

// The name of the method that the delegate is part of.
struct torchlet_string torchlet_delegate_info_method(const struct torchlet_delegate_info *info);

// The delegate as the program describes it.
const struct torchlet_delegate_info *torchlet_delegate_init_info(const struct torchlet_delegate_init *init);

// The processed bytes, and whether they stay as long as the method (`lent`), or until `init`
// returns.
torchlet_status torchlet_delegate_init_processed(const struct torchlet_delegate_init *init,
                                                 const void **data,
                                                 size_t *size,
                                                 bool *lent);

// Takes memory from the method's arena, at a multiple of 16: zeroed, and there as long as the
// method.
torchlet_status torchlet_delegate_init_allocate(struct torchlet_delegate_init *init,
                                                size_t bytes,
                                                void **memory);

// Whether bytes are those of a bundled program.
bool torchlet_is_bundle(const void *data,
                        size_t size);

// Opens a bundled program that is in memory, and gives the program in it, to be opened with
// `torchlet_program_open`; where the bundle starts at a multiple of 16, that does, too.
// The bytes must stay, and not change, as long as the
// bundle or its program is used.
torchlet_status torchlet_bundle_open(struct torchlet_bundle *bundle,
                                     const void *data,
                                     size_t size,
                                     const void **program,
                                     size_t *program_size,
                                     const struct torchlet_text *error);

// Number of test suites: one for each method that is tested. 0 if the file is malformed.
size_t torchlet_bundle_suite_count(const struct torchlet_bundle *bundle);

// The method that a suite tests, and how many cases it has. Those of a program with state run in
// order on one loaded method. The name belongs to the bundle.
torchlet_status torchlet_bundle_suite(const struct torchlet_bundle *bundle,
                                      size_t suite,
                                      struct torchlet_string *method,
                                      size_t *case_count,
                                      const struct torchlet_text *error);

// How many inputs a case has, and how many outputs are expected of it.
torchlet_status torchlet_bundle_case(const struct torchlet_bundle *bundle,
                                     size_t suite,
                                     size_t case_,
                                     size_t *input_count,
                                     size_t *output_count,
                                     const struct torchlet_text *error);

// An input of a case, as `torchlet_method_set_input` takes it. What it points to belongs to the
// bundle.
torchlet_status torchlet_bundle_input(const struct torchlet_bundle *bundle,
                                      size_t suite,
                                      size_t case_,
                                      size_t index,
                                      struct torchlet_value *result,
                                      const struct torchlet_text *error);

// An output that is expected of a case. What it points to belongs to the bundle.
torchlet_status torchlet_bundle_output(const struct torchlet_bundle *bundle,
                                       size_t suite,
                                       size_t case_,
                                       size_t index,
                                       struct torchlet_value *result,
                                       const struct torchlet_text *error);

// Says that an argument is wrong, and why; returns the code to be returned.
// The text must stay for good: a literal.
torchlet_status torchlet_call_fail(struct torchlet_call *call,
                                   size_t arg,
                                   const char *text);

// Says that something is not supported, and what; returns the code to be returned.
//
// As `torchlet_call_fail`.
torchlet_status torchlet_call_unsupported(struct torchlet_call *call,
                                          const char *text);

// Number of arguments of a delegate's call, inputs and outputs together; of a kernel's, as many as
// it declares.
size_t torchlet_call_argument_count(const struct torchlet_call *call);

// Says how many of the arguments of a delegate's call are inputs; those behind are outputs. It
// comes before inputs and outputs are asked for, once.
torchlet_status torchlet_call_split(struct torchlet_call *call,
                                    size_t inputs);

// Whether an argument is None.
bool torchlet_call_is_none(const struct torchlet_call *call,
                           size_t arg);

// Whether the data of a tensor never changes, so that it can be packed.
bool torchlet_call_is_constant(const struct torchlet_call *call,
                               size_t arg);

// Type, shape and memory order of a tensor, input or output.
torchlet_status torchlet_call_info(struct torchlet_call *call,
                                   size_t arg,
                                   struct torchlet_tensor_info *info);

// Type, shape and memory order of a tensor in a list.
torchlet_status torchlet_call_list_info(struct torchlet_call *call,
                                        size_t arg,
                                        size_t position,
                                        struct torchlet_tensor_info *info);

// A number, truth value, text or None, as it is.
// Text is there as long as the method.
torchlet_status torchlet_call_value(struct torchlet_call *call,
                                    size_t arg,
                                    struct torchlet_value *result);

// An integer.
torchlet_status torchlet_call_int(struct torchlet_call *call,
                                  size_t arg,
                                  int64_t *result);

// A floating-point number; an integer becomes one.
torchlet_status torchlet_call_float(struct torchlet_call *call,
                                    size_t arg,
                                    double *result);

// A truth value.
torchlet_status torchlet_call_bool(struct torchlet_call *call,
                                   size_t arg,
                                   bool *result);

// Text. It is there as long as the method.
torchlet_status torchlet_call_string(struct torchlet_call *call,
                                     size_t arg,
                                     struct torchlet_string *result);

// The length of a list; a single integer is a list of one.
torchlet_status torchlet_call_list_length(struct torchlet_call *call,
                                          size_t arg,
                                          size_t *result);

// An integer in a list.
torchlet_status torchlet_call_list_int(struct torchlet_call *call,
                                       size_t arg,
                                       size_t position,
                                       int64_t *result);

// A floating-point number in a list.
torchlet_status torchlet_call_list_float(struct torchlet_call *call,
                                         size_t arg,
                                         size_t position,
                                         double *result);

// A truth value in a list.
torchlet_status torchlet_call_list_bool(struct torchlet_call *call,
                                        size_t arg,
                                        size_t position,
                                        bool *result);

// Gives an output its shape: while a call is prepared, or before the output is asked for where the
// shape follows from the data.
torchlet_status torchlet_call_resize(struct torchlet_call *call,
                                     size_t arg,
                                     const int32_t *sizes,
                                     size_t rank);

// Gives an output in a list its shape, while a call is prepared.
torchlet_status torchlet_call_list_resize(struct torchlet_call *call,
                                          size_t arg,
                                          size_t position,
                                          const int32_t *sizes,
                                          size_t rank);

// An input tensor. Its data is there as long as the call.
torchlet_status torchlet_call_input(struct torchlet_call *call,
                                    size_t arg,
                                    struct torchlet_tensor *tensor);

// An input tensor in a list.
torchlet_status torchlet_call_list_input(struct torchlet_call *call,
                                         size_t arg,
                                         size_t position,
                                         struct torchlet_tensor *tensor);

// An output tensor, to be written. Each can be asked for once, in the order of the arguments.
torchlet_status torchlet_call_output(struct torchlet_call *call,
                                     size_t arg,
                                     struct torchlet_tensor_mut *tensor);

// An output tensor in a list, to be written. Each can be asked for once, in order.
torchlet_status torchlet_call_list_output(struct torchlet_call *call,
                                          size_t arg,
                                          size_t position,
                                          struct torchlet_tensor_mut *tensor);

// Writes a number that is an output, by the kind of the value.
torchlet_status torchlet_call_set_value(struct torchlet_call *call,
                                        size_t arg,
                                        const struct torchlet_value *result);

// The scratch memory: at least as many bytes as the plan asked for, at a multiple of 16. It can be
// asked for once.
torchlet_status torchlet_call_scratch(struct torchlet_call *call,
                                      void **data,
                                      size_t *size);

// What the kernel's pack function left.
torchlet_status torchlet_call_packed(struct torchlet_call *call,
                                     const void **data,
                                     size_t *size);

// Makes external data without files.
torchlet_status torchlet_data_init(struct torchlet_data *data,
                                   const struct torchlet_text *error);

// Adds a `.ptd` file that is in memory.
// The bytes must stay, and not change, as long as the data
// is used. No method uses the data yet.
torchlet_status torchlet_data_add(struct torchlet_data *data,
                                  const void *bytes,
                                  size_t size,
                                  const struct torchlet_text *error);

// Adds a `.ptd` file in storage. The buffer is for the file's directory, and can be null for
// storage that lends; if it is too small, the text of the error tells how large it must be.
// Loader and buffer are the data's as long as that is used.
// No method uses the data yet.
torchlet_status torchlet_data_add_loader(struct torchlet_data *data,
                                         const struct torchlet_loader *loader,
                                         void *buffer,
                                         size_t size,
                                         const struct torchlet_text *error);

// Sets the function that gets the runtime's log lines, in place of the one before; null for none.
// It is one for all of the process; set it before other threads use torchlet. In libraries that
// were built with the feature `log`.
// The function can be called with its context from every
// thread that uses torchlet.
void torchlet_set_log(torchlet_log_fn function,
                      void *context);

// Number of inputs.
size_t torchlet_method_meta_input_count(const struct torchlet_method_meta *meta);

// Number of outputs.
size_t torchlet_method_meta_output_count(const struct torchlet_method_meta *meta);

// What an input is.
torchlet_status torchlet_method_meta_input(const struct torchlet_method_meta *meta,
                                           size_t index,
                                           struct torchlet_value_meta *result,
                                           const struct torchlet_text *error);

// What an output is.
torchlet_status torchlet_method_meta_output(const struct torchlet_method_meta *meta,
                                            size_t index,
                                            struct torchlet_value_meta *result,
                                            const struct torchlet_text *error);

// Number of planned buffers that the method takes.
size_t torchlet_method_meta_planned_count(const struct torchlet_method_meta *meta);

// Bytes of a planned buffer.
torchlet_status torchlet_method_meta_planned_size(const struct torchlet_method_meta *meta,
                                                  size_t index,
                                                  size_t *size,
                                                  const struct torchlet_text *error);

// Bytes of the tables that `torchlet_method_prepare` takes.
torchlet_status torchlet_method_meta_table_size(const struct torchlet_method_meta *meta,
                                                const struct torchlet_options *options,
                                                size_t *size,
                                                const struct torchlet_text *error);

// Prepares a method: decodes it into tables, and resolves and checks all of it, so that it tells
// what memory it needs (`torchlet_method_needs`). Nothing else is reserved so far. It can be
// finished, or closed.
// The tables, and what options and registry name, are the
// method's until it is closed. The handle is not open.
torchlet_status torchlet_method_prepare(struct torchlet_method *method,
                                        const struct torchlet_method_meta *meta,
                                        const struct torchlet_registry *registry,
                                        const struct torchlet_options *options,
                                        void *tables,
                                        size_t size,
                                        const struct torchlet_text *error);

// What memory a prepared method needs, to the byte.
torchlet_status torchlet_method_needs(const struct torchlet_method *method,
                                      struct torchlet_needs *needs,
                                      const struct torchlet_text *error);

// Gives a prepared method its memory: it can run then. If that fails, the method can only be
// closed.
// The memory is the method's until it is closed, and its
// parts do not overlap.
torchlet_status torchlet_method_finish(struct torchlet_method *method,
                                       const struct torchlet_memory *memory,
                                       const struct torchlet_text *error);

// Loads a method in one step: prepares it at the front of the arena, and finishes it with the
// rest.
// The memory, and what options and registry name, are the
// method's until it is closed. The handle is not open.
torchlet_status torchlet_method_load(struct torchlet_method *method,
                                     const struct torchlet_program *program,
                                     const char *name,
                                     const struct torchlet_registry *registry,
                                     const struct torchlet_options *options,
                                     const struct torchlet_memory *memory,
                                     const struct torchlet_text *error);

// Closes a method: delegates free what they hold, and the memory is the caller's again. Null, and
// a method that is not open, or in use, are left alone.
// No thread uses the method.
void torchlet_method_close(struct torchlet_method *method);

// Runs a method from its first instruction to its end. All inputs must be set before each run:
// their memory is used for other tensors, too.
torchlet_status torchlet_method_execute(struct torchlet_method *method,
                                        const struct torchlet_text *error);

// Runs one instruction, for tasks that share a processor: `TORCHLET_OK` if there was one,
// `TORCHLET_END_OF_METHOD` if none was left; the step after that starts over.
torchlet_status torchlet_method_step(struct torchlet_method *method,
                                     const struct torchlet_text *error);

// Gives the method's state its first values again, that of delegates included.
torchlet_status torchlet_method_reset(struct torchlet_method *method,
                                      const struct torchlet_text *error);

// Number of inputs of a loaded method.
size_t torchlet_method_input_count(const struct torchlet_method *method);

// Number of outputs of a loaded method.
size_t torchlet_method_output_count(const struct torchlet_method *method);

// Copies a value into an input. A tensor must be of the exported type and memory order; where the
// exported shape is dynamic, its shape may be any within the bound.
torchlet_status torchlet_method_set_input(struct torchlet_method *method,
                                          size_t index,
                                          const struct torchlet_value *input,
                                          const struct torchlet_text *error);

// Copies a tensor into an input.
torchlet_status torchlet_method_set_input_tensor(struct torchlet_method *method,
                                                 size_t index,
                                                 const struct torchlet_tensor *tensor,
                                                 const struct torchlet_text *error);

// Gives an input of dynamic shape the shape of the next run, before it is written in place.
torchlet_status torchlet_method_resize_input(struct torchlet_method *method,
                                             size_t index,
                                             const int32_t *sizes,
                                             size_t rank,
                                             const struct torchlet_text *error);

// An input tensor in its place, to be written without a copy. The place is valid until another
// function uses the method.
torchlet_status torchlet_method_input_tensor(struct torchlet_method *method,
                                             size_t index,
                                             struct torchlet_tensor_mut *tensor,
                                             const struct torchlet_text *error);

// An output, as the last run left it. What it points to is valid until another function changes
// the method.
torchlet_status torchlet_method_output(const struct torchlet_method *method,
                                       size_t index,
                                       struct torchlet_value *output,
                                       const struct torchlet_text *error);

// An output that is a tensor, as the last run left it. The data is valid until another function
// changes the method.
torchlet_status torchlet_method_output_tensor(const struct torchlet_method *method,
                                              size_t index,
                                              struct torchlet_tensor *tensor,
                                              const struct torchlet_text *error);

// Whether an input needs memory to be bound to it before the method runs: a tensor that the
// exporter left to the caller.
bool torchlet_method_input_is_unbound(const struct torchlet_method *method,
                                      size_t index);

// Whether an output has no memory. It may get some while the method runs; else some must be bound.
bool torchlet_method_output_is_unbound(const struct torchlet_method *method,
                                       size_t index);

// Lends memory to an input that has none in the plan: it is set, or written in place, before each
// run.
// The memory is the method's until it is closed.
torchlet_status torchlet_method_bind_input(struct torchlet_method *method,
                                           size_t index,
                                           void *memory,
                                           size_t size,
                                           const struct torchlet_text *error);

// Lends memory to an output that has none in the plan.
// The memory is the method's until it is closed.
torchlet_status torchlet_method_bind_output(struct torchlet_method *method,
                                            size_t index,
                                            void *memory,
                                            size_t size,
                                            const struct torchlet_text *error);

// Sets tensors as the first inputs, runs the method, and copies the first outputs, all of them
// tensors, to memory of the caller; `infos` tells what they are and can be null. Tensors that the
// exporter left to the caller are read and written there, with no copy.
// Inputs and outputs do not overlap.
torchlet_status torchlet_method_execute_into(struct torchlet_method *method,
                                             const struct torchlet_tensor *inputs,
                                             size_t input_count,
                                             const struct torchlet_buffer *outputs,
                                             size_t output_count,
                                             struct torchlet_tensor_info *infos,
                                             const struct torchlet_text *error);

// Makes memory for methods each of whose planned buffers (`torchlet_method_meta_planned_size`) and
// scratch memory (`torchlet_needs`) are at most as large as these. There can be up to 8 buffers;
// the list is not used after the call.
// The buffers are the memory's as long as it is used, and
// do not overlap.
torchlet_status torchlet_shared_memory_init(struct torchlet_shared_memory *memory,
                                            const struct torchlet_buffer *planned,
                                            size_t planned_count,
                                            struct torchlet_buffer scratch,
                                            const struct torchlet_text *error);

// Gives a prepared method an arena of its own, and planned and scratch memory that it uses in turn
// with other methods: it can run then. If that fails, the method can only be closed, and the
// others are as they were.
// The arena is the method's until it is closed; the memory
// stays where it is until then.
torchlet_status torchlet_method_finish_shared(struct torchlet_method *method,
                                              struct torchlet_shared_memory *memory,
                                              struct torchlet_buffer arena,
                                              const struct torchlet_text *error);

// Number of tensors of a method's state outside of delegates.
size_t torchlet_method_state_count(const struct torchlet_method *method);

// A tensor of the state, counted from 0. The name belongs to the program.
torchlet_status torchlet_method_state(const struct torchlet_method *method,
                                      size_t index,
                                      struct torchlet_state *state,
                                      const struct torchlet_text *error);

// A tensor of the state in its place, by the index of its value, to be read or written. The place
// is valid until another function uses the method.
torchlet_status torchlet_method_state_tensor(struct torchlet_method *method,
                                             size_t value,
                                             struct torchlet_tensor_mut *tensor,
                                             const struct torchlet_text *error);

// Lends memory to a tensor of the state that the exporter left to the caller. It is zeroed.
// The memory is the method's until it is closed.
torchlet_status torchlet_method_bind_state(struct torchlet_method *method,
                                           size_t value,
                                           void *memory,
                                           size_t size,
                                           const struct torchlet_text *error);

// Number of tensors that delegates of a method keep from run to run.
size_t torchlet_method_delegate_state_count(const struct torchlet_method *method);

// A tensor that a delegate keeps, counted from 0 over all delegates. The name belongs to the
// method.
torchlet_status torchlet_method_delegate_state(const struct torchlet_method *method,
                                               size_t index,
                                               struct torchlet_delegate_state *state,
                                               const struct torchlet_text *error);

// Copies a tensor that a delegate keeps to memory of exactly its size.
torchlet_status torchlet_method_read_delegate_state(const struct torchlet_method *method,
                                                    size_t delegate,
                                                    size_t number,
                                                    void *into,
                                                    size_t size,
                                                    const struct torchlet_text *error);

// Gives a tensor that a delegate keeps other contents, of exactly its size.
torchlet_status torchlet_method_write_delegate_state(struct torchlet_method *method,
                                                     size_t delegate,
                                                     size_t number,
                                                     const void *data,
                                                     size_t size,
                                                     const struct torchlet_text *error);

// The options that hold where none are given.
void torchlet_module_options_init(struct torchlet_module_options *options);

// Opens a program file, `.pte` or `.bpte`. Options can be null. The module is closed with
// `torchlet_module_close`.
torchlet_status torchlet_module_open(const char *path,
                                     const struct torchlet_module_options *options,
                                     struct torchlet_module **module,
                                     const struct torchlet_text *error);

// Opens a program that is in memory. The bytes are copied.
torchlet_status torchlet_module_open_bytes(const void *data,
                                           size_t size,
                                           const struct torchlet_module_options *options,
                                           struct torchlet_module **module,
                                           const struct torchlet_text *error);

// Another module over the same opened files, for another thread, with no method loaded.
torchlet_status torchlet_module_share(const struct torchlet_module *module,
                                      struct torchlet_module **other,
                                      const struct torchlet_text *error);

// Closes a module. Null is left alone.
// The module was opened or shared, and is not used any
// more.
void torchlet_module_close(struct torchlet_module *module);

// The number of threads that kernels use.
size_t torchlet_module_threads(const struct torchlet_module *module);

// Lets kernels of a module, and of those that share its files, use so many threads from the next
// run of a method on, and gives how many these are: one at least, and at most those that it was
// opened with. Results stay the same bit for bit.
size_t torchlet_module_set_threads(const struct torchlet_module *module,
                                   size_t threads);

// Number of methods.
size_t torchlet_module_method_count(const struct torchlet_module *module);

// The name of a method, counted from 0; null data if there is none. It belongs to the module.
struct torchlet_string torchlet_module_method_name(const struct torchlet_module *module,
                                                   size_t index);

// What a method takes and gives. The description is valid as long as the module.
torchlet_status torchlet_module_method_meta(const struct torchlet_module *module,
                                            const char *method,
                                            struct torchlet_method_meta *meta,
                                            const struct torchlet_text *error);

// Loads a method, unless it is loaded. The first call of a method loads it, too.
torchlet_status torchlet_module_load_method(struct torchlet_module *module,
                                            const char *method,
                                            const struct torchlet_text *error);

// Whether a method is loaded.
bool torchlet_module_is_loaded(const struct torchlet_module *module,
                               const char *method);

// Frees a loaded method, with its state. Returns whether it was loaded.
bool torchlet_module_unload(struct torchlet_module *module,
                            const char *method);

// Gives the state of a method its first values again.
torchlet_status torchlet_module_reset(struct torchlet_module *module,
                                      const char *method,
                                      const struct torchlet_text *error);

// Sets an input of a method for all calls to come that do not give it; a value of the kind none
// ends that. The data is copied.
torchlet_status torchlet_module_set_input(struct torchlet_module *module,
                                          const char *method,
                                          size_t index,
                                          const struct torchlet_value *input,
                                          const struct torchlet_text *error);

// Runs a method on inputs; those that are not given, or are of the kind none, are those that were
// set before. Tensors must have the exported type, and the exported shape or one within its
// bounds; their memory order may be any. The results are freed with `torchlet_values_free`.
torchlet_status torchlet_module_execute(struct torchlet_module *module,
                                        const char *method,
                                        const struct torchlet_value *inputs,
                                        size_t count,
                                        struct torchlet_values **outputs,
                                        const struct torchlet_text *error);

// Runs the method `forward`: see `torchlet_module_execute`.
torchlet_status torchlet_module_forward(struct torchlet_module *module,
                                        const struct torchlet_value *inputs,
                                        size_t count,
                                        struct torchlet_values **outputs,
                                        const struct torchlet_text *error);

// Number of values.
size_t torchlet_values_count(const struct torchlet_values *values);

// A value, counted from 0. What it points to belongs to the values, and can be read by several
// threads.
torchlet_status torchlet_values_get(const struct torchlet_values *values,
                                    size_t index,
                                    struct torchlet_value *result,
                                    const struct torchlet_text *error);

// Frees values. Null is left alone.
// The values were given by a module and are not used any
// more.
void torchlet_values_free(struct torchlet_values *values);

// The limits that hold where none are given: those of hosts, or of microcontrollers, as the
// library was built.
void torchlet_limits_init(struct torchlet_limits *limits);

// Makes a canceller that cancels nothing yet.
void torchlet_canceller_init(struct torchlet_canceller *canceller);

// Ends the run in progress before its next instruction, and all that follow, until
// `torchlet_canceller_set` is called with false. Can be called from every thread, and from
// interrupts.
void torchlet_canceller_set(const struct torchlet_canceller *canceller,
                            bool cancelled);

// Sets the function that is called if torchlet panics, which takes a defect of it. It gets the
// name of the source file, without null byte, and the line; it must not return. Without one, an
// undefined instruction is executed. Only in libraries for machines without operating system.
void torchlet_set_panic_handler(torchlet_panic_handler handler);

// Opens a program that is in memory. Its constants are used where they lie, so that the bytes
// should start at a multiple of 16; where they are not aligned for their types, they are copied
// into the arena.
// The bytes must stay, and not change, as long as the
// program is open.
torchlet_status torchlet_program_open(struct torchlet_program *program,
                                      const void *data,
                                      size_t size,
                                      const struct torchlet_text *error);

// Bytes of the buffer that `torchlet_program_open_loader` takes: 0 for storage that lends.
torchlet_status torchlet_program_buffer_size(const struct torchlet_loader *loader,
                                             size_t *size,
                                             const struct torchlet_text *error);

// Opens a program in storage. The buffer takes all of it but the data of tensors and delegates; it
// starts at a multiple of 16, and can be null for storage that lends.
// Loader and buffer are the program's as long as it is
// open.
torchlet_status torchlet_program_open_loader(struct torchlet_program *program,
                                             const struct torchlet_loader *loader,
                                             void *buffer,
                                             size_t size,
                                             const struct torchlet_text *error);

// Closes a program. It frees nothing; the program's memory is the caller's again. Null, and a
// program that is not open, are left alone.
// No method of the program is open, and no thread uses it.
void torchlet_program_close(struct torchlet_program *program);

// Number of methods; 0 if the file is malformed.
size_t torchlet_program_method_count(const struct torchlet_program *program);

// The name of a method, counted from 0. It belongs to the program.
torchlet_status torchlet_program_method_name(const struct torchlet_program *program,
                                             size_t index,
                                             struct torchlet_string *name,
                                             const struct torchlet_text *error);

// What a method takes, gives and needs. The description is valid as long as the program is open.
torchlet_status torchlet_program_method_meta(const struct torchlet_program *program,
                                             const char *method,
                                             struct torchlet_method_meta *meta,
                                             const struct torchlet_text *error);

// Makes a recorder of events, and of up to `value_bytes` of what operators and delegates give. It
// is freed with `torchlet_recorder_free`.
torchlet_status torchlet_recorder_create(size_t value_bytes,
                                         struct torchlet_recorder **recorder,
                                         const struct torchlet_text *error);

// Frees a recorder. Null is left alone.
// The recorder is not used any more.
void torchlet_recorder_free(struct torchlet_recorder *recorder);

// Forgets what was recorded so far.
void torchlet_recorder_clear(const struct torchlet_recorder *recorder);

// What was recorded so far, as an ETDump, which ExecuTorch's Inspector reads: its size, and where
// `into` is not null, its bytes. Between two calls, it grows if the modules run.
torchlet_status torchlet_recorder_etdump(const struct torchlet_recorder *recorder,
                                         void *into,
                                         size_t available,
                                         size_t *size,
                                         const struct torchlet_text *error);

// The values that were recorded so far, as the debug buffer that belongs to the ETDump: its size,
// and where `into` is not null, its bytes.
torchlet_status torchlet_recorder_values(const struct torchlet_recorder *recorder,
                                         void *into,
                                         size_t available,
                                         size_t *size,
                                         const struct torchlet_text *error);

// Makes a registry without kernels and backends.
torchlet_status torchlet_registry_init(struct torchlet_registry *registry,
                                       const struct torchlet_text *error);

// Adds all kernels of the CPU. On microcontrollers, that puts all of them into flash;
// `torchlet_registry_add_kernels` adds the named ones.
torchlet_status torchlet_registry_add_all_kernels(struct torchlet_registry *registry,
                                                  const struct torchlet_text *error);

// Adds kernels by their names in `torchlet_kernels.h`, in any order; the linker drops those that
// nobody names (`--gc-sections`). They are copied into the memory, which has
// `TORCHLET_KERNELS_SIZE(count)` bytes and starts at a multiple of the size of a pointer.
// The memory is the registry's as long as methods use it.
torchlet_status torchlet_registry_add_kernels(struct torchlet_registry *registry,
                                              const torchlet_kernel *const *kernels,
                                              size_t count,
                                              void *memory,
                                              size_t size,
                                              const struct torchlet_text *error);

// Bytes of memory that `torchlet_registry_add_custom_kernels` takes for these; 0 if they cannot be
// added.
size_t torchlet_custom_kernels_size(const struct torchlet_custom_kernel *kernels,
                                    size_t count);

// Adds kernels of the caller's. Descriptions are copied into the memory, which has
// `torchlet_custom_kernels_size` bytes (`TORCHLET_CUSTOM_KERNEL_SIZE` for each are enough) and
// starts at a multiple of 8.
// The memory is the registry's as long as methods use it;
// so long names must stay, and functions be callable, from every thread that uses such a method.
torchlet_status torchlet_registry_add_custom_kernels(struct torchlet_registry *registry,
                                                     const struct torchlet_custom_kernel *kernels,
                                                     size_t count,
                                                     void *memory,
                                                     size_t size,
                                                     const struct torchlet_text *error);

// Adds a backend of the caller's: see `torchlet_backend`.
// The backend must stay where it is as long as methods use
// the registry.
torchlet_status torchlet_registry_add_backend(struct torchlet_registry *registry,
                                              const struct torchlet_backend *backend,
                                              const struct torchlet_text *error);

// Adds the CPU engine, which runs what `torchlet lower --for cpu` made. With the feature `std`.
torchlet_status torchlet_registry_add_cpu_engine(struct torchlet_registry *registry,
                                                 const struct torchlet_text *error);

// Adds Vulkan, which runs delegates that were lowered for it on a GPU. With the feature `vulkan`.
torchlet_status torchlet_registry_add_vulkan(struct torchlet_registry *registry,
                                             const struct torchlet_text *error);

// The name of a code, without its prefix: never null.
const char *torchlet_status_name(torchlet_status status);

// The version of the library, such as `0.1.0`.
const char *torchlet_version(void);

// Describes a tensor in row-major order.
torchlet_status torchlet_tensor_info_init(struct torchlet_tensor_info *info,
                                          torchlet_scalar_type scalar_type,
                                          const int32_t *sizes,
                                          size_t rank,
                                          const struct torchlet_text *error);

// Bytes of the elements of such a tensor; 0 if the description is not consistent.
size_t torchlet_tensor_info_nbytes(const struct torchlet_tensor_info *info);

// Number of elements of such a tensor; 0 if the description is not consistent.
size_t torchlet_tensor_info_numel(const struct torchlet_tensor_info *info);

// Bytes of an element of this type; 0 for a number that is no type.
size_t torchlet_scalar_type_size(torchlet_scalar_type scalar_type);

// A tensor in row-major order over data of the caller, which has exactly as many bytes as the
// shape says.
// The data must live as long as the tensor is used.
torchlet_status torchlet_tensor_init(struct torchlet_tensor *tensor,
                                     torchlet_scalar_type scalar_type,
                                     const int32_t *sizes,
                                     size_t rank,
                                     const void *data,
                                     size_t size,
                                     const struct torchlet_text *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TORCHLET_H */
