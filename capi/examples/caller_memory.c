/* Runs a program like firmware does: in the caller's memory, of the sizes that the program reports.
 *
 *   caller_memory PROGRAM.pte IMAGE.npy
 */

#include <stdio.h>
#include <stdlib.h>
#include <torchlet.h>

static char text[256];
static const torchlet_error_message error = {text, sizeof text};

static void check(torchlet_status status, const char *what)
{
    if (status != TORCHLET_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, text, torchlet_status_name(status));
        exit(EXIT_FAILURE);
    }
}

/* Allocates memory aligned to TORCHLET_ALIGN. On 64-bit machines malloc does that; elsewhere, use
 * aligned_alloc. */
static torchlet_buffer reserve(size_t size)
{
    size_t rounded = (size + TORCHLET_ALIGN - 1) / TORCHLET_ALIGN * TORCHLET_ALIGN;
    torchlet_buffer buffer = {rounded ? aligned_alloc(TORCHLET_ALIGN, rounded) : NULL, size};
    return buffer;
}

static torchlet_buffer read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    torchlet_buffer buffer = {NULL, 0};
    if (file && fseek(file, 0, SEEK_END) == 0) {
        buffer = reserve((size_t)ftell(file));
        rewind(file);
        if (buffer.data && fread(buffer.data, 1, buffer.size, file) != buffer.size)
            buffer.size = 0;
    }
    if (file)
        fclose(file);
    if (buffer.size == 0) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(EXIT_FAILURE);
    }
    return buffer;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s PROGRAM.pte IMAGE.npy\n", argv[0]);
        return EXIT_FAILURE;
    }
    torchlet_buffer file = read_file(argv[1]);
    torchlet_buffer picture = read_file(argv[2]);

    /* Handles also live in the caller's memory. */
    torchlet_program program;
    torchlet_method_meta meta;
    torchlet_registry registry;
    torchlet_method method;

    check(torchlet_program_open(&program, file.data, file.size, &error), "the program");
    check(torchlet_registry_init(&registry, &error), "the registry");
    check(torchlet_registry_add_all_kernels(&registry, &error), "the kernels");

    /* After prepare, which uses only the tables, all memory sizes are known. */
    check(torchlet_program_method_meta(&program, "forward", &meta, &error), "forward");
    size_t size;
    check(torchlet_method_meta_table_size(&meta, NULL, &size, &error), "forward");
    torchlet_buffer tables = reserve(size);
    check(
        torchlet_method_prepare(&method, &meta, &registry, NULL, tables.data, tables.size, &error),
        "prepare");
    torchlet_needs needs;
    check(torchlet_method_needs(&method, &needs, &error), "needs");
    check(torchlet_method_meta_planned_size(&meta, 0, &size, &error), "planned buffer");
    printf("tables: %zu bytes\narena: %zu bytes\nscratch: %zu bytes\nplanned: %zu bytes in %zu\n",
           needs.tables, needs.arena, needs.scratch, size,
           torchlet_method_meta_planned_count(&meta));

    torchlet_buffer planned = reserve(size);
    torchlet_memory memory = {reserve(needs.arena), reserve(needs.scratch), &planned, 1};
    check(torchlet_method_finish(&method, &memory, &error), "finish");

    /* Inputs and outputs are accessed in place. */
    torchlet_tensor_mut input;
    check(torchlet_method_input_tensor(&method, 0, &input, &error), "input 0");
    const unsigned char *pixels = (unsigned char *)picture.data + picture.size - input.size;
    for (size_t i = 0; i < input.size; i++)
        ((unsigned char *)input.data)[i] = pixels[i];
    check(torchlet_method_execute(&method, &error), "execute");
    torchlet_tensor logits;
    check(torchlet_method_output_tensor(&method, 0, &logits, &error), "output 0");

    const float *numbers = logits.data;
    size_t class = 0;
    for (size_t i = 0; i < logits.size / sizeof(float); i++) {
        printf("logit %zu: %f\n", i, (double)numbers[i]);
        if (numbers[i] > numbers[class])
            class = i;
    }
    printf("class: %zu\n", class);

    torchlet_method_close(&method);
    torchlet_program_close(&program);
    free(tables.data);
    free(memory.arena.data);
    free(memory.scratch.data);
    free(planned.data);
    free(picture.data);
    free(file.data);
    return EXIT_SUCCESS;
}
