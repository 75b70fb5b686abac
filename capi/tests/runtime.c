/* Programs in the caller's memory: metadata, execution, tracing, cancellation, external data and
 * storage. */

#include "check.h"

typedef struct counts {
    uint64_t ticks;
    size_t operators;
    size_t runs;
} counts;

static uint64_t tick(void *context)
{
    return ++((counts *)context)->ticks;
}

static void tell(void *context, const torchlet_event *event)
{
    counts *counted = context;
    CHECK(event->end > event->start && event->name.size > 0);
    counted->operators += event->kind == TORCHLET_EVENT_OPERATOR;
    counted->runs += event->kind == TORCHLET_EVENT_EXECUTE;
}

static torchlet_status read_from(void *context, uint64_t offset, void *into, size_t size)
{
    const torchlet_buffer *file = context;
    CHECK(offset + size <= file->size);
    memcpy(into, (const char *)file->data + offset, size);
    return TORCHLET_OK;
}

static const void *lend_from(void *context, uint64_t offset, size_t size)
{
    const torchlet_buffer *file = context;
    CHECK(offset + size <= file->size);
    return (const char *)file->data + offset;
}

static void description(const torchlet_program *program)
{
    torchlet_string name;
    CHECK(torchlet_program_method_count(program) == 1);
    OK(torchlet_program_method_name(program, 0, &name, &error));
    CHECK(name.size == 7 && memcmp(name.data, "forward", 7) == 0);
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_method_name(program, 1, &name, &error));

    torchlet_method_meta meta;
    torchlet_value_meta value;
    OK(torchlet_program_method_meta(program, "forward", &meta, &error));
    CHECK(torchlet_method_meta_input_count(&meta) == 1 &&
          torchlet_method_meta_output_count(&meta) == 1);
    OK(torchlet_method_meta_input(&meta, 0, &value, &error));
    const torchlet_tensor_info *info = &value.value.data.tensor.info;
    CHECK(value.value.kind == TORCHLET_KIND_TENSOR && info->scalar_type == TORCHLET_FLOAT &&
          info->rank == 4);
    CHECK(info->sizes[0] == 1 && info->sizes[3] == 8 && info->dim_order[3] == 3);
    CHECK(torchlet_tensor_info_nbytes(info) == 256 && torchlet_tensor_info_numel(info) == 64);
    CHECK(value.planned && !value.dynamic && !value.constant);
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_method_meta_output(&meta, 1, &value, &error));
}

static void traced(const torchlet_program *program, const torchlet_registry *registry,
                   const float *pixels, const float *expected)
{
    counts counted = {0, 0, 0};
    torchlet_tracer tracer = {&counted, tick, tell};
    torchlet_canceller canceller;
    torchlet_limits limits;
    torchlet_canceller_init(&canceller);
    torchlet_limits_init(&limits);
    torchlet_options options = {NULL, &tracer, &canceller, &limits};
    loaded method;
    float logits[10];
    OK(load(&method, program, "forward", registry, &options));
    OK(run_digits(&method.method, pixels, logits));
    CHECK(memcmp(logits, expected, sizeof logits) == 0);
    CHECK(counted.operators > 5 && counted.runs == 1);

    torchlet_canceller_set(&canceller, true);
    CHECK(run_digits(&method.method, pixels, logits) != TORCHLET_OK && strstr(text, "cancel"));
    torchlet_canceller_set(&canceller, false);

    /* One instruction at a time. */
    const int32_t sizes[] = {1, 1, 8, 8};
    torchlet_tensor image = tensor_of(pixels, 4, sizes), output;
    OK(torchlet_method_set_input_tensor(&method.method, 0, &image, &error));
    size_t steps = 0;
    torchlet_status status;
    while ((status = torchlet_method_step(&method.method, &error)) == TORCHLET_OK)
        steps++;
    CHECK(status == TORCHLET_END_OF_METHOD && steps > 5);
    OK(torchlet_method_output_tensor(&method.method, 0, &output, &error));
    CHECK(memcmp(output.data, expected, sizeof logits) == 0);
    OK(torchlet_method_reset(&method.method, &error));
    unload(&method);

    limits.instructions = 3;
    FAILS(TORCHLET_OUT_OF_RESOURCES,
          torchlet_method_load(&method.method, program, "forward", registry, &options,
                               &(torchlet_memory){{0}, {0}, NULL, 0}, &error));
}

