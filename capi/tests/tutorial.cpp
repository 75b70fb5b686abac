// Programs for ExecuTorch's Module and TensorPtr, with `executorch::` replaced by `torchlet::`.

#undef NDEBUG
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>
#include <torchlet.hpp>

using namespace ::torchlet::extension;
using torchlet::aten::ScalarType;
using torchlet::aten::Tensor;
using torchlet::aten::TensorShapeDynamism;
using torchlet::runtime::Error;
using torchlet::runtime::EValue;

static std::string folder;

static void run_a_module(float *input)
{
    Module module(folder + "/digits/digits.pte");
    assert(!module.is_loaded());
    auto tensor = from_blob(input, {1, 1, 8, 8});
    const auto result = module.forward(tensor);
    assert(result.ok() && module.is_loaded());
    const auto output = result->at(0).toTensor().const_data_ptr<float>();
    assert(output[2] > 6);
}

static void load_and_ask()
{
    Module module(folder + "/digits/digits.pte", Module::LoadMode::Mmap);
    const auto error = module.load();
    assert(error == Error::Ok && module.is_loaded());
    assert(module.load_method("forward") == Error::Ok);
    assert(module.is_method_loaded("forward"));
    assert(module.load_forward() == Error::Ok);
    const auto method_names = module.method_names();
    assert(method_names.ok() && method_names->count("forward") && method_names->size() == 1);
    assert(module.num_methods().get() == 1);

    const auto method_meta = module.method_meta("forward");
    assert(method_meta.ok());
    assert(method_meta->name() == "forward");
    assert(method_meta->num_inputs() == 1 && method_meta->num_outputs() == 1);
    assert(method_meta->input_tag(0).get() == torchlet::runtime::Tag::Tensor);
    const auto input_meta = method_meta->input_tensor_meta(0);
    assert(input_meta.ok() && input_meta->scalar_type() == ScalarType::Float);
    assert(input_meta->sizes().size() == 4 && input_meta->sizes()[2] == 8 &&
           input_meta->nbytes() == 256);
    const auto output_meta = method_meta->output_tensor_meta(0);
    assert(output_meta.ok() && output_meta->sizes().size() == 2);
    assert(!method_meta->output_tensor_meta(1).ok());

    assert(module.unload_forward() && !module.is_method_loaded("forward"));
    const auto missing = module.method_meta("backward");
    assert(missing.error() == Error::InvalidArgument &&
           std::strlen(torchlet::last_error_message()) > 10);

    Module nowhere("/no/such/file.pte");
    assert(nowhere.load() == Error::AccessFailed && !nowhere.is_loaded());
    assert(nowhere.forward().error() == Error::AccessFailed);
}

static void set_inputs_and_outputs(float *input)
{
    Module module(folder + "/digits/digits.pte");
    auto tensor = from_blob(input, {1, 1, 8, 8});
    assert(module.forward().error() == Error::InvalidArgument);
    assert(module.set_input("forward", tensor, 0) == Error::Ok);
    const auto preset = module.forward();
    assert(preset.ok());
    assert(module.set_inputs({EValue(tensor)}) == Error::Ok);
    assert(module.execute("forward").ok());
    assert(module.set_input(EValue(), 0) == Error::Ok);
    assert(!module.forward().ok());

    auto output = zeros({1, 10});
    assert(module.set_output(output) == Error::Ok);
    const auto result = module.execute("forward", tensor);
    assert(result.ok() && result->at(0).toTensor().const_data_ptr() == output->const_data_ptr());
    assert(output->const_data_ptr<float>()[2] ==
           preset->at(0).toTensor().const_data_ptr<float>()[2]);
    assert(module.set_output(zeros({1, 10}, ScalarType::Double)) == Error::InvalidType);
    assert(module.get("forward", tensor)->isTensor());
}

static void several_inputs()
{
    Module module(folder + "/programs/two_methods.pte");
    std::array<float, 64> a{}, b{};
    const auto meta = module.method_meta("forward");
    assert(meta.ok());
    std::vector<EValue> inputs;
    for (size_t i = 0; i < meta->num_inputs(); i++) {
        auto sizes = meta->input_tensor_meta(i)->sizes().vec();
        inputs.push_back(make_tensor_ptr(sizes, i ? b.data() : a.data()));
    }
    const auto result = module.forward(inputs);
    assert(result.ok());
    const auto out = result->at(0).toTensor();
    for (int i = 0; i < out.numel(); ++i)
        assert(std::isfinite(out.const_data_ptr<float>()[i]));
    assert(module.num_methods().get() == 2);
}

