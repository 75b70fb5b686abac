/* Kernels by name; kernels and backends written in C. */

#include "check.h"
#include <torchlet_kernels.h>

/* All operators of the digits program except its activation. */
static const torchlet_kernel *const NAMED[] = {
    &torchlet_kernel_aten_convolution_out,
    &torchlet_kernel_aten_addmm_out,
    &torchlet_kernel_aten__native_batch_norm_legit_no_training_out,
    &torchlet_kernel_aten_max_pool2d_with_indices_out,
    &torchlet_kernel_aten_permute_copy_out,
};
#define NAMED_COUNT (sizeof NAMED / sizeof NAMED[0])

typedef struct relu {
    size_t prepared;
    size_t invoked;
    bool refuses;
    bool wrong_argument;
    /* Uses the method that calls it, like another task. */
    torchlet_method *intrudes;
} relu;

static void intrude(torchlet_method *method)
{
    torchlet_tensor tensor;
    torchlet_tensor_mut place;
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_execute(method, &error));
    CHECK(strstr(text, "in use"));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_step(method, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_reset(method, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_input_tensor(method, 0, &place, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_output_tensor(method, 0, &tensor, &error));
    CHECK(torchlet_method_output_count(method) == 0);
    torchlet_method_close(method);
}

static torchlet_status prepare_relu(void *context, torchlet_call *call, torchlet_plan *plan)
{
    relu *self = context;
    torchlet_tensor_info input;
    self->prepared++;
    torchlet_status status = torchlet_call_info(call, 0, &input);
    if (status)
        return status;
    if (self->refuses)
        return torchlet_call_unsupported(call, "an activation on a Tuesday");
    if (self->wrong_argument) {
        int64_t number;
        status = torchlet_call_int(call, 0, &number);
        CHECK(status != TORCHLET_OK);
        return status;
    }
    if (input.scalar_type != TORCHLET_FLOAT)
        return torchlet_call_fail(call, 0, "not float32");
    CHECK(torchlet_call_argument_count(call) == 2 && !torchlet_call_is_none(call, 0));
    CHECK(!torchlet_call_is_constant(call, 0));
    /* Data is not available in prepare. */
    torchlet_tensor tensor;
    CHECK(torchlet_call_input(call, 0, &tensor) == TORCHLET_INVALID_STATE);
    plan->scratch = torchlet_tensor_info_nbytes(&input);
    return torchlet_call_resize(call, 1, input.sizes, input.rank);
}

static torchlet_status invoke_relu(void *context, torchlet_call *call)
{
    torchlet_tensor input;
    torchlet_tensor_mut output;
    void *scratch;
    size_t size;
    torchlet_status status;
    ((relu *)context)->invoked++;
    if (((relu *)context)->intrudes)
        intrude(((relu *)context)->intrudes);
    if ((status = torchlet_call_input(call, 0, &input)) ||
        (status = torchlet_call_output(call, 1, &output)) ||
        (status = torchlet_call_scratch(call, &scratch, &size)))
        return status;
    CHECK(size >= input.size && (uintptr_t)scratch % TORCHLET_ALIGN == 0 &&
          output.size == input.size);
    /* Each output can be obtained once. */
    CHECK(torchlet_call_output(call, 1, &output) != TORCHLET_OK);
    float *copy = scratch, *to = output.data;
    memcpy(copy, input.data, input.size);
    for (size_t i = 0; i < input.size / sizeof(float); i++)
        to[i] = copy[i] > 0 ? copy[i] : 0;
    return TORCHLET_OK;
}

static const torchlet_param RELU_PARAMS[] = {TORCHLET_PARAM_TENSOR, TORCHLET_PARAM_OUT};

static void kernels(const char *folder)
{
    torchlet_buffer file = read_file(folder, "digits/digits.pte");
    float pixels[64], expected[10], logits[10];
    read_picture(folder, pixels);
    torchlet_program program;
    torchlet_registry all, registry;
    loaded method;
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    OK(torchlet_registry_init(&all, &error));
    OK(torchlet_registry_add_all_kernels(&all, &error));
    OK(load(&method, &program, "forward", &all, NULL));
    OK(run_digits(&method.method, pixels, expected));
    unload(&method);

    /* Only the named kernels are registered. */
    size_t size = TORCHLET_KERNELS_SIZE(NAMED_COUNT);
    torchlet_buffer memory = reserve(size);
    OK(torchlet_registry_init(&registry, &error));
    FAILS(TORCHLET_MEMORY_ALLOCATION_FAILED,
          torchlet_registry_add_kernels(&registry, NAMED, NAMED_COUNT, memory.data, 16, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_registry_add_kernels(&registry, NULL, 1, memory.data, size, &error));
    OK(torchlet_registry_add_kernels(&registry, NAMED, NAMED_COUNT, memory.data, size, &error));
    FAILS(TORCHLET_OPERATOR_MISSING, load(&method, &program, "forward", &registry, NULL));
    CHECK(strstr(text, "aten::relu.out") && !strstr(text, "addmm"));
    unload(&method);

    /* The missing kernel, in C. */
    relu state = {0};
    torchlet_custom_kernel relu_kernel = {"aten::relu.out", RELU_PARAMS, 2,     prepare_relu,
                                          invoke_relu,      NULL,        &state};
    size_t custom_size = torchlet_custom_kernels_size(&relu_kernel, 1);
    CHECK(custom_size > 0 && custom_size <= TORCHLET_CUSTOM_KERNEL_SIZE(2));
    torchlet_buffer custom = reserve(custom_size);
    FAILS(TORCHLET_MEMORY_ALLOCATION_FAILED,
          torchlet_registry_add_custom_kernels(&registry, &relu_kernel, 1, custom.data,
                                               custom_size - 1, &error));
    torchlet_custom_kernel broken = relu_kernel;
    broken.invoke = NULL;
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_registry_add_custom_kernels(
                                         &registry, &broken, 1, custom.data, custom_size, &error));
    OK(torchlet_registry_add_custom_kernels(&registry, &relu_kernel, 1, custom.data, custom_size,
                                            &error));
    OK(load(&method, &program, "forward", &registry, NULL));
    CHECK(state.prepared > 0 && state.invoked == 0);
    OK(run_digits(&method.method, pixels, logits));
    CHECK(state.invoked > 0 && memcmp(logits, expected, sizeof logits) == 0);

    /* A running method cannot be used by others, and is usable afterwards. */
    memset(logits, 0, sizeof logits);
    state.intrudes = &method.method;
    OK(run_digits(&method.method, pixels, logits));
    CHECK(memcmp(logits, expected, sizeof logits) == 0);
    CHECK(torchlet_method_output_count(&method.method) == 1);
    state.intrudes = NULL;
    unload(&method);

    /* The error of a C kernel has the kernel's message, or names the wrong argument. */
    state.refuses = true;
    FAILS(TORCHLET_NOT_SUPPORTED, load(&method, &program, "forward", &registry, NULL));
    CHECK(strstr(text, "on a Tuesday") && strstr(text, "aten::relu.out"));
    unload(&method);
    state.refuses = false;
    state.wrong_argument = true;
    FAILS(TORCHLET_INVALID_TYPE, load(&method, &program, "forward", &registry, NULL));
    unload(&method);

    free(custom.data);
    free(memory.data);
    torchlet_program_close(&program);
    free(file.data);
}

/* A C kernel that packs weights at load time: addmm with doubled weights. */
static torchlet_status prepare_product(void *context, torchlet_call *call, torchlet_plan *plan)
{
    (void)context;
    torchlet_tensor_info bias, left, right;
    torchlet_status status;
    if ((status = torchlet_call_info(call, 0, &bias)) ||
        (status = torchlet_call_info(call, 1, &left)) ||
        (status = torchlet_call_info(call, 2, &right)))
        return status;
    if (torchlet_call_is_constant(call, 0))
        plan->packed = torchlet_tensor_info_nbytes(&bias);
    const int32_t sizes[] = {left.sizes[0], right.sizes[1]};
    return torchlet_call_resize(call, 5, sizes, 2);
}

static torchlet_status pack_product(void *context, torchlet_call *call, void *packed, size_t size)
{
    torchlet_tensor bias;
    torchlet_status status = torchlet_call_input(call, 0, &bias);
    if (status)
        return status;
    CHECK(bias.size == size);
    for (size_t i = 0; i < size / sizeof(float); i++)
        ((float *)packed)[i] = 2 * ((const float *)bias.data)[i];
    ++*(size_t *)context;
    return TORCHLET_OK;
}

static torchlet_status invoke_product(void *context, torchlet_call *call)
{
    (void)context;
    torchlet_tensor left, right;
    torchlet_tensor_mut output;
    const void *packed;
    size_t size;
    double beta, alpha;
    torchlet_status status;
    if ((status = torchlet_call_input(call, 1, &left)) ||
        (status = torchlet_call_input(call, 2, &right)) ||
        (status = torchlet_call_float(call, 3, &beta)) ||
        (status = torchlet_call_float(call, 4, &alpha)) ||
        (status = torchlet_call_output(call, 5, &output)) ||
        (status = torchlet_call_packed(call, &packed, &size)))
        return status;
    CHECK(beta == 1 && alpha == 1 && size > 0);
    const float *a = left.data, *b = right.data, *bias = packed;
    float *to = output.data;
    size_t columns = (size_t)right.info.sizes[1], inner = (size_t)left.info.sizes[1];
    for (size_t column = 0; column < columns; column++) {
        float sum = bias[column] / 2;
        for (size_t i = 0; i < inner; i++)
            sum += a[i] * b[i * columns + column];
        to[column] = sum;
    }
    return TORCHLET_OK;
}

static void packing(const char *folder)
{
    static const torchlet_param params[] = {TORCHLET_PARAM_TENSOR, TORCHLET_PARAM_TENSOR,
                                            TORCHLET_PARAM_TENSOR, TORCHLET_PARAM_SCALAR,
                                            TORCHLET_PARAM_SCALAR, TORCHLET_PARAM_OUT};
    const torchlet_kernel *const others[] = {NAMED[0], NAMED[2], NAMED[3], NAMED[4],
                                             &torchlet_kernel_aten_relu_out};
    torchlet_buffer file = read_file(folder, "digits/digits.pte");
    float pixels[64], logits[10];
    read_picture(folder, pixels);
    torchlet_program program;
    torchlet_registry registry;
    loaded method;
    size_t packs = 0;
    torchlet_custom_kernel product = {"aten::addmm.out", params,       6,     prepare_product,
                                      invoke_product,    pack_product, &packs};
    torchlet_buffer memory = reserve(TORCHLET_KERNELS_SIZE(5)),
                    custom = reserve(TORCHLET_CUSTOM_KERNEL_SIZE(6));
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    OK(torchlet_registry_init(&registry, &error));
    OK(torchlet_registry_add_kernels(&registry, others, 5, memory.data, memory.size, &error));
    OK(torchlet_registry_add_custom_kernels(&registry, &product, 1, custom.data, custom.size,
                                            &error));
    OK(load(&method, &program, "forward", &registry, NULL));
    CHECK(packs > 0 && method.memory.arena.size > 0);
    OK(run_digits(&method.method, pixels, logits));
    CHECK(largest(logits, 10) == 2);
    unload(&method);
    torchlet_program_close(&program);
    free(custom.data);
    free(memory.data);
    free(file.data);
}

/* An operator on int8 images whose exported call passes a scratch tensor; the kernel requests
 * scratch memory instead. */
typedef struct codes {
    size_t runs;
    size_t seen;
} codes;

static torchlet_status prepare_codes(void *context, torchlet_call *call, torchlet_plan *plan)
{
    (void)context;
    torchlet_tensor_info input, output;
    torchlet_status status;
    if ((status = torchlet_call_info(call, 0, &input)) ||
        (status = torchlet_call_info(call, 13, &output)))
        return status;
    CHECK(input.scalar_type == TORCHLET_CHAR && input.rank == 4);
    plan->scratch = torchlet_tensor_info_nbytes(&output);
    return torchlet_call_resize(call, 13, output.sizes, output.rank);
}

static torchlet_status invoke_codes(void *context, torchlet_call *call)
{
    torchlet_tensor_mut output;
    void *scratch;
    size_t size;
    torchlet_status status;
    if ((status = torchlet_call_output(call, 13, &output)) ||
        (status = torchlet_call_scratch(call, &scratch, &size)))
        return status;
    CHECK(size >= output.size);
    /* The scratch request has no visible effect. */
    torchlet_tensor reserved;
    ((codes *)context)->seen += torchlet_call_input(call, 12, &reserved) == TORCHLET_OK;
    for (size_t i = 0; i < output.size; i++)
        ((int8_t *)scratch)[i] = (int8_t)i;
    memcpy(output.data, scratch, output.size);
    ((codes *)context)->runs++;
    return TORCHLET_OK;
}

static void tensors_to_compute_in(const char *folder)
{
    static torchlet_param params[] = {
        TORCHLET_PARAM_TENSOR,   TORCHLET_PARAM_TENSOR,   TORCHLET_PARAM_OPTIONAL_TENSOR,
        TORCHLET_PARAM_INT_LIST, TORCHLET_PARAM_INT_LIST, TORCHLET_PARAM_INT_LIST,
        TORCHLET_PARAM_INT,      TORCHLET_PARAM_INT,      TORCHLET_PARAM_TENSOR,
        TORCHLET_PARAM_TENSOR,   TORCHLET_PARAM_INT,      TORCHLET_PARAM_INT,
        TORCHLET_PARAM_SCRATCH,  TORCHLET_PARAM_OUT};
    static const torchlet_kernel *const others[] = {
        &torchlet_kernel_cortex_m_quantize_per_tensor_out,
        &torchlet_kernel_cortex_m_dequantize_per_tensor_out,
        &torchlet_kernel_cortex_m_quantized_avg_pool2d_out,
        &torchlet_kernel_cortex_m_quantized_depthwise_conv2d_out,
        &torchlet_kernel_cortex_m_quantized_linear_out,
        &torchlet_kernel_cortex_m_pad_out};
    const size_t count = sizeof others / sizeof others[0];
    torchlet_buffer file = read_file(folder, "tinyml/keyword_spotting.bpte");
    torchlet_bundle bundle;
    torchlet_program program;
    torchlet_value input;
    const void *bytes;
    size_t size;
    OK(torchlet_bundle_open(&bundle, file.data, file.size, &bytes, &size, &error));
    OK(torchlet_program_open(&program, bytes, size, &error));
    OK(torchlet_bundle_input(&bundle, 0, 0, 0, &input, &error));
    for (int reserved = 0; reserved < 2; reserved++) {
        codes found = {0, 0};
        params[12] = reserved ? TORCHLET_PARAM_SCRATCH : TORCHLET_PARAM_TENSOR;
        torchlet_custom_kernel kernel = {"cortex_m::quantized_conv2d.out",
                                         params,
                                         14,
                                         prepare_codes,
                                         invoke_codes,
                                         NULL,
                                         &found};
        torchlet_buffer memory = reserve(TORCHLET_KERNELS_SIZE(count)),
                        custom = reserve(TORCHLET_CUSTOM_KERNEL_SIZE(14));
        torchlet_registry registry;
        loaded method;
        OK(torchlet_registry_init(&registry, &error));
        OK(torchlet_registry_add_kernels(&registry, others, count, memory.data, memory.size,
                                         &error));
        OK(torchlet_registry_add_custom_kernels(&registry, &kernel, 1, custom.data, custom.size,
                                                &error));
        OK(load(&method, &program, "forward", &registry, NULL));
        OK(torchlet_method_set_input(&method.method, 0, &input, &error));
        OK(torchlet_method_execute(&method.method, &error));
        CHECK(found.runs > 1 && found.seen == (reserved ? 0 : found.runs));
        unload(&method);
        free(custom.data);
        free(memory.data);
    }
    params[12] = TORCHLET_PARAM_SCRATCH + 1;
    torchlet_custom_kernel unknown = {
        "cortex_m::quantized_conv2d.out", params, 14, prepare_codes, invoke_codes, NULL, NULL};
    torchlet_buffer custom = reserve(TORCHLET_CUSTOM_KERNEL_SIZE(14));
    torchlet_registry registry;
    OK(torchlet_registry_init(&registry, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_registry_add_custom_kernels(
                                         &registry, &unknown, 1, custom.data, custom.size, &error));
    free(custom.data);
    torchlet_program_close(&program);
    free(file.data);
}

/* A backend that accepts XNNPACK delegates and outputs zeros. */
typedef struct zeros {
    size_t made;
    size_t runs;
    size_t destroyed;
    bool fails;
} zeros;

static torchlet_status zeros_arena(void *context, const torchlet_delegate_info *info, size_t *bytes)
{
    (void)context;
    CHECK(torchlet_delegate_info_size(info) > 16);
    CHECK(torchlet_delegate_info_method(info).size == 7);
    const void *spec;
    size_t size;
    CHECK(torchlet_delegate_info_compile_spec(info, "no such key", &spec, &size) ==
          TORCHLET_NOT_FOUND);
    *bytes = 24;
    return TORCHLET_OK;
}

static torchlet_status zeros_init(void *context, torchlet_delegate_init *init, void **delegate)
{
    zeros *self = context;
    const void *data;
    size_t size;
    bool lent;
    torchlet_status status;
    if ((status = torchlet_delegate_init_processed(init, &data, &size, &lent)))
        return status;
    char first[4];
    CHECK(torchlet_delegate_info_size(torchlet_delegate_init_info(init)) == size);
    CHECK(torchlet_delegate_info_read(torchlet_delegate_init_info(init), 0, first, 4) ==
          TORCHLET_OK);
    CHECK(memcmp(first, data, 4) == 0);
    if ((status = torchlet_delegate_init_allocate(init, 24, delegate)))
        return status;
    CHECK((uintptr_t)*delegate % TORCHLET_ALIGN == 0);
    memset(*delegate, 0x5a, 24);
    self->made++;
    return self->fails ? TORCHLET_NOT_FOUND : TORCHLET_OK;
}

static torchlet_status zeros_execute(void *context, void *delegate, torchlet_call *call)
{
    torchlet_tensor input;
    torchlet_tensor_mut output;
    torchlet_status status;
    CHECK(*(unsigned char *)delegate == 0x5a);
    CHECK(torchlet_call_input(call, 0, &input) == TORCHLET_INVALID_STATE);
    size_t count = torchlet_call_argument_count(call);
    if ((status = torchlet_call_split(call, count - 1)))
        return status;
    if ((status = torchlet_call_input(call, 0, &input)) ||
        (status = torchlet_call_output(call, count - 1, &output)))
        return status;
    memset(output.data, 0, output.size);
    ((zeros *)context)->runs++;
    return TORCHLET_OK;
}

static void zeros_destroy(void *context, void *delegate)
{
    CHECK(*(unsigned char *)delegate == 0x5a);
    ((zeros *)context)->destroyed++;
}

static void backend(const char *folder)
{
    zeros state = {0};
    torchlet_backend zero = {.name = "XnnpackBackend",
                             .context = &state,
                             .arena = zeros_arena,
                             .init = zeros_init,
                             .execute = zeros_execute,
                             .destroy = zeros_destroy};
    torchlet_registry registry;
    OK(torchlet_registry_init(&registry, &error));
    torchlet_backend broken = zero;
    broken.init = NULL;
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_registry_add_backend(&registry, &broken, &error));
    OK(torchlet_registry_add_backend(&registry, &zero, &error));
    FAILS(TORCHLET_ALREADY_REGISTERED, torchlet_registry_add_backend(&registry, &zero, &error));

    torchlet_module_options options;
    torchlet_module_options_init(&options);
    options.registry = &registry;
    options.run_on = TORCHLET_RUN_ON_AS_EXPORTED;
    char path[1024];
    snprintf(path, sizeof path, "%s/xnnpack/binary/add.bpte", folder);
    torchlet_module *module;
    torchlet_values *values;
    torchlet_value inputs[2] = {{.kind = TORCHLET_KIND_TENSOR}, {.kind = TORCHLET_KIND_TENSOR}},
                   output;
    static const float numbers[4096] = {1};
    for (int fails = 0; fails < 2; fails++) {
        state.fails = fails;
        OK(torchlet_module_open(path, &options, &module, &error));
        torchlet_method_meta meta;
        OK(torchlet_module_method_meta(module, "forward", &meta, &error));
        size_t count = torchlet_method_meta_input_count(&meta);
        CHECK(count >= 1 && count <= 2);
        for (size_t i = 0; i < count; i++) {
            torchlet_value_meta value;
            OK(torchlet_method_meta_input(&meta, i, &value, &error));
            inputs[i].data.tensor = value.value.data.tensor;
            inputs[i].data.tensor.data = numbers;
            CHECK(inputs[i].data.tensor.size <= sizeof numbers);
        }
        if (fails) {
            FAILS(TORCHLET_NOT_FOUND,
                  torchlet_module_forward(module, inputs, count, &values, &error));
        } else {
            OK(torchlet_module_forward(module, inputs, count, &values, &error));
            OK(torchlet_values_get(values, 0, &output, &error));
            const float *results = output.data.tensor.data;
            for (size_t i = 0; i < output.data.tensor.size / sizeof(float); i++)
                CHECK(results[i] == 0);
            torchlet_values_free(values);
        }
        torchlet_module_close(module);
    }
    CHECK(state.made == 2 && state.runs == 1 && state.destroyed == 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    kernels(argv[1]);
    packing(argv[1]);
    tensors_to_compute_in(argv[1]);
    backend(argv[1]);
    puts("ok");
    return 0;
}
