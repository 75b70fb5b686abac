/* Helpers of the tests: checks, files, memory of exact sizes, and the digits program. */

#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <torchlet.h>

static char text[256];
static const torchlet_error_message error = {text, sizeof text};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__,            \
                    #condition, text);                                                             \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == TORCHLET_OK)

/* Checks that the call fails with this code and a message. */
#define FAILS(code, call)                                                                          \
    do {                                                                                           \
        text[0] = 0;                                                                               \
        torchlet_status status_ = (call);                                                          \
        if (status_ != (code) || !text[0]) {                                                       \
            fprintf(stderr, "%s:%d: %s gave %s (%s), not %s\n", __FILE__, __LINE__, #call,         \
                    torchlet_status_name(status_), text, torchlet_status_name(code));              \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

/* Memory of exactly `size` bytes, filled with garbage. Sanitizers detect accesses beyond it. */
static inline torchlet_buffer reserve(size_t size)
{
    void *data = NULL;
    CHECK(posix_memalign(&data, TORCHLET_ALIGN, size ? size : 1) == 0);
    memset(data, 0xa5, size);
    torchlet_buffer buffer = {data, size};
    return buffer;
}

static inline torchlet_buffer read_file(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(EXIT_FAILURE);
    }
    fseek(file, 0, SEEK_END);
    torchlet_buffer buffer = reserve((size_t)ftell(file));
    rewind(file);
    CHECK(fread(buffer.data, 1, buffer.size, file) == buffer.size);
    fclose(file);
    return buffer;
}

/* The image of a handwritten 2. */
static inline void read_picture(const char *folder, float *pixels)
{
    torchlet_buffer file = read_file(folder, "digits/image_2.npy");
    memcpy(pixels, (char *)file.data + file.size - 64 * sizeof(float), 64 * sizeof(float));
    free(file.data);
}

static inline torchlet_tensor tensor_of(const float *data, size_t rank, const int32_t *sizes)
{
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= (size_t)sizes[i];
    torchlet_tensor tensor;
    OK(torchlet_tensor_init(&tensor, TORCHLET_FLOAT, sizes, rank, data, count * sizeof(float),
                            &error));
    return tensor;
}

/* A method and its memory. */
typedef struct loaded {
    torchlet_method method;
    torchlet_buffer tables;
    torchlet_memory memory;
    torchlet_buffer planned[4];
} loaded;

/* Loads a method into memory of exactly the required sizes. */
static inline torchlet_status load(loaded *into, const torchlet_program *program, const char *name,
                                   const torchlet_registry *registry,
                                   const torchlet_options *options)
{
    torchlet_method_meta meta;
    size_t size;
    torchlet_needs needs;
    memset(into, 0, sizeof *into);
    OK(torchlet_program_method_meta(program, name, &meta, &error));
    OK(torchlet_method_meta_table_size(&meta, options, &size, &error));
    into->tables = reserve(size);
    torchlet_status status = torchlet_method_prepare(&into->method, &meta, registry, options,
                                                     into->tables.data, into->tables.size, &error);
    if (status)
        return status;
    OK(torchlet_method_needs(&into->method, &needs, &error));
    CHECK(needs.tables == size);
    into->memory.arena = reserve(needs.arena);
    into->memory.scratch = reserve(needs.scratch);
    into->memory.planned = into->planned;
    into->memory.planned_count = torchlet_method_meta_planned_count(&meta);
    CHECK(into->memory.planned_count <= 4);
    for (size_t i = 0; i < into->memory.planned_count; i++) {
        OK(torchlet_method_meta_planned_size(&meta, i, &size, &error));
        into->planned[i] = reserve(size);
    }
    return torchlet_method_finish(&into->method, &into->memory, &error);
}

static inline void unload(loaded *from)
{
    torchlet_method_close(&from->method);
    free(from->tables.data);
    free(from->memory.arena.data);
    free(from->memory.scratch.data);
    for (size_t i = 0; i < from->memory.planned_count; i++)
        free(from->planned[i].data);
}

/* Runs the digits program on an image. */
static inline torchlet_status run_digits(torchlet_method *method, const float *pixels,
                                         float *logits)
{
    const int32_t sizes[] = {1, 1, 8, 8};
    torchlet_tensor image = tensor_of(pixels, 4, sizes), output;
    torchlet_status status = torchlet_method_set_input_tensor(method, 0, &image, &error);
    if (!status)
        status = torchlet_method_execute(method, &error);
    if (!status)
        status = torchlet_method_output_tensor(method, 0, &output, &error);
    if (!status) {
        CHECK(output.size == 10 * sizeof(float));
        memcpy(logits, output.data, output.size);
    }
    return status;
}

static inline size_t largest(const float *numbers, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (numbers[i] > numbers[best])
            best = i;
    return best;
}

#endif