static void external_data(float *input)
{
    Module module(folder + "/digits/digits_external.pte",
                  folder + "/digits/digits_external._default_external_constant.ptd");
    assert(module.forward(from_blob(input, {1, 1, 8, 8})).ok());
}

// A recording for ExecuTorch's Inspector.
static void recorded(float *input)
{
    Module module(folder + "/digits/digits.pte", Module::LoadMode::MmapUseMlockIgnoreErrors,
                  std::make_unique<torchlet::etdump::ETDumpGen>(1 << 16));
    module.run_on(Module::RunOn::AsExported);
    auto *etdump = dynamic_cast<torchlet::etdump::ETDumpGen *>(module.event_tracer());
    assert(etdump);
    std::unique_ptr<void, decltype(&free)> before(etdump->get_etdump_data().buf, free);
    assert(module.forward(from_blob(input, {1, 1, 8, 8})).ok());
    const auto trace = etdump->get_etdump_data();
    std::unique_ptr<void, decltype(&free)> guard(trace.buf, free);
    assert(trace.buf && trace.size > 100);
    // A size precedes the FlatBuffers file identifier.
    assert(std::memcmp(static_cast<const char *>(trace.buf) + 8, "ED00", 4) == 0);
    const auto contains = [&](const char *name) {
        return std::string_view(static_cast<const char *>(trace.buf), trace.size).find(name) !=
               std::string_view::npos;
    };
    assert(contains("Method::execute") && contains("OPERATOR_CALL") &&
           contains("native_call_convolution.out"));
    const auto values = etdump->get_debug_data();
    std::unique_ptr<void, decltype(&free)> bytes(values.buf, free);
    assert(values.size >= 40);
    etdump->reset();
    const auto after = etdump->get_etdump_data();
    std::unique_ptr<void, decltype(&free)> rest(after.buf, free);
    assert(after.size < trace.size && etdump->get_debug_data().size == 0);
    assert(Module(folder + "/digits/digits.pte").event_tracer() == nullptr);
}

// All methods in shared memory: outputs stay valid.
static void shared_activations()
{
    Module module(folder + "/programs/two_methods.pte"),
        plain(folder + "/programs/two_methods.pte");
    module.options().share_activations = true;
    std::vector<float> numbers(256, 0.5f);
    const auto names = module.method_names();
    assert(names.ok() && names->size() == 2);
    std::vector<Tensor> kept;
    for (int round = 0; round < 2; round++)
        for (const auto &name : *names) {
            std::vector<EValue> inputs;
            const auto meta = module.method_meta(name);
            for (size_t i = 0; i < meta->num_inputs(); i++)
                inputs.push_back(
                    from_blob(numbers.data(), meta->input_tensor_meta(i)->sizes().vec()));
            const auto result = module.execute(name, inputs),
                       expected = plain.execute(name, inputs);
            assert(result.ok() && expected.ok());
            kept.push_back(result->at(0).toTensor());
            kept.push_back(expected->at(0).toTensor());
        }
    for (size_t i = 0; i < kept.size(); i += 2)
        assert(std::memcmp(kept[i].const_data_ptr(), kept[i + 1].const_data_ptr(),
                           kept[i].nbytes()) == 0);
}

// One module per thread, over one open file.
static void threads(float *input)
{
    Module module(folder + "/digits/digits.pte");
    std::vector<std::unique_ptr<Module>> modules;
    for (int i = 0; i < 3; i++)
        modules.push_back(std::move(module.share().get()));
    std::vector<std::thread> workers;
    std::array<bool, 3> right{};
    for (size_t i = 0; i < 3; i++)
        workers.emplace_back([&, i] {
            const auto result = modules[i]->forward(from_blob(input, {1, 1, 8, 8}));
            right[i] = result.ok() && result->at(0).toTensor().const_data_ptr<float>()[2] > 6;
        });
    for (auto &worker : workers)
        worker.join();
    assert(right[0] && right[1] && right[2]);
}

