/* Loads a program file and runs it on an image, on the fastest device available.
 *
 *   classify PROGRAM.pte IMAGE.npy
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <torchlet.h>

static char text[256];
static const torchlet_error_message error = {text, sizeof text};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, text);
    return EXIT_FAILURE;
}

/* Reads the elements at the end of a float32 .npy file. */
static int read_numbers(const char *path, float *numbers, size_t count)
{
    long size = (long)(count * sizeof(float));
    FILE *file = fopen(path, "rb");
    int ok = file && fseek(file, -size, SEEK_END) == 0 &&
             fread(numbers, sizeof(float), count, file) == count;
    if (file)
        fclose(file);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s PROGRAM.pte IMAGE.npy\n", argv[0]);
        return EXIT_FAILURE;
    }
    torchlet_module *module = NULL;
    if (torchlet_module_open(argv[1], NULL, &module, &error))
        return fail(argv[1]);

    float pixels[64];
    const int32_t sizes[] = {1, 1, 8, 8};
    if (!read_numbers(argv[2], pixels, 64)) {
        fprintf(stderr, "%s: not 64 numbers\n", argv[2]);
        return EXIT_FAILURE;
    }
    torchlet_value input = {.kind = TORCHLET_KIND_TENSOR};
    if (torchlet_tensor_init(&input.data.tensor, TORCHLET_FLOAT, sizes, 4, pixels, sizeof pixels,
                             &error))
        return fail("the picture");

    torchlet_values *outputs = NULL;
    torchlet_value logits;
    if (torchlet_module_forward(module, &input, 1, &outputs, &error))
        return fail("forward");
    if (torchlet_values_get(outputs, 0, &logits, &error))
        return fail("output 0");

    const float *numbers = logits.data.tensor.data;
    size_t count = logits.data.tensor.size / sizeof(float), class = 0;
    for (size_t i = 0; i < count; i++) {
        printf("logit %zu: %f\n", i, (double)numbers[i]);
        if (numbers[i] > numbers[class])
            class = i;
    }
    printf("class: %zu\n", class);

    torchlet_values_free(outputs);
    torchlet_module_close(module);
    return EXIT_SUCCESS;
}
