// Descriptions of methods.

#ifndef TORCHLET_METHOD_META_HPP
#define TORCHLET_METHOD_META_HPP

#include "tensor.hpp"

namespace torchlet
{
namespace runtime
{

// Element type, shape and dim order of an input or output.
class TensorInfo final
{
public:
    explicit TensorInfo(const torchlet_value_meta &meta) : meta_(meta)
    {
    }

    ArrayRef<aten::SizesType> sizes() const
    {
        return {tensor().info.sizes, tensor().info.rank};
    }
    ArrayRef<aten::DimOrderType> dim_order() const
    {
        return {tensor().info.dim_order, tensor().info.rank};
    }
    aten::ScalarType scalar_type() const
    {
        return static_cast<aten::ScalarType>(tensor().info.scalar_type);
    }
    bool is_memory_planned() const
    {
        return meta_.planned;
    }
    size_t nbytes() const
    {
        return tensor().size;
    }
    std::string_view name() const
    {
        return meta_.name.data ? std::string_view(meta_.name.data, meta_.name.size)
                               : std::string_view();
    }

private:
    const torchlet_tensor &tensor() const
    {
        return meta_.value.data.tensor;
    }

    torchlet_value_meta meta_;
};

// The description of a method. Valid as long as its program or module.
class MethodMeta final
{
public:
    MethodMeta(const torchlet_method_meta &meta, std::string name)
        : meta_(meta), name_(std::move(name))
    {
    }

    std::string_view name() const
    {
        return name_;
    }
    size_t num_inputs() const
    {
        return torchlet_method_meta_input_count(&meta_);
    }
    size_t num_outputs() const
    {
        return torchlet_method_meta_output_count(&meta_);
    }
    Result<Tag> input_tag(size_t index) const
    {
        return tag(torchlet_method_meta_input, index);
    }
    Result<Tag> output_tag(size_t index) const
    {
        return tag(torchlet_method_meta_output, index);
    }
    Result<TensorInfo> input_tensor_meta(size_t index) const
    {
        return tensor(torchlet_method_meta_input, index);
    }
    Result<TensorInfo> output_tensor_meta(size_t index) const
    {
        return tensor(torchlet_method_meta_output, index);
    }
    size_t num_memory_planned_buffers() const
    {
        return torchlet_method_meta_planned_count(&meta_);
    }
    Result<int64_t> memory_planned_buffer_size(size_t index) const
    {
        size_t size = 0;
        if (auto status = torchlet_method_meta_planned_size(&meta_, index, &size, detail::text()))
            return detail::error(status);
        return static_cast<int64_t>(size);
    }

    // The C handle.
    const torchlet_method_meta *handle() const
    {
        return &meta_;
    }

private:
    using Get = decltype(&torchlet_method_meta_input);

    Result<torchlet_value_meta> value(Get get, size_t index) const
    {
        torchlet_value_meta result;
        if (auto status = get(&meta_, index, &result, detail::text()))
            return detail::error(status);
        return result;
    }

    Result<Tag> tag(Get get, size_t index) const
    {
        auto found = value(get, index);
        if (!found.ok())
            return found.error();
        switch (found->value.kind) {
        case TORCHLET_KIND_TENSOR:
            return Tag::Tensor;
        case TORCHLET_KIND_INTEGER:
            return Tag::Int;
        case TORCHLET_KIND_FLOAT:
            return Tag::Double;
        case TORCHLET_KIND_BOOLEAN:
            return Tag::Bool;
        case TORCHLET_KIND_STRING:
            return Tag::String;
        case TORCHLET_KIND_LIST:
            return Tag::ListInt;
        default:
            return Tag::None;
        }
    }

    Result<TensorInfo> tensor(Get get, size_t index) const
    {
        auto found = value(get, index);
        if (!found.ok())
            return found.error();
        if (found->value.kind != TORCHLET_KIND_TENSOR)
            return detail::fail(Error::InvalidArgument, "the input or output is not a tensor");
        return TensorInfo(*found);
    }

    // Handles can be moved as bytes.
    torchlet_method_meta meta_;
    std::string name_;
};

} // namespace runtime

using runtime::MethodMeta;
using runtime::TensorInfo;

} // namespace torchlet

#endif
