// The runtime for microcontrollers: programs and methods in the caller's memory.

#ifndef TORCHLET_RUNTIME_HPP
#define TORCHLET_RUNTIME_HPP

#include "method_meta.hpp"

#include <cstring>

namespace torchlet
{
namespace runtime
{

// The storage of a program. Must outlive the program and must not be moved.
class DataLoader
{
public:
    virtual ~DataLoader() = default;

    // Size of the file in bytes.
    virtual Result<size_t> size() const = 0;
    // Copies bytes of the file. Called from every thread that uses the program.
    virtual Error load_into(size_t offset, size_t size, void *buffer) const = 0;
    // Returns bytes of the file in place if they are in memory, or null.
    virtual const void *lend(size_t, size_t) const
    {
        return nullptr;
    }

    // The loader for functions of torchlet.h.
    Result<const torchlet_loader *> loader()
    {
        auto bytes = size();
        if (!bytes.ok())
            return bytes.error();
        loader_ = {this, *bytes, read_bytes, lend_bytes};
        return &loader_;
    }

private:
    static torchlet_status read_bytes(void *context, uint64_t offset, void *into, size_t size)
    {
        auto self = static_cast<const DataLoader *>(context);
        return static_cast<torchlet_status>(
            self->load_into(static_cast<size_t>(offset), size, into));
    }
    static const void *lend_bytes(void *context, uint64_t offset, size_t size)
    {
        return static_cast<const DataLoader *>(context)->lend(static_cast<size_t>(offset), size);
    }

    torchlet_loader loader_ = {};
};

// A bump allocator over the caller's memory.
class MemoryAllocator
{
public:
    static constexpr size_t kDefaultAlignment = TORCHLET_ALIGN;

    MemoryAllocator(uint32_t size, uint8_t *base_address) : base_(base_address), size_(size)
    {
    }
    virtual ~MemoryAllocator() = default;

    virtual void *allocate(size_t size, size_t alignment = kDefaultAlignment)
    {
        auto at = reinterpret_cast<uintptr_t>(base_) + used_;
        size_t skip = (alignment - at % alignment) % alignment;
        if (skip > size_ - used_ || size > size_ - used_ - skip)
            return nullptr;
        used_ += skip + size;
        return reinterpret_cast<uint8_t *>(at + skip);
    }
    virtual uint8_t *base_address() const
    {
        return base_;
    }
    virtual uint32_t size() const
    {
        return static_cast<uint32_t>(size_);
    }
    size_t used_size() const
    {
        return used_;
    }
    virtual void reset()
    {
        used_ = 0;
    }

private:
    uint8_t *base_;
    size_t size_;
    size_t used_ = 0;
};

// The planned buffers of a method, which may be in several memories.
class HierarchicalAllocator final
{
public:
    explicit HierarchicalAllocator(Span<Span<uint8_t>> buffers) : buffers_(buffers)
    {
    }
    Span<Span<uint8_t>> buffers() const
    {
        return buffers_;
    }

private:
    Span<Span<uint8_t>> buffers_;
};

// The allocators that a method is loaded with.
class MemoryManager final
{
public:
    explicit MemoryManager(MemoryAllocator *method_allocator,
                           HierarchicalAllocator *planned_memory = nullptr,
                           MemoryAllocator *temp_allocator = nullptr)
        : method_(method_allocator), planned_(planned_memory), temp_(temp_allocator)
    {
    }
    MemoryAllocator *method_allocator() const
    {
        return method_;
    }
    HierarchicalAllocator *planned_memory() const
    {
        return planned_;
    }
    MemoryAllocator *temp_allocator() const
    {
        return temp_;
    }

private:
    MemoryAllocator *method_;
    HierarchicalAllocator *planned_;
    MemoryAllocator *temp_;
};

// A loaded method. Its memory and program must outlive it and must not be modified.
class Method final
{
public:
    Method(Method &&other) noexcept : handle_(other.handle_)
    {
        std::memset(static_cast<void *>(&other.handle_), 0, sizeof other.handle_);
    }
    Method &operator=(Method &&other) noexcept
    {
        if (this != &other) {
            torchlet_method_close(&handle_);
            handle_ = other.handle_;
            std::memset(static_cast<void *>(&other.handle_), 0, sizeof other.handle_);
        }
        return *this;
    }
    ~Method()
    {
        torchlet_method_close(&handle_);
    }

