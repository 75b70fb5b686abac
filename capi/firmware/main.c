/* The digits classifier on a Cortex-M4, in C, without operating system and heap. */

#include "semihosting.h"
#include <stddef.h>
#include <string.h>
#include <torchlet.h>
#include <torchlet_kernels.h>

extern const unsigned char program_start[], program_end[], picture_start[], picture_end[];

/* The kernels of the program; the linker drops all others. */
static const torchlet_kernel *const KERNELS[] = {
    &torchlet_kernel_aten__native_batch_norm_legit_no_training_out,
    &torchlet_kernel_aten_addmm_out,
    &torchlet_kernel_aten_convolution_out,
    &torchlet_kernel_aten_max_pool2d_with_indices_out,
    &torchlet_kernel_aten_permute_copy_out,
    &torchlet_kernel_aten_relu_out,
};
#define KERNEL_COUNT (sizeof KERNELS / sizeof KERNELS[0])

static uintptr_t kernel_memory[TORCHLET_KERNELS_SIZE(KERNEL_COUNT) / sizeof(uintptr_t)];

/* A bump allocator for loading methods. */
static _Alignas(TORCHLET_ALIGN) unsigned char pool[48 * 1024];
static size_t pool_used;

static torchlet_program program;
static torchlet_method_meta meta;
static torchlet_registry registry;
static torchlet_method method;

static char text[160];
static const torchlet_error_message error = {text, sizeof text};

static void print_number(uint32_t number)
{
    char digits[11];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    print(digits + at);
}

static void print_line(const char *label, uint32_t number)
{
    print(label);
    print_number(number);
    print("\n");
}

/* Prints six decimals, like C's %f. */
static void print_float(float number)
{
    if (number < 0)
        print("-");
    uint64_t millionths = (uint64_t)((double)(number < 0 ? -number : number) * 1e6 + 0.5);
    print_number((uint32_t)(millionths / 1000000));
    char decimals[8] = ".000000";
    uint32_t rest = (uint32_t)(millionths % 1000000);
    for (int at = 6; at > 0; at--, rest /= 10)
        decimals[at] = (char)('0' + rest % 10);
    print(decimals);
}

static void check(torchlet_status status, const char *what)
{
    if (status == TORCHLET_OK)
        return;
    print("error: ");
    print(what);
    print(": ");
    print(text);
    print("\n");
    stop(1);
}

static torchlet_buffer take(size_t size)
{
    torchlet_buffer buffer = {pool + pool_used, size};
    pool_used += (size + TORCHLET_ALIGN - 1) / TORCHLET_ALIGN * TORCHLET_ALIGN;
    if (pool_used > sizeof pool) {
        print_line("error: the pool is too small: ", pool_used);
        stop(1);
    }
    return buffer;
}

/* Prints an error and exits. */
static void faults(const torchlet_needs *needs, const torchlet_memory *memory,
                   torchlet_buffer tables)
{
    torchlet_program cut;
    size_t size = (size_t)(program_end - program_start);
    torchlet_status status = torchlet_program_open(&cut, program_start, size - 1, &error);
    print("truncated: ");
    print(torchlet_status_name(status));
    print("\n");
    torchlet_memory small = *memory;
    small.scratch.size = needs->scratch - 1;
    status = torchlet_method_finish(&method, &small, &error);
    print("scratch one byte short: ");
    print(torchlet_status_name(status));
    print("\n");
    torchlet_method_close(&method);
    check(
        torchlet_method_prepare(&method, &meta, &registry, NULL, tables.data, tables.size, &error),
        "prepare");
}

int main(void)
{
    size_t size = (size_t)(program_end - program_start);
    check(torchlet_program_open(&program, program_start, size, &error), "program");
    check(torchlet_registry_init(&registry, &error), "registry");
    check(torchlet_registry_add_kernels(&registry, KERNELS, KERNEL_COUNT, kernel_memory,
                                        sizeof kernel_memory, &error),
          "kernels");
    check(torchlet_program_method_meta(&program, "forward", &meta, &error), "forward");
    check(torchlet_method_meta_table_size(&meta, NULL, &size, &error), "tables");
    torchlet_buffer tables = take(size);
    check(
        torchlet_method_prepare(&method, &meta, &registry, NULL, tables.data, tables.size, &error),
        "prepare");
    torchlet_needs needs;
    check(torchlet_method_needs(&method, &needs, &error), "needs");
    check(torchlet_method_meta_planned_size(&meta, 0, &size, &error), "planned");
    torchlet_buffer planned = take(size);
    torchlet_memory memory = {take(needs.arena), take(needs.scratch), &planned, 1};
    print_line("tables: ", needs.tables);
    print_line("arena: ", needs.arena);
    print_line("scratch: ", needs.scratch);
    print_line("planned: ", size);
    print_line("handles: ", sizeof program + sizeof meta + sizeof registry + sizeof method);
    faults(&needs, &memory, tables);
    check(torchlet_method_finish(&method, &memory, &error), "finish");

    torchlet_tensor_mut input;
    check(torchlet_method_input_tensor(&method, 0, &input, &error), "input");
    memcpy(input.data, picture_end - input.size, input.size);
    check(torchlet_method_execute(&method, &error), "execute");
    torchlet_tensor logits;
    check(torchlet_method_output_tensor(&method, 0, &logits, &error), "output");
    const float *numbers = logits.data;
    uint32_t class = 0;
    for (uint32_t i = 0; i < logits.size / sizeof(float); i++) {
        print("logit ");
        print_number(i);
        print(": ");
        print_float(numbers[i]);
        print("\n");
        if (numbers[i] > numbers[class])
            class = i;
    }
    print_line("class: ", class);
    torchlet_method_close(&method);
    torchlet_program_close(&program);
    return 0;
}
