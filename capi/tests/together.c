/* Methods with shared memory, state of methods and delegates, and bundled programs. */

#include "check.h"

/* An open bundled program. */
typedef struct bundled {
    torchlet_buffer file;
    torchlet_bundle bundle;
    torchlet_program program;
} bundled;

static void open(bundled *into, const char *folder, const char *name)
{
    const void *program;
    size_t size;
    into->file = read_file(folder, name);
    CHECK(torchlet_is_bundle(into->file.data, into->file.size));
    OK(torchlet_bundle_open(&into->bundle, into->file.data, into->file.size, &program, &size,
                            &error));
    CHECK((const char *)program > (char *)into->file.data && size < into->file.size);
    CHECK(!torchlet_is_bundle(program, size));
    OK(torchlet_program_open(&into->program, program, size, &error));
}

static void close(bundled *from)
{
    torchlet_program_close(&from->program);
    free(from->file.data);
}

static bool holds(const torchlet_value *found, const torchlet_value *expected)
{
    const torchlet_tensor *a = &found->data.tensor, *b = &expected->data.tensor;
    CHECK(found->kind == TORCHLET_KIND_TENSOR && expected->kind == TORCHLET_KIND_TENSOR &&
          a->size == b->size);
    if (a->info.scalar_type != TORCHLET_FLOAT)
        return memcmp(a->data, b->data, a->size) == 0;
    for (size_t i = 0; i < a->size / sizeof(float); i++) {
        float wanted = ((const float *)b->data)[i];
        if (!(fabsf(((const float *)a->data)[i] - wanted) <= 1e-4f + 1e-4f * fabsf(wanted)))
            return false;
    }
    return true;
}

/* Sets the inputs of a test case, runs the method, and compares its outputs. */
static void run_case(const bundled *program, torchlet_method *method, size_t suite, size_t number)
{
    size_t inputs, outputs;
    torchlet_value value, found;
    OK(torchlet_bundle_case(&program->bundle, suite, number, &inputs, &outputs, &error));
    for (size_t i = 0; i < inputs; i++) {
        OK(torchlet_bundle_input(&program->bundle, suite, number, i, &value, &error));
        OK(torchlet_method_set_input(method, i, &value, &error));
    }
    OK(torchlet_method_execute(method, &error));
    for (size_t i = 0; i < outputs; i++) {
        OK(torchlet_bundle_output(&program->bundle, suite, number, i, &value, &error));
        OK(torchlet_method_output(method, i, &found, &error));
        CHECK(holds(&found, &value));
    }
}

