/* Errors: each has a code and a message. */

#include "check.h"

typedef struct storage {
    torchlet_buffer file;
    /* The index of the read that fails, and the number of reads. */
    size_t failing;
    size_t reads;
} storage;

static torchlet_status read_from(void *context, uint64_t offset, void *into, size_t size)
{
    storage *from = context;
    CHECK(offset + size <= from->file.size);
    if (from->reads++ == from->failing)
        return TORCHLET_ACCESS_FAILED;
    memcpy(into, (const char *)from->file.data + offset, size);
    return TORCHLET_OK;
}

static void nulls(torchlet_buffer file)
{
    torchlet_program program = {0};
    torchlet_method_meta meta = {0};
    torchlet_method method = {0};
    torchlet_registry registry = {0};
    torchlet_needs needs;
    torchlet_tensor tensor;
    torchlet_string name;
    size_t size;
    const int32_t sizes[] = {1, -1};

    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_open(NULL, file.data, file.size, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_open(&program, NULL, file.size, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_open(&program, file.data, SIZE_MAX, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_program_open((torchlet_program *)((char *)&program + 1), file.data, file.size,
                                &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_open_loader(&program, NULL, NULL, 0, &error));
    torchlet_loader loader = {NULL, 100, NULL, NULL};
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_program_open_loader(&program, &loader, NULL, 0, &error));

    /* Handles that are not open. */
    FAILS(TORCHLET_INVALID_STATE, torchlet_program_method_meta(&program, "forward", &meta, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_meta_table_size(&meta, NULL, &size, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_execute(&method, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_needs(&method, &needs, &error));
    FAILS(TORCHLET_INVALID_STATE, torchlet_registry_add_all_kernels(&registry, &error));
    CHECK(torchlet_program_method_count(&program) == 0 && torchlet_method_input_count(NULL) == 0);
    torchlet_method_close(&method);
    torchlet_method_close(NULL);
    torchlet_program_close(NULL);

    OK(torchlet_program_open(&program, file.data, file.size, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_method_meta(&program, NULL, &meta, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_program_method_meta(&program, "backward", &meta, &error));
    CHECK(strstr(text, "no method"));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_method_meta(&program, "\xff", &meta, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_program_method_name(&program, 0, NULL, &error));
    /* Without an error buffer, the code is returned. */
    CHECK(torchlet_program_method_name(&program, 7, &name, NULL) == TORCHLET_INVALID_ARGUMENT);
    torchlet_program_close(&program);
    FAILS(TORCHLET_INVALID_STATE, torchlet_program_method_meta(&program, "forward", &meta, &error));

    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_tensor_init(&tensor, TORCHLET_FLOAT, sizes, 2, sizes, 8, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_tensor_init(&tensor, TORCHLET_FLOAT, sizes, 1, sizes, 8, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_tensor_init(&tensor, 99, sizes, 1, sizes, 4, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_tensor_init(&tensor, TORCHLET_FLOAT, NULL, 1, sizes, 4, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_tensor_init(&tensor, TORCHLET_FLOAT, sizes, 17, sizes, 4, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_tensor_init(NULL, TORCHLET_FLOAT, sizes, 1, sizes, 4, &error));

    /* Messages are truncated to the buffer and null-terminated. */
    char small[8] = "xxxxxxx";
    const torchlet_error_message cut = {small, 5};
    CHECK(torchlet_program_open(&program, NULL, 1, &cut) == TORCHLET_INVALID_ARGUMENT);
    CHECK(strcmp(small, "data") == 0 && small[5] == 'x');
    CHECK(strcmp(torchlet_status_name(TORCHLET_INVALID_PROGRAM), "INVALID_PROGRAM") == 0);
    CHECK(torchlet_version()[0]);
}

static void damaged_files(torchlet_buffer file)
{
    /* Every prefix of the file, in memory of exactly its length. */
    for (size_t size = 0; size < file.size; size += size < 256 ? 1 : 997) {
        torchlet_buffer part = reserve(size);
        memcpy(part.data, file.data, size);
        torchlet_program program;
        text[0] = 0;
        CHECK(torchlet_program_open(&program, part.data, size, &error) != TORCHLET_OK && text[0]);
        free(part.data);
    }
}

static void failing_storage(torchlet_buffer file, const torchlet_registry *registry,
                            const float *pixels)
{
    size_t failures = 0;
    for (size_t failing = 0;; failing++) {
        storage from = {file, failing, 0};
        torchlet_loader loader = {&from, file.size, read_from, NULL};
        size_t size = 0;
        torchlet_program program;
        loaded method;
        torchlet_status status = torchlet_program_buffer_size(&loader, &size, &error);
        torchlet_buffer buffer = reserve(size);
        if (!status)
            status = torchlet_program_open_loader(&program, &loader, buffer.data, size, &error);
        if (!status) {
            status = load(&method, &program, "forward", registry, NULL);
            float logits[10];
            if (!status)
                OK(run_digits(&method.method, pixels, logits));
            unload(&method);
            torchlet_program_close(&program);
        }
        free(buffer.data);
        CHECK(status == TORCHLET_OK || status == TORCHLET_ACCESS_FAILED);
        if (status == TORCHLET_OK) {
            CHECK(from.reads <= failing);
            break;
        }
        failures++;
    }
    CHECK(failures > 3);

    storage from = {file, SIZE_MAX, 0};
    torchlet_loader loader = {&from, file.size, read_from, NULL};
    torchlet_program program;
    size_t size;
    OK(torchlet_program_buffer_size(&loader, &size, &error));
    torchlet_buffer buffer = reserve(size);
    FAILS(TORCHLET_INVALID_STATE, torchlet_program_open_loader(&program, &loader, NULL, 0, &error));
    FAILS(TORCHLET_MEMORY_ALLOCATION_FAILED,
          torchlet_program_open_loader(&program, &loader, buffer.data, size - 1, &error));
    free(buffer.data);
}

/* Each kind of memory a byte too short, misaligned, or missing. */
static void short_memory(const torchlet_program *program, const torchlet_registry *registry)
{
    torchlet_method_meta meta;
    size_t table_size, planned_size;
    OK(torchlet_program_method_meta(program, "forward", &meta, &error));
    OK(torchlet_method_meta_table_size(&meta, NULL, &table_size, &error));
    OK(torchlet_method_meta_planned_size(&meta, 0, &planned_size, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_meta_planned_size(&meta, 1, &planned_size, &error));
    torchlet_buffer tables = reserve(table_size);
    torchlet_method method = {0};
    FAILS(TORCHLET_MEMORY_ALLOCATION_FAILED,
          torchlet_method_prepare(&method, &meta, registry, NULL, tables.data, table_size - 1,
                                  &error));
    for (int fault = 0; fault < 6; fault++) {
        OK(torchlet_method_prepare(&method, &meta, registry, NULL, tables.data, table_size,
                                   &error));
        torchlet_needs needs;
        OK(torchlet_method_needs(&method, &needs, &error));
        CHECK(needs.scratch > 0);
        torchlet_buffer arena = reserve(needs.arena), scratch = reserve(needs.scratch + 1);
        torchlet_buffer planned = reserve(planned_size + 1);
        torchlet_memory memory = {arena, {scratch.data, needs.scratch}, &planned, 1};
        planned.size = planned_size;
        torchlet_status expected = TORCHLET_MEMORY_ALLOCATION_FAILED;
        switch (fault) {
        case 0:
            memory.scratch.size--;
            break;
        case 1:
            planned.size--;
            break;
        case 2:
            memory.scratch.data = (char *)scratch.data + 1;
            expected = TORCHLET_INVALID_ARGUMENT;
            break;
        case 3:
            planned.data = (char *)planned.data + 1;
            expected = TORCHLET_INVALID_ARGUMENT;
            break;
        case 4:
            memory.planned_count = 0;
            expected = TORCHLET_INVALID_ARGUMENT;
            break;
        case 5:
            memory.scratch.data = NULL;
            expected = TORCHLET_INVALID_ARGUMENT;
            break;
        }
        FAILS(expected, torchlet_method_finish(&method, &memory, &error));
        FAILS(TORCHLET_INVALID_STATE, torchlet_method_execute(&method, &error));
        FAILS(TORCHLET_INVALID_STATE, torchlet_method_finish(&method, &memory, &error));
        torchlet_method_close(&method);
        free(arena.data);
        free(scratch.data);
        free(fault == 3 ? (char *)planned.data - 1 : planned.data);
    }

    /* Loading in one call: the arena contains the tables. */
    OK(torchlet_method_prepare(&method, &meta, registry, NULL, tables.data, table_size, &error));
    torchlet_needs needs;
    OK(torchlet_method_needs(&method, &needs, &error));
    torchlet_method_close(&method);
    torchlet_buffer planned = reserve(planned_size);
    for (int missing = 0; missing < 2; missing++) {
        size_t whole = needs.tables + needs.arena - (size_t)missing;
        torchlet_memory memory = {reserve(whole), reserve(needs.scratch), &planned, 1};
        torchlet_status status =
            torchlet_method_load(&method, program, "forward", registry, NULL, &memory, &error);
        CHECK(status == (missing ? TORCHLET_MEMORY_ALLOCATION_FAILED : TORCHLET_OK));
        torchlet_method_close(&method);
        free(memory.arena.data);
        free(memory.scratch.data);
    }
    free(planned.data);
    free(tables.data);
}

static void wrong_inputs(const torchlet_program *program, const torchlet_registry *registry)
{
    static const float numbers[128];
    const int32_t right[] = {1, 1, 8, 8}, wrong[] = {1, 1, 8, 9}, flat[] = {64};
    loaded method;
    OK(load(&method, program, "forward", registry, NULL));
    torchlet_tensor tensor = tensor_of(numbers, 4, right);
    torchlet_tensor other = tensor_of(numbers, 4, wrong), line = tensor_of(numbers, 1, flat);
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 1, &tensor, &error));
    FAILS(TORCHLET_NOT_SUPPORTED,
          torchlet_method_set_input_tensor(&method.method, 0, &other, &error));
    FAILS(TORCHLET_NOT_SUPPORTED,
          torchlet_method_set_input_tensor(&method.method, 0, &line, &error));
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 0, NULL, &error));
    other = tensor;
    other.info.scalar_type = TORCHLET_INT;
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 0, &other, &error));
    other = tensor;
    other.size--;
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 0, &other, &error));
    other = tensor;
    other.info.dim_order[0] = 3;
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 0, &other, &error));
    other = tensor;
    other.info.rank = 1000;
    FAILS(TORCHLET_INVALID_ARGUMENT,
          torchlet_method_set_input_tensor(&method.method, 0, &other, &error));
    torchlet_value number = {.kind = TORCHLET_KIND_INTEGER, .data.integer = 1};
    FAILS(TORCHLET_INVALID_TYPE, torchlet_method_set_input(&method.method, 0, &number, &error));
    number.kind = 77;
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_method_set_input(&method.method, 0, &number, &error));
    torchlet_value output;
    FAILS(TORCHLET_INVALID_ARGUMENT, torchlet_method_output(&method.method, 1, &output, &error));
    char bytes[16];
    FAILS(TORCHLET_INVALID_STATE,
          torchlet_method_bind_output(&method.method, 0, bytes, sizeof bytes, &error));
    unload(&method);

    /* The message names the missing operator. */
    torchlet_registry none;
    OK(torchlet_registry_init(&none, &error));
    FAILS(TORCHLET_OPERATOR_MISSING, load(&method, program, "forward", &none, NULL));
    CHECK(strstr(text, "aten::"));
    unload(&method);
    FAILS(TORCHLET_INVALID_STATE, torchlet_method_execute(&method.method, &error));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    torchlet_buffer file = read_file(argv[1], "digits/digits.pte");
    float pixels[64];
    read_picture(argv[1], pixels);
    torchlet_program program;
    torchlet_registry registry;
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    OK(torchlet_registry_init(&registry, &error));
    OK(torchlet_registry_add_all_kernels(&registry, &error));
    FAILS(TORCHLET_ALREADY_REGISTERED, torchlet_registry_add_all_kernels(&registry, &error));

    nulls(file);
    damaged_files(file);
    failing_storage(file, &registry, pixels);
    short_memory(&program, &registry);
    wrong_inputs(&program, &registry);
    torchlet_program_close(&program);
    free(file.data);
    puts("ok");
    return 0;
}