    size_t inputs_size() const
    {
        return torchlet_method_input_count(&handle_);
    }
    size_t outputs_size() const
    {
        return torchlet_method_output_count(&handle_);
    }
    Error set_input(const EValue &value, size_t index)
    {
        torchlet_value view = value.view();
        return detail::error(torchlet_method_set_input(&handle_, index, &view, detail::text()));
    }
    Error set_inputs(ArrayRef<EValue> values)
    {
        for (size_t i = 0; i < values.size(); i++)
            if (Error error = set_input(values[i], i); error != Error::Ok)
                return error;
        return Error::Ok;
    }
    // Lends memory to an output without planned memory, and zeroes it. The method owns it from now
    // on.
    Error set_output_data_ptr(void *buffer, size_t size, size_t index)
    {
        return detail::error(
            torchlet_method_bind_output(&handle_, index, buffer, size, detail::text()));
    }
    Error execute()
    {
        return detail::error(torchlet_method_execute(&handle_, detail::text()));
    }
    // Runs one instruction. Returns `Error::EndOfMethod` after the last one.
    Error step()
    {
        return detail::error(torchlet_method_step(&handle_, detail::text()));
    }
    Error reset()
    {
        return detail::error(torchlet_method_reset(&handle_, detail::text()));
    }
    // An output, which the method owns. On an error, returns None; see `last_error_message`.
    EValue get_output(size_t index) const
    {
        torchlet_value value;
        if (torchlet_method_output(&handle_, index, &value, detail::text()))
            return EValue();
        return EValue::of(value, nullptr);
    }

    // The C handle.
    torchlet_method *handle()
    {
        return &handle_;
    }

private:
    friend class Program;
    Method() : handle_()
    {
    }

    torchlet_method handle_;
};

// A registry of all kernels of torchlet. Calling it links them all.
inline Result<const torchlet_registry *> default_registry()
{
    struct Made {
        torchlet_registry registry;
        torchlet_status status;
        Made() : registry(), status(torchlet_registry_init(&registry, nullptr))
        {
            if (!status)
                status = torchlet_registry_add_all_kernels(&registry, nullptr);
        }
    };
    static Made made;
    if (made.status)
        return detail::error(made.status);
    return &made.registry;
}

// An opened program.
class Program final
{
public:
    Program(Program &&other) noexcept : handle_(other.handle_), buffer_(std::move(other.buffer_))
    {
        std::memset(static_cast<void *>(&other.handle_), 0, sizeof other.handle_);
    }
    ~Program()
    {
        torchlet_program_close(&handle_);
    }

    static Result<Program> load(DataLoader *loader)
    {
        auto storage = loader->loader();
        if (!storage.ok())
            return storage.error();
        size_t size = 0;
        if (auto status = torchlet_program_buffer_size(*storage, &size, detail::text()))
            return detail::error(status);
        Program program;
        // Blocks have the alignment that torchlet requires.
        if (size)
            program.buffer_ = std::make_unique<Block[]>((size + sizeof(Block) - 1) / sizeof(Block));
        auto status = torchlet_program_open_loader(&program.handle_, *storage,
                                                   program.buffer_.get(), size, detail::text());
        if (status)
            return detail::error(status);
        return program;
    }

    size_t num_methods() const
    {
        return torchlet_program_method_count(&handle_);
    }
    Result<std::string> get_method_name(size_t index) const
    {
        torchlet_string name;
        if (auto status = torchlet_program_method_name(&handle_, index, &name, detail::text()))
            return detail::error(status);
        return std::string(name.data, name.size);
    }
    Result<MethodMeta> method_meta(const char *method_name) const
    {
        torchlet_method_meta meta;
        if (auto status =
                torchlet_program_method_meta(&handle_, method_name, &meta, detail::text()))
            return detail::error(status);
        return MethodMeta(meta, method_name);
    }

    // Loads a method with all kernels of torchlet.
    Result<Method> load_method(const char *method_name, MemoryManager *memory_manager) const
    {
        auto registry = default_registry();
        if (!registry.ok())
            return registry.error();
        return load_method(method_name, memory_manager, **registry);
    }

    // Loads a method with the kernels and backends of a registry. Allocates scratch memory from the
    // temporary allocator, if any.
    Result<Method> load_method(const char *method_name, MemoryManager *memory_manager,
                               const torchlet_registry &registry,
                               const torchlet_options *options = nullptr) const
    {
        torchlet_method_meta meta;
        if (auto status =
                torchlet_program_method_meta(&handle_, method_name, &meta, detail::text()))
            return detail::error(status);
        size_t size = 0;
        if (auto status = torchlet_method_meta_table_size(&meta, options, &size, detail::text()))
            return detail::error(status);
        MemoryAllocator *allocator = memory_manager->method_allocator();
        Method method;
        void *tables = allocator->allocate(size, TORCHLET_ALIGN);
        if (!tables)
            return detail::fail(Error::MemoryAllocationFailed,
                                "the method allocator has no memory for tables");
        auto status = torchlet_method_prepare(&method.handle_, &meta, &registry, options, tables,
                                              size, detail::text());
        if (status)
            return detail::error(status);
        torchlet_needs needs;
        if (auto failed = torchlet_method_needs(&method.handle_, &needs, detail::text()))
            return detail::error(failed);
        MemoryAllocator *temp =
            memory_manager->temp_allocator() ? memory_manager->temp_allocator() : allocator;
        torchlet_buffer planned[16];
        torchlet_memory memory = {{nullptr, needs.arena}, {nullptr, needs.scratch}, planned, 0};
        if (needs.arena)
            memory.arena.data = allocator->allocate(needs.arena, TORCHLET_ALIGN);
        if (needs.scratch)
            memory.scratch.data = temp->allocate(needs.scratch, TORCHLET_ALIGN);
        if ((needs.arena && !memory.arena.data) || (needs.scratch && !memory.scratch.data))
            return detail::fail(Error::MemoryAllocationFailed,
                                "an allocator has no memory for arena or scratch");
        if (HierarchicalAllocator *buffers = memory_manager->planned_memory())
            for (const Span<uint8_t> &buffer : buffers->buffers())
                if (memory.planned_count < 16)
                    planned[memory.planned_count++] = {buffer.data(), buffer.size()};
        if (auto failed = torchlet_method_finish(&method.handle_, &memory, detail::text()))
            return detail::error(failed);
        return method;
    }