static void bundles(const char *folder, const torchlet_registry *registry)
{
    bundled digits;
    loaded method;
    torchlet_string name;
    torchlet_value value;
    size_t cases, inputs, outputs;
    open(&digits, folder, "digits/digits.bpte");
    CHECK(torchlet_bundle_suite_count(&digits.bundle) == 1);
    OK(torchlet_bundle_suite(&digits.bundle, 0, &name, &cases, &error));
    CHECK(cases > 0 && name.size == 7 && memcmp(name.data, "forward", 7) == 0);
    OK(torchlet_bundle_case(&digits.bundle, 0, 0, &inputs, &outputs, &error));
    CHECK(inputs == 1 && outputs == 1);
    OK(load(&method, &digits.program, "forward", registry, NULL));
    for (size_t number = 0; number < cases; number++)
        run_case(&digits, &method.method, 0, number);
    unload(&method);

    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_bundle_suite(&digits.bundle, 1, &name, &cases, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_bundle_case(&digits.bundle, 0, cases, &inputs, &outputs, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_bundle_input(&digits.bundle, 0, 0, 1, &value, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_bundle_output(&digits.bundle, 0, 0, 1, &value, &error));
    const void *program;
    torchlet_bundle other;
    FAILS(TORCHLET_INVALID_PROGRAM,
          torchlet_bundle_open(&other, digits.file.data, 12, &program, &inputs, &error));
    close(&digits);

    torchlet_buffer plain = read_file(folder, "digits/digits.pte");
    CHECK(!torchlet_is_bundle(plain.data, plain.size));
    FAILS(TORCHLET_INVALID_PROGRAM,
          torchlet_bundle_open(&other, plain.data, plain.size, &program, &inputs, &error));
    free(plain.data);
}

/* A prepared method, to be finished in shared memory. */
typedef struct prepared {
    torchlet_method method;
    torchlet_needs needs;
    torchlet_buffer tables;
    torchlet_buffer arena;
    size_t planned[4];
    size_t planned_count;
} prepared;

static void prepare(prepared *into, const torchlet_program *program, const char *name,
                    const torchlet_registry *registry)
{
    torchlet_method_meta meta;
    size_t size;
    memset(into, 0, sizeof *into);
    OK(torchlet_program_method_meta(program, name, &meta, &error));
    OK(torchlet_method_meta_table_size(&meta, NULL, &size, &error));
    into->tables = reserve(size);
    OK(torchlet_method_prepare(&into->method, &meta, registry, NULL, into->tables.data, size,
                               &error));
    OK(torchlet_method_needs(&into->method, &into->needs, &error));
    into->arena = reserve(into->needs.arena);
    into->planned_count = torchlet_method_meta_planned_count(&meta);
    CHECK(into->planned_count <= 4);
    for (size_t i = 0; i < into->planned_count; i++)
        OK(torchlet_method_meta_planned_size(&meta, i, &into->planned[i], &error));
}

static void drop(prepared *from)
{
    torchlet_method_close(&from->method);
    free(from->arena.data);
    free(from->tables.data);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Memory for two methods: each buffer has the larger of both sizes. */
typedef struct ground {
    torchlet_buffer planned[4];
    size_t planned_count;
    torchlet_buffer scratch;
} ground;

static ground reserve_both(const prepared *a, const prepared *b)
{
    ground result = {{{NULL, 0}}, larger(a->planned_count, b->planned_count), {NULL, 0}};
    for (size_t i = 0; i < result.planned_count; i++)
        result.planned[i] = reserve(larger(a->planned[i], b->planned[i]));
    result.scratch = reserve(larger(a->needs.scratch, b->needs.scratch));
    return result;
}

static void free_ground(ground *from)
{
    for (size_t i = 0; i < from->planned_count; i++)
        free(from->planned[i].data);
    free(from->scratch.data);
}

/* Two programs that share memory for activations. */
static void two_programs(const char *folder, const torchlet_registry *registry)
{
    bundled digits, words;
    prepared one, two;
    torchlet_shared_memory memory;
    torchlet_value value;
    open(&digits, folder, "digits/digits.bpte");
    open(&words, folder, "tinyml/keyword_spotting.bpte");
    prepare(&one, &digits.program, "forward", registry);
    prepare(&two, &words.program, "forward", registry);
    ground own = reserve_both(&one, &two);

    /* A byte less is an error, and the method loaded before stays usable. */
    torchlet_buffer less = {own.planned[0].data, own.planned[0].size - 1};
    prepared third;
    prepare(&third, own.planned[0].size == one.planned[0] ? &digits.program : &words.program,
            "forward", registry);
    OK(torchlet_shared_memory_init(&memory, &less, 1, own.scratch, &error));
    FAILS(TORCHLET_MEMORY_ALLOCATION_FAILED,
          torchlet_method_finish_shared(&third.method, &memory, third.arena, &error));
    FAILS(TORCHLET_INVALID_STATE,
          torchlet_method_finish_shared(&third.method, &memory, third.arena, &error));
    drop(&third);
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_shared_memory_init(&memory, NULL, 1, own.scratch, &error));
    torchlet_buffer shifted = {(char *)own.planned[0].data + 1, own.planned[0].size - 1};
    CHECK(torchlet_shared_memory_init(&memory, &shifted, 1, own.scratch, &error) != TORCHLET_OK);
    torchlet_shared_memory closed = {0};
    FAILS(TORCHLET_INVALID_STATE,
          torchlet_method_finish_shared(&one.method, &closed, one.arena, &error));

    OK(torchlet_shared_memory_init(&memory, own.planned, own.planned_count, own.scratch, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_execute(&one.method, &error));
    OK(torchlet_method_finish_shared(&one.method, &memory, one.arena, &error));
    OK(torchlet_method_finish_shared(&two.method, &memory, two.arena, &error));
    CHECK(torchlet_method_input_count(&one.method) == 1 &&
          torchlet_method_state_count(&two.method) == 0);
    CHECK(torchlet_method_output(&one.method, 0, &value, &error) != TORCHLET_OK &&
          strstr(text, "before another one runs"));
    for (int turn = 0; turn < 3; turn++) {
        run_case(&digits, &one.method, 0, 0);
        OK(torchlet_method_output(&one.method, 0, &value, &error));
        run_case(&words, &two.method, 0, 0);
        /* The other method overwrote these values: outputs cannot be read, and inputs are unset. */
        CHECK(torchlet_method_output(&one.method, 0, &value, &error) != TORCHLET_OK);
        CHECK(torchlet_method_execute(&one.method, &error) != TORCHLET_OK);
    }
    /* An input written in place. */
    torchlet_tensor_mut place;
    torchlet_value picture, found;
    OK(torchlet_bundle_input(&digits.bundle, 0, 0, 0, &picture, &error));
    OK(torchlet_bundle_output(&digits.bundle, 0, 0, 0, &value, &error));
    OK(torchlet_method_input_tensor(&one.method, 0, &place, &error));
    memcpy(place.data, picture.data.tensor.data, place.size);
    OK(torchlet_method_execute(&one.method, &error));
    OK(torchlet_method_output(&one.method, 0, &found, &error));
    CHECK(holds(&found, &value));

    drop(&one);
    drop(&two);
    free_ground(&own);
    close(&words);
    close(&digits);
}

/* The state tensor with this name. */
static size_t state_named(const torchlet_method *method, const char *name)
{
    torchlet_state state;
    for (size_t i = 0; i < torchlet_method_state_count(method); i++) {
        OK(torchlet_method_state(method, i, &state, &error));
        if (state.name.size == strlen(name) && memcmp(state.name.data, name, state.name.size) == 0)
            return state.value;
    }
    CHECK(!"there is no such state");
    return 0;
}

/* Methods of one program that share state: one reads what the other wrote. */
static void common_state(const char *folder, const torchlet_registry *registry)
{
    bundled program;
    prepared writes, reads;
    torchlet_shared_memory memory;
    torchlet_value value;
    torchlet_tensor_mut place, other;
    open(&program, folder, "programs/state_shared.bpte");
    prepare(&writes, &program.program, "write", registry);
    prepare(&reads, &program.program, "read", registry);
    ground own = reserve_both(&writes, &reads);
    OK(torchlet_shared_memory_init(&memory, own.planned, own.planned_count, own.scratch, &error));
    OK(torchlet_method_finish_shared(&writes.method, &memory, writes.arena, &error));
    OK(torchlet_method_finish_shared(&reads.method, &memory, reads.arena, &error));

    size_t in_one = state_named(&writes.method, "kept"),
           in_other = state_named(&reads.method, "kept");
    OK(torchlet_method_state_tensor(&reads.method, in_other, &place, &error));
    const float first = ((const float *)place.data)[0];
    const float numbers[] = {3, 1, 4};
    const int32_t sizes[] = {3};
    torchlet_tensor input = tensor_of(numbers, 1, sizes);
    OK(torchlet_method_set_input_tensor(&writes.method, 0, &input, &error));
    OK(torchlet_method_execute(&writes.method, &error));
    OK(torchlet_method_state_tensor(&writes.method, in_one, &place, &error));
    OK(torchlet_method_state_tensor(&reads.method, in_other, &other, &error));
    CHECK(place.data == other.data && place.size == 12 && ((const float *)place.data)[0] != first);

    /* Runs read state that C wrote: the outputs of two runs differ by the change of the state. */
    float results[2];
    for (int run = 0; run < 2; run++) {
        OK(torchlet_method_state_tensor(&writes.method, in_one, &place, &error));
        ((float *)place.data)[0] = run ? 9.0f : 2.0f;
        OK(torchlet_method_set_input_tensor(&reads.method, 0, &input, &error));
        OK(torchlet_method_execute(&reads.method, &error));
        OK(torchlet_method_output(&reads.method, 0, &value, &error));
        results[run] = ((const float *)value.data.tensor.data)[0];
    }
    CHECK(results[1] != results[0]);
    OK(torchlet_method_reset(&writes.method, &error));
    OK(torchlet_method_state_tensor(&reads.method, in_other, &other, &error));
    CHECK(((const float *)other.data)[0] == first);

    drop(&writes);
    drop(&reads);
    free_ground(&own);
    close(&program);
}

/* A backend for XNNPACK delegates that counts runs in state that can be saved. */
static torchlet_status count_arena(void *context, const torchlet_delegate_info *info, size_t *bytes)
{
    (void)context;
    (void)info;
    *bytes = 3 * sizeof(int32_t);
    return TORCHLET_OK;
}

static torchlet_status count_init(void *context, torchlet_delegate_init *init, void **delegate)
{
    (void)context;
    return torchlet_delegate_init_allocate(init, 3 * sizeof(int32_t), delegate);
}

static torchlet_status count_execute(void *context, void *delegate, torchlet_call *call)
{
    (void)context;
    torchlet_tensor_mut output;
    size_t count = torchlet_call_argument_count(call);
    torchlet_status status;
    if ((status = torchlet_call_split(call, count - 1)) ||
        (status = torchlet_call_output(call, count - 1, &output)))
        return status;
    float runs = (float)++((int32_t *)delegate)[1];
    for (size_t i = 0; i < output.size / sizeof runs; i++)
        ((float *)output.data)[i] = runs;
    return TORCHLET_OK;
}

static torchlet_status count_reset(void *context, void *delegate)
{
    (void)context;
    memset(delegate, 0, 3 * sizeof(int32_t));
    return TORCHLET_OK;
}

static torchlet_status count_state(void *context, void *delegate, size_t number,
                                   torchlet_string *name, torchlet_tensor_info *info)
{
    (void)context;
    (void)delegate;
    const int32_t sizes[] = {3};
    if (number > 0)
        return TORCHLET_NOT_FOUND;
    *name = (torchlet_string){"runs", 4};
    return torchlet_tensor_info_init(info, TORCHLET_INT, sizes, 1, NULL);
}

static torchlet_status count_read(void *context, void *delegate, size_t number, void *into,
                                  size_t size)
{
    (void)context;
    CHECK(number == 0);
    memcpy(into, delegate, size);
    return TORCHLET_OK;
}

static torchlet_status count_write(void *context, void *delegate, size_t number, const void *data,
                                   size_t size)
{
    (void)context;
    CHECK(number == 0);
    memcpy(delegate, data, size);
    return TORCHLET_OK;
}

static float count_run(const bundled *program, torchlet_method *method)
{
    torchlet_value value;
    size_t inputs, outputs;
    OK(torchlet_bundle_case(&program->bundle, 0, 0, &inputs, &outputs, &error));
    for (size_t i = 0; i < inputs; i++) {
        OK(torchlet_bundle_input(&program->bundle, 0, 0, i, &value, &error));
        OK(torchlet_method_set_input(method, i, &value, &error));
    }
    OK(torchlet_method_execute(method, &error));
    OK(torchlet_method_output(method, 0, &value, &error));
    return ((const float *)value.data.tensor.data)[0];
}

static void state_of_delegates(const char *folder)
{
    torchlet_backend counting = {.name = "XnnpackBackend",
                                 .arena = count_arena,
                                 .init = count_init,
                                 .execute = count_execute,
                                 .reset = count_reset,
                                 .state = count_state,
                                 .read_state = count_read};
    torchlet_registry registry;
    bundled program;
    loaded method;
    torchlet_delegate_state state;
    int32_t saved[3] = {9, 9, 9};
    OK(torchlet_registry_init(&registry, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_registry_add_backend(&registry, &counting, &error));
    counting.write_state = count_write;
    OK(torchlet_registry_add_backend(&registry, &counting, &error));
    open(&program, folder, "xnnpack/binary/add.bpte");
    OK(load(&method, &program.program, "forward", &registry, NULL));
    CHECK(count_run(&program, &method.method) == 1 && count_run(&program, &method.method) == 2);

    CHECK(torchlet_method_delegate_state_count(&method.method) == 1);
    OK(torchlet_method_delegate_state(&method.method, 0, &state, &error));
    CHECK(state.info.scalar_type == TORCHLET_INT && state.info.rank == 1 &&
          state.info.sizes[0] == 3);
    CHECK(state.name.size == 4 && memcmp(state.name.data, "runs", 4) == 0);
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_delegate_state(&method.method, 1, &state, &error));
    OK(torchlet_method_read_delegate_state(&method.method, state.delegate, state.number, saved,
                                           sizeof saved, &error));
    CHECK(saved[0] == 0 && saved[1] == 2 && saved[2] == 0);
    saved[1] = 40;
    OK(torchlet_method_write_delegate_state(&method.method, state.delegate, state.number, saved,
                                            sizeof saved, &error));
    CHECK(count_run(&program, &method.method) == 41);
    CHECK(torchlet_method_read_delegate_state(&method.method, state.delegate, 0, saved, 8,
                                              &error) != TORCHLET_OK);
    CHECK(torchlet_method_write_delegate_state(&method.method, state.delegate, 1, saved, 12,
                                               &error) != TORCHLET_OK);
    CHECK(torchlet_method_read_delegate_state(&method.method, 9, 0, saved, sizeof saved, &error) !=
          TORCHLET_OK);
    CHECK(count_run(&program, &method.method) == 42);
    OK(torchlet_method_reset(&method.method, &error));
    CHECK(count_run(&program, &method.method) == 1);
    unload(&method);
    close(&program);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    torchlet_registry registry;
    OK(torchlet_registry_init(&registry, &error));
    OK(torchlet_registry_add_all_kernels(&registry, &error));
    bundles(argv[1], &registry);
    two_programs(argv[1], &registry);
    common_state(argv[1], &registry);
    state_of_delegates(argv[1]);
    puts("ok");
    return 0;
}
