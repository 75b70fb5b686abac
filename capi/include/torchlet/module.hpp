// Modules: programs loaded from files.

#ifndef TORCHLET_MODULE_HPP
#define TORCHLET_MODULE_HPP

#include "etdump.hpp"
#include "method_meta.hpp"
#include "tensor_ptr.hpp"

#include <map>
#include <unordered_set>

namespace torchlet
{
namespace extension
{

using runtime::Error;
using runtime::EValue;
using runtime::EventTracer;
using runtime::MethodMeta;
using runtime::Result;

// A program file, which is opened at the first use, and its loaded methods. Not thread-safe: use
// `share` to get a module for another thread.
class Module
{
public:
    enum class LoadMode { File, Mmap, MmapUseMlock, MmapUseMlockIgnoreErrors, MmapUseMadvise };

    // The device that programs run on. ExecuTorch's modules always run programs as exported.
    enum class RunOn : torchlet_run_on {
        Auto = TORCHLET_RUN_ON_AUTO,
        AsExported = TORCHLET_RUN_ON_AS_EXPORTED,
        Cpu = TORCHLET_RUN_ON_CPU,
        Vulkan = TORCHLET_RUN_ON_VULKAN,
    };

    explicit Module(const std::string &file_path, LoadMode load_mode = LoadMode::File,
                    std::unique_ptr<EventTracer> event_tracer = nullptr)
        : Module(file_path, std::vector<std::string>(), load_mode, std::move(event_tracer))
    {
    }

    explicit Module(const std::string &file_path, const std::string &data_map_path,
                    LoadMode load_mode = LoadMode::File,
                    std::unique_ptr<EventTracer> event_tracer = nullptr)
        : Module(file_path, std::vector<std::string>{data_map_path}, load_mode,
                 std::move(event_tracer))
    {
    }

    explicit Module(const std::string &file_path, std::vector<std::string> data_files,
                    LoadMode load_mode = LoadMode::File,
                    std::unique_ptr<EventTracer> event_tracer = nullptr)
        : path_(file_path), data_files_(std::move(data_files)),
          event_tracer_(std::move(event_tracer))
    {
        torchlet_module_options_init(&options_);
        switch (load_mode) {
        case LoadMode::File:
            options_.file_access = TORCHLET_FILE_READ;
            break;
        case LoadMode::MmapUseMadvise:
            options_.file_access = TORCHLET_FILE_MAP_PREFETCHED;
            break;
        case LoadMode::MmapUseMlock:
            options_.file_access = TORCHLET_FILE_MAP_LOCKED;
            break;
        default:
            options_.file_access = TORCHLET_FILE_MAP;
        }
    }

    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;
    virtual ~Module() = default;

    // Options for opening the module: device, threads, cache folder for compiled programs, kernels.
    // Change them before the first use.
    torchlet_module_options &options()
    {
        return options_;
    }
    Module &run_on(RunOn processor)
    {
        options_.run_on = static_cast<torchlet_run_on>(processor);
        return *this;
    }

    // Opens the file, unless it is open.
    [[nodiscard]] virtual Error load()
    {
        if (module_)
            return Error::Ok;
        std::vector<const char *> paths;
        for (const std::string &path : data_files_)
            paths.push_back(path.c_str());
        torchlet_module_options options = options_;
        options.data_paths = paths.data();
        options.data_count = paths.size();
        if (event_tracer_)
            options.recorder = event_tracer_->recorder();
        torchlet_module *opened = nullptr;
        auto status =
            torchlet_module_open(path_.c_str(), &options, &opened, runtime::detail::text());
        module_.reset(opened);
        return runtime::detail::error(status);
    }
    virtual bool is_loaded() const
    {
        return module_ != nullptr;
    }

