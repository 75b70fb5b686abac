/* Modules: programs loaded from files. */

#include "check.h"

static char path[1024];

static const char *in(const char *folder, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void digits(const char *folder)
{
    torchlet_module *module;
    torchlet_values *values;
    torchlet_value input = {.kind = TORCHLET_KIND_TENSOR}, output;
    const int32_t sizes[] = {1, 1, 8, 8};
    float pixels[64], first[10];
    read_picture(folder, pixels);
    input.data.tensor = tensor_of(pixels, 4, sizes);
    for (torchlet_run_on processor = TORCHLET_RUN_ON_AUTO; processor <= TORCHLET_RUN_ON_CPU;
         processor++) {
        torchlet_module_options options;
        torchlet_module_options_init(&options);
        options.run_on = processor;
        options.threads = 1 + processor;
        options.file_access =
            processor == TORCHLET_RUN_ON_CPU ? TORCHLET_FILE_MAP : TORCHLET_FILE_READ;
        OK(torchlet_module_open(in(folder, "digits/digits.pte"), &options, &module, &error));
        CHECK(torchlet_module_method_count(module) == 1);
        torchlet_string name = torchlet_module_method_name(module, 0);
        CHECK(name.size == 7 && memcmp(name.data, "forward", 7) == 0);
        CHECK(torchlet_module_method_name(module, 1).data == NULL);
        CHECK(!torchlet_module_is_loaded(module, "forward"));
        OK(torchlet_module_load_method(module, "forward", &error));
        CHECK(torchlet_module_is_loaded(module, "forward"));
        CHECK(torchlet_module_threads(module) == options.threads);
        OK(torchlet_module_forward(module, &input, 1, &values, &error));
        CHECK(torchlet_values_count(values) == 1);
        OK(torchlet_values_get(values, 0, &output, &error));
        CHECK(output.data.tensor.size == sizeof first);
        if (processor == TORCHLET_RUN_ON_AUTO)
            memcpy(first, output.data.tensor.data, sizeof first);
        for (int i = 0; i < 10; i++)
            CHECK(fabsf(((const float *)output.data.tensor.data)[i] - first[i]) < 1e-3f);
        CHECK(largest(first, 10) == 2);
        FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_values_get(values, 1, &output, &error));
        /* Fewer threads, then more than the initial number. */
        torchlet_values *again;
        CHECK(torchlet_module_set_threads(module, 1) == 1 && torchlet_module_threads(module) == 1);
        OK(torchlet_module_forward(module, &input, 1, &again, &error));
        torchlet_value same;
        OK(torchlet_values_get(again, 0, &same, &error));
        CHECK(memcmp(same.data.tensor.data, output.data.tensor.data, sizeof first) == 0);
        torchlet_values_free(again);
        CHECK(torchlet_module_set_threads(module, 100) == options.threads);
        CHECK(torchlet_module_set_threads(NULL, 2) == 0 && torchlet_module_threads(NULL) == 0);
        /* Results outlive their module. */
        CHECK(torchlet_module_unload(module, "forward") &&
              !torchlet_module_unload(module, "forward"));
        torchlet_module_close(module);
        CHECK(largest(output.data.tensor.data, 10) == 2);
        torchlet_values_free(values);
    }

    /* Inputs that are kept between runs, and inputs with a wrong shape. */
    OK(torchlet_module_open(in(folder, "digits/digits.pte"), NULL, &module, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_module_forward(module, NULL, 0, &values, &error));
    OK(torchlet_module_set_input(module, "forward", 0, &input, &error));
    OK(torchlet_module_forward(module, NULL, 0, &values, &error));
    torchlet_values_free(values);
    torchlet_value two[2] = {input, input};
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_module_forward(module, two, 2, &values, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_module_execute(module, "backward", two, 1, &values, &error));
    CHECK(strstr(text, "forward"));
    two[0].data.tensor.info.sizes[3] = 4;
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_module_forward(module, two, 1, &values, &error));
    two[0].data.tensor.size /= 2;
    FAILS(TORCHLET_NOT_SUPPORTED, torchlet_module_forward(module, two, 1, &values, &error));

    /* A different dim order is converted. With one channel, channels-last has the same layout. */
    float turned[64];
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++)
            turned[x * 8 + y] = pixels[y * 8 + x];
    input.data.tensor.data = turned;
    input.data.tensor.info.dim_order[2] = 3;
    input.data.tensor.info.dim_order[3] = 2;
    OK(torchlet_module_forward(module, &input, 1, &values, &error));
    OK(torchlet_values_get(values, 0, &output, &error));
    for (int i = 0; i < 10; i++)
        CHECK(fabsf(((const float *)output.data.tensor.data)[i] - first[i]) < 1e-3f);
    torchlet_values_free(values);
    torchlet_module_close(module);
}