static void make_tensors()
{
    auto matrix = make_tensor_ptr({2, 3}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f});
    assert(matrix->dim() == 2 && matrix->size(1) == 3 && matrix->numel() == 6);
    assert(matrix->scalar_type() == ScalarType::Float && matrix->const_data_ptr<float>()[5] == 6);
    assert(matrix->strides()[0] == 3 && matrix->dim_order()[1] == 1 && matrix->nbytes() == 24);

    auto pi = make_tensor_ptr(3.14);
    assert(pi->dim() == 0 && pi->scalar_type() == ScalarType::Double &&
           pi->const_data_ptr<double>()[0] == 3.14);
    auto number = make_tensor_ptr(42, ScalarType::Float);
    assert(number->const_data_ptr<float>()[0] == 42);
    auto line = make_tensor_ptr({1, 2, 3, 4, 5, 6}, ScalarType::Double);
    assert(line->dim() == 1 && line->size(0) == 6 && line->const_data_ptr<double>()[3] == 4);

    std::vector<uint8_t> bytes(24);
    bytes[4] = 7;
    auto integers = make_tensor_ptr({2, 3}, std::move(bytes), ScalarType::Int);
    assert(integers->const_data_ptr<int32_t>()[1] == 7);

    float data[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    auto view = make_tensor_ptr({2, 3}, data, ScalarType::Float);
    view->mutable_data_ptr<float>()[0] = 9;
    assert(data[0] == 9);

    bool deleted = false;
    {
        auto *numbers = new double[6]{1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
        auto owned = make_tensor_ptr({2, 3}, numbers, ScalarType::Double,
                                     TensorShapeDynamism::DYNAMIC_BOUND, [&](void *pointer) {
                                         delete[] static_cast<double *>(pointer);
                                         deleted = true;
                                     });
        auto other = make_tensor_ptr(*owned);
        owned.reset();
        assert(!deleted && other->const_data_ptr<double>()[5] == 6);
    }
    assert(deleted);

    auto copy = clone_tensor_ptr(view);
    copy->mutable_data_ptr<float>()[0] = 1;
    assert(data[0] == 9 && copy->sizes() == view->sizes());

    auto sized = make_tensor_ptr({2, 3}, {1, 2, 3, 4, 5, 6}, ScalarType::Int,
                                 TensorShapeDynamism::DYNAMIC_BOUND);
    assert(resize_tensor_ptr(sized, {2, 2}) == Error::Ok && sized->numel() == 4);
    assert(resize_tensor_ptr(sized, {6, 1}) == Error::Ok && sized->strides()[0] == 1);
    assert(resize_tensor_ptr(sized, {4, 2}) != Error::Ok && sized->numel() == 6);

    auto blob = from_blob(data, {3}, ScalarType::Float);
    double doubles[] = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
    auto fluent = for_blob(doubles, {2, 3}, ScalarType::Double)
                      .strides({3, 1})
                      .dynamism(TensorShapeDynamism::STATIC)
                      .make_tensor_ptr();
    assert(blob->numel() == 3 && resize_tensor_ptr(fluent, {1, 3}) != Error::Ok);
    auto turned = for_blob(doubles, {2, 3}, ScalarType::Double).strides({1, 2}).make_tensor_ptr();
    assert(turned->dim_order()[0] == 1);
    int *three = new int[3]{1, 2, 3};
    from_blob(three, {3}, ScalarType::Int,
              [](void *pointer) { delete[] static_cast<int *>(pointer); });

    assert(empty({2, 3})->numel() == 6 && empty_like(matrix)->size(1) == 3);
    assert(empty_strided({2, 3}, {3, 1})->nbytes() == 24);
    assert(full({2, 3}, 42.0f)->const_data_ptr<float>()[5] == 42 &&
           zeros({2, 3})->const_data_ptr<float>()[5] == 0);
    assert(ones({3, 4}, ScalarType::Long)->const_data_ptr<int64_t>()[11] == 1);
    assert(full_like(sized, 3)->const_data_ptr<int32_t>()[0] == 3 &&
           ones_like(matrix)->numel() == 6);
    auto uniform = rand({2, 3});
    for (int i = 0; i < 6; i++)
        assert(uniform->const_data_ptr<float>()[i] >= 0 && uniform->const_data_ptr<float>()[i] < 1);
    assert(randn({2, 3})->numel() == 6);
    auto drawn = randint(0, 10, {2, 3});
    for (int i = 0; i < 6; i++)
        assert(drawn->const_data_ptr<int32_t>()[i] >= 0 &&
               drawn->const_data_ptr<int32_t>()[i] < 10);
    assert(scalar_tensor(3.14f)->dim() == 0);

    EValue value(7), text("abc"), truth(true), half(0.5);
    assert(value.isInt() && value.toInt() == 7 && text.toString() == "abc" && truth.toBool() &&
           half.toDouble() == 0.5);
    assert(EValue().isNone() && EValue(matrix).isTensor() && value.toScalar().to<double>() == 7);
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    folder = argv[1];
    float pixels[64];
    std::ifstream file(folder + "/digits/image_2.npy", std::ios::binary);
    file.seekg(-256, std::ios::end);
    assert(file.read(reinterpret_cast<char *>(pixels), 256));
    run_a_module(pixels);
    load_and_ask();
    set_inputs_and_outputs(pixels);
    several_inputs();
    external_data(pixels);
    recorded(pixels);
    shared_activations();
    threads(pixels);
    make_tensors();
    std::puts("ok");
    return 0;
}
