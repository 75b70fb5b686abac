/* torchlet for Arduino: runs PyTorch programs that were exported with ExecuTorch.
 *
 * `torchlet convert model.pte -o model.h` writes a program as a header:
 *
 *     #include <TorchletArduino.h>
 *     #include "model.h"
 *
 *     TorchletModel<24 * 1024> model;
 *
 *     void setup() {
 *         if (!model.begin(model_program, model_kernels))
 *             Serial.println(model.error());
 *     }
 *
 * All functions return false, or a null pointer, on errors, which error() describes.
 */

#ifndef TORCHLET_ARDUINO_H
#define TORCHLET_ARDUINO_H

#include <string.h>
#include <torchlet.h>
#include <torchlet_kernels.h>

/* A method of a program, in `Bytes` bytes of memory of this object. Objects of this class are
 * large: make them global variables. */
template <size_t Bytes>
class TorchletModel {
public:
    TorchletModel() {}
    ~TorchletModel() { end(); }
    TorchletModel(const TorchletModel &) = delete;
    TorchletModel &operator=(const TorchletModel &) = delete;

    /* Loads a method of a program, with the arrays of the header that `torchlet convert` wrote. */
    template <size_t Size, size_t Count>
    bool begin(const unsigned char (&program)[Size], const torchlet_kernel *const (&kernels)[Count],
               const char *method = "forward")
    {
        return begin(program, Size, kernels, Count, method);
    }

    /* Loads a method of the program in `size` bytes, which must stay in memory. */
    bool begin(const unsigned char *program, size_t size, const torchlet_kernel *const *kernels,
               size_t count, const char *method = "forward")
    {
        end();
        used_ = 0;
        text_[0] = 0;
        is_open_ = check(torchlet_program_open(&program_, program, size, error_message()));
        if (!is_open_ || !check(torchlet_registry_init(&registry_, error_message())))
            return false;
        torchlet_buffer names, tables, planned[MAX_BUFFERS];
        if (!take(TORCHLET_KERNELS_SIZE(count), &names) ||
            !check(torchlet_registry_add_kernels(&registry_, kernels, count, names.data, names.size,
                                                 error_message())) ||
            !check(torchlet_program_method_meta(&program_, method, &meta_, error_message())) ||
            !check(torchlet_method_meta_table_size(&meta_, NULL, &size, error_message())) ||
            !take(size, &tables))
            return false;
        is_prepared_ = check(torchlet_method_prepare(&method_, &meta_, &registry_, NULL,
                                                     tables.data, tables.size, error_message()));
        torchlet_needs needs;
        if (!is_prepared_ || !check(torchlet_method_needs(&method_, &needs, error_message())))
            return false;
        size_t buffers = torchlet_method_meta_planned_count(&meta_);
        if (buffers > MAX_BUFFERS)
            return fail("the method has too many planned buffers");
        for (size_t at = 0; at < buffers; at++) {
            if (!check(torchlet_method_meta_planned_size(&meta_, at, &size, error_message())) ||
                !take(size, &planned[at]))
                return false;
        }
        torchlet_memory memory;
        if (!take(needs.arena, &memory.arena) || !take(needs.scratch, &memory.scratch))
            return false;
        memory.planned = planned;
        memory.planned_count = buffers;
        is_loaded_ = check(torchlet_method_finish(&method_, &memory, error_message()));
        return is_loaded_;
    }

    /* Unloads the method. */
    void end()
    {
        if (is_prepared_)
            torchlet_method_close(&method_);
        if (is_open_)
            torchlet_program_close(&program_);
        is_prepared_ = is_open_ = is_loaded_ = false;
    }

    /* The elements of an input, to be written before run(). `T` is their type. `count` receives
     * their number. */
    template <typename T>
    T *input(size_t index, size_t *count = NULL)
    {
        torchlet_tensor_mut tensor;
        if (!loaded() ||
            !check(torchlet_method_input_tensor(&method_, index, &tensor, error_message())))
            return NULL;
        return elements<T>(tensor.data, tensor.size, tensor.info, count);
    }

    /* Runs the method. */
    bool run() { return loaded() && check(torchlet_method_execute(&method_, error_message())); }

    /* The elements of an output of the last run(), valid until the next one. */
    template <typename T>
    const T *output(size_t index, size_t *count = NULL)
    {
        torchlet_tensor tensor;
        if (!loaded() ||
            !check(torchlet_method_output_tensor(&method_, index, &tensor, error_message())))
            return NULL;
        return elements<const T>(tensor.data, tensor.size, tensor.info, count);
    }

    /* Bytes of the object's memory that the method uses; after a failed begin(), the bytes that it
     * asked for before it failed. */
    size_t memory_used() const { return used_; }

    /* Describes the last error; empty if there was none. */
    const char *error() const { return text_; }

    /* The method, for the functions of torchlet.h; null if none is loaded. */
    torchlet_method *method() { return is_loaded_ ? &method_ : NULL; }

private:
    /* Programs for microcontrollers have one planned buffer. */
    enum { MAX_BUFFERS = 4 };

    bool fail(const char *text)
    {
        strncpy(text_, text, sizeof text_ - 1);
        return false;
    }

    bool loaded() { return is_loaded_ || fail("no method is loaded: call begin() first"); }

    /* The library wrote the message. */
    bool check(torchlet_status status) { return status == TORCHLET_OK; }

    const torchlet_error_message *error_message()
    {
        message_.data = text_;
        message_.size = sizeof text_;
        return &message_;
    }

    bool take(size_t size, torchlet_buffer *buffer)
    {
        if (size > SIZE_MAX - used_ - TORCHLET_ALIGN)
            return fail("the program needs more memory than the processor can address");
        size_t end = (used_ + size + TORCHLET_ALIGN - 1) / TORCHLET_ALIGN * TORCHLET_ALIGN;
        bool fits = end <= Bytes;
        buffer->data = fits ? pool_ + used_ : NULL;
        buffer->size = size;
        used_ = end;
        return fits || fail("the memory of TorchletModel is too small: see memory_used()");
    }

    /* The element types of C++, as numbers of torchlet. */
    static torchlet_scalar_type type_of(const bool *) { return TORCHLET_BOOL; }
    static torchlet_scalar_type type_of(const uint8_t *) { return TORCHLET_BYTE; }
    static torchlet_scalar_type type_of(const int8_t *) { return TORCHLET_CHAR; }
    static torchlet_scalar_type type_of(const int16_t *) { return TORCHLET_SHORT; }
    static torchlet_scalar_type type_of(const int32_t *) { return TORCHLET_INT; }
    static torchlet_scalar_type type_of(const int64_t *) { return TORCHLET_LONG; }
    static torchlet_scalar_type type_of(const float *) { return TORCHLET_FLOAT; }
    static torchlet_scalar_type type_of(const double *) { return TORCHLET_DOUBLE; }

    template <typename T, typename Data>
    T *elements(Data *data, size_t size, const torchlet_tensor_info &info, size_t *count)
    {
        T *typed = static_cast<T *>(data);
        if (info.scalar_type != type_of(typed)) {
            fail("the tensor has another element type");
            return NULL;
        }
        if (count)
            *count = size / sizeof(T);
        return typed;
    }

    alignas(TORCHLET_ALIGN) unsigned char pool_[Bytes];
    torchlet_program program_;
    torchlet_method_meta meta_;
    torchlet_registry registry_;
    torchlet_method method_;
    torchlet_error_message message_;
    char text_[160] = {};
    size_t used_ = 0;
    bool is_open_ = false;
    bool is_prepared_ = false;
    bool is_loaded_ = false;
};

#endif