static void files(const char *folder)
{
    torchlet_module *module = NULL;
    FAILS(TORCHLET_ACCESS_FAILED,
          torchlet_module_open(in(folder, "no such file"), NULL, &module, &error));
    CHECK(strstr(text, "no such file") && module == NULL);
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_module_open(NULL, NULL, &module, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_module_open(in(folder, "digits/digits.pte"), NULL, NULL, &error));
    FAILS(TORCHLET_INVALID_PROGRAM,
          torchlet_module_open(in(folder, "digits/labels.txt"), NULL, &module, &error));
    torchlet_module_options options;
    torchlet_module_options_init(&options);
    options.run_on = 17;
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_module_open(in(folder, "digits/digits.pte"), &options, &module, &error));
    torchlet_module_close(NULL);
    torchlet_values_free(NULL);

    torchlet_module_options_init(&options);
    char data[1100];
    snprintf(data, sizeof data, "%s/digits/digits_external._default_external_constant.ptd", folder);
    const char *const paths[] = {data};
    options.data_paths = paths;
    options.data_count = 1;
    OK(torchlet_module_open(in(folder, "digits/digits_external.pte"), &options, &module, &error));
    OK(torchlet_module_load_method(module, "forward", &error));
    torchlet_module_close(module);
    OK(torchlet_module_open(in(folder, "digits/digits_external.pte"), NULL, &module, &error));
    CHECK(torchlet_module_load_method(module, "forward", &error) == TORCHLET_INVALID_EXTERNAL_DATA);
    torchlet_module_close(module);
}

/* A program with state that persists between calls. */
static void state(const char *folder)
{
    torchlet_module *module;
    torchlet_values *values;
    OK(torchlet_module_open(in(folder, "programs/state_from_zero.bpte"), NULL, &module, &error));
    torchlet_method_meta meta;
    torchlet_value_meta what;
    OK(torchlet_module_method_meta(module, "forward", &meta, &error));
    CHECK(torchlet_method_meta_input_count(&meta) == 1);
    OK(torchlet_method_meta_input(&meta, 0, &what, &error));
    static const float ones[256] = {1, 1, 1, 1, 1, 1, 1, 1};
    torchlet_value input = what.value, output;
    CHECK(input.data.tensor.size <= sizeof ones &&
          input.data.tensor.info.scalar_type == TORCHLET_FLOAT);
    input.data.tensor.data = ones;
    float seen[3];
    for (int run = 0; run < 3; run++) {
        if (run == 2)
            OK(torchlet_module_reset(module, "forward", &error));
        OK(torchlet_module_forward(module, &input, 1, &values, &error));
        OK(torchlet_values_get(values, 0, &output, &error));
        seen[run] = *(const float *)output.data.tensor.data;
        torchlet_values_free(values);
    }
    CHECK(seen[0] != seen[1] && seen[0] == seen[2]);
    torchlet_module_close(module);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    digits(argv[1]);
    files(argv[1]);
    state(argv[1]);
    puts("ok");
    return 0;
}
