// Programs for ExecuTorch's low-level API, with `executorch::` replaced by `torchlet::`.

#undef NDEBUG
#include <cassert>
#include <cstdio>
#include <fstream>
#include <memory>
#include <torchlet.hpp>
#include <vector>

using torchlet::aten::ScalarType;
using torchlet::aten::Tensor;
using torchlet::aten::TensorImpl;
using torchlet::extension::BufferDataLoader;
using torchlet::extension::FileDataLoader;
using torchlet::extension::MallocMemoryAllocator;
using torchlet::runtime::DataLoader;
using torchlet::runtime::Error;
using torchlet::runtime::EValue;
using torchlet::runtime::HierarchicalAllocator;
using torchlet::runtime::MemoryAllocator;
using torchlet::runtime::MemoryManager;
using torchlet::runtime::Method;
using torchlet::runtime::MethodMeta;
using torchlet::runtime::Program;
using torchlet::runtime::Result;
using torchlet::runtime::Span;

static float pixels[64];

static void run(Method &method)
{
    Tensor::SizesType sizes[] = {1, 1, 8, 8};
    Tensor::DimOrderType dim_order[] = {0, 1, 2, 3};
    TensorImpl impl(ScalarType::Float, 4, sizes, pixels, dim_order);
    Tensor tensor(&impl);
    Error set_input_error = method.set_input(tensor, 0);
    assert(set_input_error == Error::Ok);
    Error execute_error = method.execute();
    assert(execute_error == Error::Ok);
    EValue output = method.get_output(0);
    assert(output.isTensor() && output.toTensor().numel() == 10);
    assert(output.toTensor().const_data_ptr<float>()[2] > 6);
}

// With heap memory of the required sizes.
static void from_file(const char *path)
{
    Result<FileDataLoader> loader = FileDataLoader::from(path);
    assert(loader.ok());
    Result<Program> program = Program::load(&loader.get());
    assert(program.ok());

    const char *method_name = "forward";
    Result<MethodMeta> method_meta = program->method_meta(method_name);
    assert(method_meta.ok());
    std::vector<std::unique_ptr<uint8_t[]>> planned_buffers;
    std::vector<Span<uint8_t>> planned_arenas;
    size_t num_memory_planned_buffers = method_meta->num_memory_planned_buffers();
    for (size_t id = 0; id < num_memory_planned_buffers; ++id) {
        size_t buffer_size = static_cast<size_t>(method_meta->memory_planned_buffer_size(id).get());
        planned_buffers.push_back(std::make_unique<uint8_t[]>(buffer_size));
        planned_arenas.push_back({planned_buffers.back().get(), buffer_size});
    }
    HierarchicalAllocator planned_memory({planned_arenas.data(), planned_arenas.size()});
    MallocMemoryAllocator method_allocator;
    MemoryManager memory_manager(&method_allocator, &planned_memory);

    Result<Method> method = program->load_method(method_name, &memory_manager);
    assert(method.ok() && method->inputs_size() == 1 && method->outputs_size() == 1);
    run(*method);
    // Methods can be moved.
    Method moved = std::move(*method);
    run(moved);
    assert(moved.reset() == Error::Ok);
    assert(!program->load_method("backward", &memory_manager).ok());
    assert(moved.get_output(1).isNone());
}

// With storage that is not memory-mapped, and static memory. Too little memory is an error.
class Flash final : public DataLoader
{
public:
    explicit Flash(std::vector<char> bytes) : bytes_(std::move(bytes))
    {
    }
    Result<size_t> size() const override
    {
        return bytes_.size();
    }
    Error load_into(size_t offset, size_t size, void *buffer) const override
    {
        std::memcpy(buffer, bytes_.data() + offset, size);
        return Error::Ok;
    }

private:
    std::vector<char> bytes_;
};

static void from_storage(const char *path)
{
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    Flash loader(bytes);
    Result<Program> program = Program::load(&loader);
    assert(program.ok());
    alignas(16) static uint8_t method_memory[256 << 10], planned[64 << 10];
    Span<uint8_t> arenas[] = {{planned, sizeof planned}};
    HierarchicalAllocator planned_memory({arenas, 1});
    MemoryAllocator method_allocator(sizeof method_memory, method_memory);
    MemoryManager memory_manager(&method_allocator, &planned_memory);
    {
        Result<Method> method = program->load_method("forward", &memory_manager);
        assert(method.ok());
        run(*method);
    }
    size_t used = method_allocator.used_size();
    MemoryAllocator small(static_cast<uint32_t>(used - 1), method_memory);
    MemoryManager too_small(&small, &planned_memory);
    assert(program->load_method("forward", &too_small).error() == Error::MemoryAllocationFailed);
    MemoryAllocator exact(static_cast<uint32_t>(used), method_memory);
    MemoryManager enough(&exact, &planned_memory);
    assert(program->load_method("forward", &enough).ok());

    // Errors of the loader become errors of the program.
    BufferDataLoader cut(bytes.data(), bytes.size() - 1);
    assert(!Program::load(&cut).ok());
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    std::string folder = argv[1];
    std::ifstream file(folder + "/digits/image_2.npy", std::ios::binary);
    file.seekg(-256, std::ios::end);
    assert(file.read(reinterpret_cast<char *>(pixels), 256));
    std::string path = folder + "/digits/digits.pte";
    from_file(path.c_str());
    from_storage(path.c_str());
    std::puts("ok");
    return 0;
}
