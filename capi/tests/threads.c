/* Threads that use several methods of one program, methods with shared memory, and modules over one
 * file.
 *
 *   threads FIXTURES          all tests
 *   threads FIXTURES runtime  without modules, for tools that only know the locks of pthreads
 *                             (helgrind, DRD)
 */

#include "check.h"
#include <pthread.h>

#define THREADS 4
#define RUNS 20

typedef struct job {
    const torchlet_program *program;
    const torchlet_registry *registry;
    torchlet_module *module;
    torchlet_method *sharing;
    float pixels[64];
    float expected[10];
} job;

static void *run_methods(void *argument)
{
    job *own = argument;
    char words[160];
    const torchlet_error_message said = {words, sizeof words};
    const int32_t sizes[] = {1, 1, 8, 8};
    loaded method;
    if (load(&method, own->program, "forward", own->registry, NULL))
        return "load";
    for (int run = 0; run < RUNS; run++) {
        torchlet_tensor image = tensor_of(own->pixels, 4, sizes), logits;
        if (torchlet_method_set_input_tensor(&method.method, 0, &image, &said) ||
            torchlet_method_execute(&method.method, &said) ||
            torchlet_method_output_tensor(&method.method, 0, &logits, &said))
            return "run";
        if (memcmp(logits.data, own->expected, sizeof own->expected))
            return "the logits differ";
    }
    unload(&method);
    return NULL;
}

/* Memory shared by the methods of all threads. A lock is held from setting the input to reading the
 * output. */
static torchlet_shared_memory shared;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *run_shared(void *argument)
{
    job *own = argument;
    const int32_t sizes[] = {1, 1, 8, 8};
    for (int run = 0; run < RUNS; run++) {
        torchlet_tensor image = tensor_of(own->pixels, 4, sizes), logits;
        CHECK(pthread_mutex_lock(&turn) == 0);
        bool failed = torchlet_method_set_input_tensor(own->sharing, 0, &image, NULL) ||
                      torchlet_method_execute(own->sharing, NULL) ||
                      torchlet_method_output_tensor(own->sharing, 0, &logits, NULL) ||
                      memcmp(logits.data, own->expected, sizeof own->expected);
        CHECK(pthread_mutex_unlock(&turn) == 0);
        if (failed)
            return "a method that shares memory";
    }
    return NULL;
}

/* One method used by all threads without a lock: concurrent use is an error. */
static void *run_the_same(void *argument)
{
    job *own = argument;
    size_t ran = 0, refused = 0;
    while (ran < RUNS && refused < 10000000) {
        torchlet_status status = torchlet_method_execute(own->sharing, NULL);
        if (status == TORCHLET_OK)
            ran++;
        else if (status == TORCHLET_INVALID_STATE)
            refused++;
        else
            return "another error";
    }
    return ran == RUNS ? NULL : "never got its turn";
}

static void all(void *(*work)(void *), job *jobs)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        CHECK(pthread_join(threads[i], &failed) == 0);
        if (failed)
            fprintf(stderr, "thread %d: %s\n", i, (char *)failed);
        CHECK(failed == NULL);
    }
}

static void share(const torchlet_program *program, const torchlet_registry *registry, job *jobs)
{
    torchlet_method_meta meta;
    torchlet_method methods[THREADS] = {{0}};
    torchlet_buffer tables[THREADS], arenas[THREADS], planned, scratch = {NULL, 0};
    torchlet_needs needs;
    size_t size;
    OK(torchlet_program_method_meta(program, "forward", &meta, &error));
    for (int i = 0; i < THREADS; i++) {
        OK(torchlet_method_meta_table_size(&meta, NULL, &size, &error));
        tables[i] = reserve(size);
        OK(torchlet_method_prepare(&methods[i], &meta, registry, NULL, tables[i].data, size,
                                   &error));
        OK(torchlet_method_needs(&methods[i], &needs, &error));
        if (i == 0) {
            CHECK(torchlet_method_meta_planned_count(&meta) == 1);
            OK(torchlet_method_meta_planned_size(&meta, 0, &size, &error));
            planned = reserve(size);
            scratch = reserve(needs.scratch);
            OK(torchlet_shared_memory_init(&shared, &planned, 1, scratch, &error));
        }
        arenas[i] = reserve(needs.arena);
        OK(torchlet_method_finish_shared(&methods[i], &shared, arenas[i], &error));
        jobs[i].sharing = &methods[i];
    }
    all(run_shared, jobs);
    for (int i = 0; i < THREADS; i++) {
        torchlet_method_close(&methods[i]);
        free(arenas[i].data);
        free(tables[i].data);
    }
    free(planned.data);
    free(scratch.data);
}

static void *run_modules(void *argument)
{
    job *own = argument;
    const int32_t sizes[] = {1, 1, 8, 8};
    for (int run = 0; run < RUNS; run++) {
        torchlet_value input = {.kind = TORCHLET_KIND_TENSOR}, logits;
        input.data.tensor = tensor_of(own->pixels, 4, sizes);
        torchlet_values *values;
        if (torchlet_module_forward(own->module, &input, 1, &values, NULL))
            return "forward";
        if (torchlet_values_get(values, 0, &logits, NULL))
            return "values";
        for (int i = 0; i < 10; i++)
            if (fabsf(((const float *)logits.data.tensor.data)[i] - own->expected[i]) > 1e-3f)
                return "the logits differ";
        torchlet_values_free(values);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || (argc == 3 && strcmp(argv[2], "runtime") == 0));
    torchlet_buffer file = read_file(argv[1], "digits/digits.pte");
    static job jobs[THREADS];
    torchlet_program program;
    torchlet_registry registry;
    OK(torchlet_program_open(&program, file.data, file.size, &error));
    OK(torchlet_registry_init(&registry, &error));
    OK(torchlet_registry_add_all_kernels(&registry, &error));
    for (int i = 0; i < THREADS; i++) {
        jobs[i].program = &program;
        jobs[i].registry = &registry;
        read_picture(argv[1], jobs[i].pixels);
        /* Each thread has a different image. */
        jobs[i].pixels[0] += (float)i;
        loaded method;
        OK(load(&method, &program, "forward", &registry, NULL));
        OK(run_digits(&method.method, jobs[i].pixels, jobs[i].expected));
        unload(&method);
    }
    CHECK(memcmp(jobs[0].expected, jobs[1].expected, sizeof jobs[0].expected));
    all(run_methods, jobs);
    share(&program, &registry, jobs);
    if (argc == 2) {
        torchlet_module *module;
        OK(torchlet_module_open_bytes(file.data, file.size, NULL, &module, &error));
        for (int i = 0; i < THREADS; i++)
            OK(torchlet_module_share(module, &jobs[i].module, &error));
        torchlet_module_close(module);
        all(run_modules, jobs);
        for (int i = 0; i < THREADS; i++)
            torchlet_module_close(jobs[i].module);
        loaded method;
        float logits[10];
        OK(load(&method, &program, "forward", &registry, NULL));
        OK(run_digits(&method.method, jobs[0].pixels, logits));
        for (int i = 0; i < THREADS; i++)
            jobs[i].sharing = &method.method;
        all(run_the_same, jobs);
        OK(run_digits(&method.method, jobs[0].pixels, logits));
        CHECK(memcmp(logits, jobs[0].expected, sizeof logits) == 0);
        unload(&method);
    }
    torchlet_program_close(&program);
    free(file.data);
    puts("ok");
    return 0;
}