static void from_storage(torchlet_buffer file, const torchlet_registry *registry,
                         const float *pixels, const float *expected)
{
    for (int lends = 0; lends < 2; lends++) {
        torchlet_loader loader = {&file, file.size, read_from, lends ? lend_from : NULL};
        torchlet_program program;
        size_t size = 1;
        OK(torchlet_program_buffer_size(&loader, &size, &error));
        CHECK((size == 0) == lends);
        torchlet_buffer buffer = reserve(size);
        OK(torchlet_program_open_loader(&program, &loader, lends ? NULL : buffer.data, size,
                                        &error));
        loaded method;
        float logits[10];
        OK(load(&method, &program, "forward", registry, NULL));
        OK(run_digits(&method.method, pixels, logits));
        CHECK(memcmp(logits, expected, sizeof logits) == 0);
        unload(&method);
        torchlet_program_close(&program);
        free(buffer.data);
    }
}

static void external_data(const char *folder, const torchlet_registry *registry,
                          const float *pixels, const float *expected)
{
    torchlet_buffer file = read_file(folder, "digits/digits_external.pte");
    torchlet_buffer weights =
        read_file(folder, "digits/digits_external._default_external_constant.ptd");
    torchlet_program program;
    torchlet_data data;
    loaded method;
    float logits[10];
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    FAILS(TORCHLET_INVALID_EXTERNAL_DATA, load(&method, &program, "forward", registry, NULL));
    unload(&method);
    OK(torchlet_data_init(&data, &error));
    OK(torchlet_data_add(&data, weights.data, weights.size, &error));
    torchlet_options options = {.data = &data};
    OK(load(&method, &program, "forward", registry, &options));
    OK(run_digits(&method.method, pixels, logits));
    CHECK(memcmp(logits, expected, sizeof logits) == 0);
    unload(&method);
    torchlet_program_close(&program);
    free(weights.data);
    free(file.data);
}

/* Inputs written in place, values, and memory lent for one run. */
static void other_ways(const torchlet_program *program, const torchlet_registry *registry,
                       const float *pixels, const float *expected)
{
    loaded method;
    OK(load(&method, program, "forward", registry, NULL));
    torchlet_tensor_mut place;
    torchlet_value output;
    OK(torchlet_method_input_tensor(&method.method, 0, &place, &error));
    CHECK(place.size == 256);
    memcpy(place.data, pixels, place.size);
    OK(torchlet_method_execute(&method.method, &error));
    OK(torchlet_method_output(&method.method, 0, &output, &error));
    CHECK(output.kind == TORCHLET_KIND_TENSOR &&
          memcmp(output.data.tensor.data, expected, 40) == 0);

    const int32_t sizes[] = {1, 1, 8, 8};
    torchlet_tensor image = tensor_of(pixels, 4, sizes);
    float logits[10];
    torchlet_buffer target = {logits, sizeof logits};
    torchlet_tensor_info info;
    OK(torchlet_method_execute_into(&method.method, &image, 1, &target, 1, &info, &error));
    CHECK(memcmp(logits, expected, sizeof logits) == 0 && info.rank == 2 && info.sizes[1] == 10);
    target.size--;
    CHECK(torchlet_method_execute_into(&method.method, &image, 1, &target, 1, NULL, &error) !=
          TORCHLET_OK);
    CHECK(torchlet_method_state_count(&method.method) == 0);
    CHECK(!torchlet_method_input_is_unbound(&method.method, 0));
    unload(&method);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    torchlet_buffer file = read_file(argv[1], "digits/digits.pte");
    float pixels[64], logits[10];
    read_picture(argv[1], pixels);

    torchlet_program program;
    torchlet_registry registry;
    loaded method;
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    OK(torchlet_registry_init(&registry, &error));
    OK(torchlet_registry_add_all_kernels(&registry, &error));
    OK(load(&method, &program, "forward", &registry, NULL));
    OK(run_digits(&method.method, pixels, logits));
    CHECK(largest(logits, 10) == 2);
    unload(&method);

    description(&program);
    traced(&program, &registry, pixels, logits);
    other_ways(&program, &registry, pixels, logits);
    from_storage(file, &registry, pixels, logits);
    external_data(argv[1], &registry, pixels, logits);
    torchlet_program_close(&program);
    free(file.data);
    puts("ok");
    return 0;
}