    Result<size_t> num_methods()
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        return torchlet_module_method_count(module_.get());
    }
    Result<std::unordered_set<std::string>> method_names()
    {
        auto count = num_methods();
        if (!count.ok())
            return count.error();
        std::unordered_set<std::string> names;
        for (size_t i = 0; i < *count; i++) {
            torchlet_string name = torchlet_module_method_name(module_.get(), i);
            names.emplace(name.data, name.size);
        }
        return names;
    }
    Result<MethodMeta> method_meta(const std::string &method_name)
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        torchlet_method_meta meta;
        auto status = torchlet_module_method_meta(module_.get(), method_name.c_str(), &meta,
                                                  runtime::detail::text());
        if (status)
            return runtime::detail::error(status);
        return MethodMeta(meta, method_name);
    }

    [[nodiscard]] Error load_method(const std::string &method_name)
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        return runtime::detail::error(torchlet_module_load_method(
            module_.get(), method_name.c_str(), runtime::detail::text()));
    }
    [[nodiscard]] Error load_forward()
    {
        return load_method("forward");
    }
    bool unload_method(const std::string &method_name)
    {
        return torchlet_module_unload(module_.get(), method_name.c_str());
    }
    bool unload_forward()
    {
        return unload_method("forward");
    }
    bool is_method_loaded(const std::string &method_name) const
    {
        return torchlet_module_is_loaded(module_.get(), method_name.c_str());
    }

    // Runs a method. Missing inputs keep the values set by `set_input`.
    [[nodiscard]] virtual Result<std::vector<EValue>>
    execute(const std::string &method_name, const std::vector<EValue> &input_values)
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        std::vector<torchlet_value> inputs;
        for (const EValue &value : input_values)
            inputs.push_back(value.view());
        torchlet_values *raw = nullptr;
        auto status = torchlet_module_execute(module_.get(), method_name.c_str(), inputs.data(),
                                              inputs.size(), &raw, runtime::detail::text());
        if (status)
            return runtime::detail::error(status);
        // Each tensor keeps all results of the run.
        std::shared_ptr<torchlet_values> values(raw, torchlet_values_free);
        std::vector<EValue> outputs;
        for (size_t i = 0; i < torchlet_values_count(raw); i++) {
            torchlet_value value;
            if (auto failed = torchlet_values_get(raw, i, &value, runtime::detail::text()))
                return runtime::detail::error(failed);
            outputs.push_back(EValue::of(value, values));
        }
        return deliver(method_name, std::move(outputs));
    }
    [[nodiscard]] Result<std::vector<EValue>> execute(const std::string &method_name,
                                                      const EValue &input_value)
    {
        return execute(method_name, std::vector<EValue>{input_value});
    }
    [[nodiscard]] Result<std::vector<EValue>> execute(const std::string &method_name)
    {
        return execute(method_name, std::vector<EValue>{});
    }

    // Runs a method and returns its first output.
    [[nodiscard]] Result<EValue> get(const std::string &method_name,
                                     const std::vector<EValue> &input_values)
    {
        auto outputs = execute(method_name, input_values);
        if (!outputs.ok())
            return outputs.error();
        if (outputs->empty())
            return runtime::detail::fail(Error::InvalidArgument, "the method has no outputs");
        return outputs->at(0);
    }
    [[nodiscard]] Result<EValue> get(const std::string &method_name, const EValue &input_value)
    {
        return get(method_name, std::vector<EValue>{input_value});
    }
    [[nodiscard]] Result<EValue> get(const std::string &method_name)
    {
        return get(method_name, std::vector<EValue>{});
    }

    [[nodiscard]] Result<std::vector<EValue>> forward(const std::vector<EValue> &input_values)
    {
        return execute("forward", input_values);
    }
    [[nodiscard]] Result<std::vector<EValue>> forward(const EValue &input_value)
    {
        return forward(std::vector<EValue>{input_value});
    }
    [[nodiscard]] Result<std::vector<EValue>> forward()
    {
        return forward(std::vector<EValue>{});
    }

    // Sets an input for all later runs that do not pass it; a default `EValue` clears it. Copies
    // the data.
    [[nodiscard]] Error set_input(const std::string &method_name, const EValue &input_value,
                                  size_t input_index)
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        torchlet_value value = input_value.view();
        return runtime::detail::error(torchlet_module_set_input(
            module_.get(), method_name.c_str(), input_index, &value, runtime::detail::text()));
    }
    [[nodiscard]] Error set_input(const EValue &input_value, size_t input_index)
    {
        return set_input("forward", input_value, input_index);
    }
    [[nodiscard]] Error set_inputs(const std::string &method_name,
                                   const std::vector<EValue> &input_values)
    {
        for (size_t i = 0; i < input_values.size(); i++)
            if (Error error = set_input(method_name, input_values[i], i); error != Error::Ok)
                return error;
        return Error::Ok;
    }
    [[nodiscard]] Error set_inputs(const std::vector<EValue> &input_values)
    {
        return set_inputs("forward", input_values);
    }

    // Sets a tensor that all later runs copy an output to. The output may be memory-planned.
    [[nodiscard]] Error set_output(const std::string &method_name, EValue output_value,
                                   size_t output_index = 0)
    {
        auto meta = method_meta(method_name);
        if (!meta.ok())
            return meta.error();
        auto info = meta->output_tensor_meta(output_index);
        if (!info.ok())
            return info.error();
        if (!output_value.isTensor())
            return runtime::detail::fail(Error::InvalidArgument,
                                         "only tensors can be set as outputs");
        if (output_value.toTensor().scalar_type() != info->scalar_type())
            return runtime::detail::fail(Error::InvalidType,
                                         "the output has a different element type");
        outputs_[method_name].insert_or_assign(output_index, std::move(output_value));
        return Error::Ok;
    }
    [[nodiscard]] Error set_output(EValue output_value, size_t output_index = 0)
    {
        return set_output("forward", std::move(output_value), output_index);
    }

    // The tracer of this module and of all modules that share its file, or null.
    EventTracer *event_tracer() const
    {
        return event_tracer_.get();
    }

    // Resets the state of a method to its initial values.
    [[nodiscard]] Error reset(const std::string &method_name = "forward")
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        return runtime::detail::error(
            torchlet_module_reset(module_.get(), method_name.c_str(), runtime::detail::text()));
    }

    // Creates a module over the same open files, for another thread.
    Result<std::unique_ptr<Module>> share()
    {
        if (Error error = load(); error != Error::Ok)
            return error;
        torchlet_module *other = nullptr;
        if (auto status = torchlet_module_share(module_.get(), &other, runtime::detail::text()))
            return runtime::detail::error(status);
        auto module = std::make_unique<Module>(path_, data_files_);
        module->module_.reset(other);
        return module;
    }

    // The C handle; null until the file is open.
    torchlet_module *handle() const
    {
        return module_.get();
    }

private:
    struct Close {
        void operator()(torchlet_module *module) const
        {
            torchlet_module_close(module);
        }
    };

    // Copies outputs to the tensors set by `set_output`.
    Result<std::vector<EValue>> deliver(const std::string &method_name, std::vector<EValue> outputs)
    {
        auto set = outputs_.find(method_name);
        if (set == outputs_.end())
            return outputs;
        for (auto &[index, target] : set->second) {
            const aten::Tensor &from = outputs[index].toTensor(), &to = target.toTensor();
            if (Error error = to.unsafeGetTensorImpl()->resize(from.sizes()); error != Error::Ok)
                return error;
            if (from.dim_order() != to.dim_order())
                return runtime::detail::fail(Error::InvalidArgument,
                                             "the output has a different dim order");
            if (from.nbytes())
                std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
            outputs[index] = target;
        }
        return outputs;
    }

    std::string path_;
    std::vector<std::string> data_files_;
    std::unique_ptr<EventTracer> event_tracer_;
    torchlet_module_options options_;
    std::unique_ptr<torchlet_module, Close> module_;
    std::map<std::string, std::map<size_t, EValue>> outputs_;
};

} // namespace extension

using extension::Module;

} // namespace torchlet

#endif