    // The C handle.
    const torchlet_program *handle() const
    {
        return &handle_;
    }

private:
    struct alignas(TORCHLET_ALIGN) Block {
        uint8_t bytes[TORCHLET_ALIGN];
    };

    Program() : handle_()
    {
    }

    torchlet_program handle_;
    std::unique_ptr<Block[]> buffer_;
};

} // namespace runtime

namespace extension
{

// A program in the caller's memory, aligned to 16 bytes.
class BufferDataLoader final : public runtime::DataLoader
{
public:
    BufferDataLoader(const void *data, size_t size)
        : data_(static_cast<const uint8_t *>(data)), size_(size)
    {
    }
    runtime::Result<size_t> size() const override
    {
        return size_;
    }
    runtime::Error load_into(size_t offset, size_t size, void *buffer) const override
    {
        if (offset > size_ || size > size_ - offset)
            return runtime::Error::AccessFailed;
        std::memcpy(buffer, data_ + offset, size);
        return runtime::Error::Ok;
    }
    const void *lend(size_t offset, size_t size) const override
    {
        return offset <= size_ && size <= size_ - offset ? data_ + offset : nullptr;
    }

private:
    const uint8_t *data_;
    size_t size_;
};

// A program file, read into memory as a whole.
class FileDataLoader final : public runtime::DataLoader
{
public:
    static runtime::Result<FileDataLoader> from(const char *path)
    {
        std::FILE *file = std::fopen(path, "rb");
        if (!file)
            return runtime::detail::fail(runtime::Error::AccessFailed, "cannot open the file");
        FileDataLoader loader;
        bool ok = std::fseek(file, 0, SEEK_END) == 0;
        long size = ok ? std::ftell(file) : -1;
        ok = size >= 0 && std::fseek(file, 0, SEEK_SET) == 0;
        if (ok) {
            loader.size_ = static_cast<size_t>(size);
            loader.data_ = std::make_unique<Block[]>(loader.size_ / sizeof(Block) + 1);
            ok = std::fread(loader.data_.get(), 1, loader.size_, file) == loader.size_;
        }
        std::fclose(file);
        if (!ok)
            return runtime::detail::fail(runtime::Error::AccessFailed, "cannot read the file");
        return loader;
    }
    runtime::Result<size_t> size() const override
    {
        return size_;
    }
    runtime::Error load_into(size_t offset, size_t size, void *buffer) const override
    {
        return BufferDataLoader(data_.get(), size_).load_into(offset, size, buffer);
    }
    const void *lend(size_t offset, size_t size) const override
    {
        return BufferDataLoader(data_.get(), size_).lend(offset, size);
    }

private:
    struct alignas(TORCHLET_ALIGN) Block {
        uint8_t bytes[TORCHLET_ALIGN];
    };

    FileDataLoader() = default;

    std::unique_ptr<Block[]> data_;
    size_t size_ = 0;
};

// An allocator over the heap. Frees all memory when it is destroyed.
class MallocMemoryAllocator final : public runtime::MemoryAllocator
{
public:
    MallocMemoryAllocator() : MemoryAllocator(0, nullptr)
    {
    }
    void *allocate(size_t size, size_t alignment = kDefaultAlignment) override
    {
        auto memory = std::make_unique<uint8_t[]>(size + alignment);
        auto at = reinterpret_cast<uintptr_t>(memory.get());
        auto aligned = reinterpret_cast<uint8_t *>((at + alignment - 1) / alignment * alignment);
        pieces_.push_back(std::move(memory));
        return aligned;
    }
    void reset() override
    {
        pieces_.clear();
    }

private:
    std::vector<std::unique_ptr<uint8_t[]>> pieces_;
};

} // namespace extension
} // namespace torchlet

#endif
