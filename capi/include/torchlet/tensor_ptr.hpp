// Shared tensors, and functions that create them.

#ifndef TORCHLET_TENSOR_PTR_HPP
#define TORCHLET_TENSOR_PTR_HPP

#include "tensor.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace torchlet
{
namespace extension
{

using aten::DimOrderType;
using aten::Scalar;
using aten::ScalarType;
using aten::SizesType;
using aten::StridesType;
using aten::Tensor;
using aten::TensorImpl;
using aten::TensorShapeDynamism;

using TensorPtr = std::shared_ptr<Tensor>;

namespace detail
{

inline TensorPtr over(std::vector<SizesType> sizes, void *data, std::vector<DimOrderType> dim_order,
                      std::vector<StridesType> strides, ScalarType type,
                      TensorShapeDynamism dynamism, std::shared_ptr<const void> owner)
{
    if ((!dim_order.empty() && dim_order.size() != sizes.size()) ||
        (!strides.empty() && strides.size() != sizes.size()))
        runtime::detail::stop("sizes, dim order and strides of a tensor have different lengths");
    auto impl = std::make_shared<TensorImpl>(type, sizes.size(), sizes.data(), data,
                                             dim_order.empty() ? nullptr : dim_order.data(),
                                             strides.empty() ? nullptr : strides.data(), dynamism);
    impl->set_owner(std::move(owner));
    return std::make_shared<Tensor>(std::move(impl));
}

inline size_t count(const std::vector<SizesType> &sizes)
{
    size_t product = 1;
    for (SizesType size : sizes)
        product *= size > 0 ? static_cast<size_t>(size) : 0;
    return product;
}

template <typename T> std::vector<uint8_t> bytes_of(const T *items, size_t count)
{
    std::vector<uint8_t> bytes(count * sizeof(T));
    if (count)
        std::memcpy(bytes.data(), items, bytes.size());
    return bytes;
}

// Converts items to bytes of another element type.
template <typename To, typename From> std::vector<uint8_t> converted(const std::vector<From> &items)
{
    std::vector<uint8_t> bytes(items.size() * sizeof(To));
    for (size_t i = 0; i < items.size(); i++) {
        To item = static_cast<To>(items[i]);
        std::memcpy(bytes.data() + i * sizeof(To), &item, sizeof(To));
    }
    return bytes;
}

template <typename From> std::vector<uint8_t> cast(const std::vector<From> &items, ScalarType type)
{
    if (std::is_floating_point_v<From> && aten::isIntegralType(type, true))
        runtime::detail::stop("floats cannot be converted to integers");
    if (type == ScalarType::Bool && !std::is_same_v<From, bool>)
        runtime::detail::stop("numbers cannot be converted to booleans");
    switch (type) {
    case ScalarType::Byte:
        return converted<uint8_t>(items);
    case ScalarType::Char:
        return converted<int8_t>(items);
    case ScalarType::Short:
        return converted<int16_t>(items);
    case ScalarType::Int:
        return converted<int32_t>(items);
    case ScalarType::Long:
        return converted<int64_t>(items);
    case ScalarType::Float:
        return converted<float>(items);
    case ScalarType::Double:
        return converted<double>(items);
    case ScalarType::Bool:
        return converted<bool>(items);
    case ScalarType::UInt16:
        return converted<uint16_t>(items);
    case ScalarType::UInt32:
        return converted<uint32_t>(items);
    case ScalarType::UInt64:
        return converted<uint64_t>(items);
    default:
        runtime::detail::stop("items cannot be converted to this element type; pass them as bytes");
    }
}

// A tensor that owns its bytes. The heap aligns vectors of bytes for all element types.
inline TensorPtr owning(std::vector<SizesType> sizes, std::vector<uint8_t> bytes,
                        std::vector<DimOrderType> dim_order, std::vector<StridesType> strides,
                        ScalarType type, TensorShapeDynamism dynamism)
{
    if (bytes.size() < count(sizes) * aten::elementSize(type))
        runtime::detail::stop("the data of a tensor has fewer bytes than its shape requires");
    auto owner = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
    void *data = owner->data();
    return over(std::move(sizes), data, std::move(dim_order), std::move(strides), type, dynamism,
                owner);
}

} // namespace detail

// A tensor over the caller's data, which `deleter` frees if it is set.
inline TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, void *data,
                                 std::vector<DimOrderType> dim_order,
                                 std::vector<StridesType> strides,
                                 ScalarType type = ScalarType::Float,
                                 TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void *)> deleter = nullptr)
{
    std::shared_ptr<const void> owner;
    if (deleter)
        owner = std::shared_ptr<void>(data, std::move(deleter));
    return detail::over(std::move(sizes), data, std::move(dim_order), std::move(strides), type,
                        dynamism, owner);
}

inline TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, void *data,
                                 ScalarType type = ScalarType::Float,
                                 TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void *)> deleter = nullptr)
{
    return make_tensor_ptr(std::move(sizes), data, {}, {}, type, dynamism, std::move(deleter));
}

// A tensor that owns a copy of `data`, converted to `type`.
template <typename T = float>
TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, std::vector<T> data,
                          std::vector<DimOrderType> dim_order, std::vector<StridesType> strides,
                          ScalarType type = aten::detail::ScalarTypeOf<T>::value,
                          TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    if (data.size() != detail::count(sizes))
        runtime::detail::stop("the number of elements of a tensor differs from its shape");
    return detail::owning(std::move(sizes), detail::cast(data, type), std::move(dim_order),
                          std::move(strides), type, dynamism);
}

template <typename T = float, std::enable_if_t<!std::is_same_v<T, uint8_t>, int> = 0>
TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, std::vector<T> data,
                          ScalarType type = aten::detail::ScalarTypeOf<T>::value,
                          TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr<T>(std::move(sizes), std::move(data), {}, {}, type, dynamism);
}

// A tensor that owns its data, given as the bytes of elements of `type`.
inline TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, std::vector<uint8_t> data,
                                 ScalarType type = ScalarType::Byte,
                                 TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return detail::owning(std::move(sizes), std::move(data), {}, {}, type, dynamism);
}

// A one-dimensional tensor.
template <typename T = float>
TensorPtr make_tensor_ptr(std::vector<T> data,
                          ScalarType type = aten::detail::ScalarTypeOf<T>::value,
                          TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    std::vector<SizesType> sizes{static_cast<SizesType>(data.size())};
    return detail::owning(std::move(sizes), detail::cast(data, type), {}, {}, type, dynamism);
}

template <typename T>
TensorPtr make_tensor_ptr(std::initializer_list<T> data,
                          ScalarType type = aten::detail::ScalarTypeOf<T>::value,
                          TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr(std::vector<T>(data), type, dynamism);
}

template <typename T>
TensorPtr make_tensor_ptr(std::vector<SizesType> sizes, std::initializer_list<T> data,
                          ScalarType type = aten::detail::ScalarTypeOf<T>::value,
                          TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr<T>(std::move(sizes), std::vector<T>(data), {}, {}, type, dynamism);
}

// A zero-dimensional tensor.
template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
TensorPtr make_tensor_ptr(T value, ScalarType type = aten::detail::ScalarTypeOf<T>::value)
{
    return detail::owning({}, detail::cast(std::vector<T>{value}, type), {}, {}, type,
                          TensorShapeDynamism::STATIC);
}

// A view: shares the data, with separate sizes.
inline TensorPtr make_tensor_ptr(const Tensor &tensor)
{
    return std::make_shared<Tensor>(std::make_shared<TensorImpl>(*tensor.unsafeGetTensorImpl()));
}

inline TensorPtr make_tensor_ptr(const TensorPtr &tensor)
{
    return make_tensor_ptr(*tensor);
}

// A tensor that owns a copy of the elements.
inline TensorPtr clone_tensor_ptr(const Tensor &tensor)
{
    auto bytes = detail::bytes_of(tensor.const_data_ptr<uint8_t>(), tensor.nbytes());
    return detail::owning(tensor.sizes().vec(), std::move(bytes), tensor.dim_order().vec(), {},
                          tensor.scalar_type(), tensor.shape_dynamism());
}

inline TensorPtr clone_tensor_ptr(const TensorPtr &tensor)
{
    return clone_tensor_ptr(*tensor);
}

inline runtime::Error resize_tensor_ptr(TensorPtr &tensor, const std::vector<SizesType> &sizes)
{
    return tensor->unsafeGetTensorImpl()->resize(sizes);
}

// A tensor over the caller's data.
inline TensorPtr from_blob(void *data, std::vector<SizesType> sizes,
                           ScalarType type = ScalarType::Float,
                           TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr(std::move(sizes), data, {}, {}, type, dynamism);
}

inline TensorPtr from_blob(void *data, std::vector<SizesType> sizes,
                           std::vector<StridesType> strides, ScalarType type = ScalarType::Float,
                           TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr(std::move(sizes), data, {}, std::move(strides), type, dynamism);
}

// A tensor over data that `deleter` frees with the last reference.
inline TensorPtr from_blob(void *data, std::vector<SizesType> sizes, ScalarType type,
                           std::function<void(void *)> deleter,
                           TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return make_tensor_ptr(std::move(sizes), data, {}, {}, type, dynamism, std::move(deleter));
}

// A builder of tensors over the caller's data.
class TensorPtrMaker final
{
public:
    TensorPtrMaker(void *data, std::vector<SizesType> sizes, ScalarType type)
        : data_(data), sizes_(std::move(sizes)), type_(type)
    {
    }
    TensorPtrMaker &&type(ScalarType type)
    {
        type_ = type;
        return std::move(*this);
    }
    TensorPtrMaker &&dim_order(std::vector<DimOrderType> dim_order)
    {
        dim_order_ = std::move(dim_order);
        return std::move(*this);
    }
    TensorPtrMaker &&strides(std::vector<StridesType> strides)
    {
        strides_ = std::move(strides);
        return std::move(*this);
    }
    TensorPtrMaker &&dynamism(TensorShapeDynamism dynamism)
    {
        dynamism_ = dynamism;
        return std::move(*this);
    }
    TensorPtrMaker &&deleter(std::function<void(void *)> deleter)
    {
        deleter_ = std::move(deleter);
        return std::move(*this);
    }
    TensorPtr make_tensor_ptr() &&
    {
        return extension::make_tensor_ptr(std::move(sizes_), data_, std::move(dim_order_),
                                          std::move(strides_), type_, dynamism_,
                                          std::move(deleter_));
    }

private:
    void *data_;
    std::vector<SizesType> sizes_;
    std::vector<DimOrderType> dim_order_;
    std::vector<StridesType> strides_;
    ScalarType type_;
    TensorShapeDynamism dynamism_ = TensorShapeDynamism::DYNAMIC_BOUND;
    std::function<void(void *)> deleter_;
};

inline TensorPtrMaker for_blob(void *data, std::vector<SizesType> sizes,
                               ScalarType type = ScalarType::Float)
{
    return TensorPtrMaker(data, std::move(sizes), type);
}

// A tensor of zeros. Empty strides mean contiguous.
inline TensorPtr empty_strided(std::vector<SizesType> sizes, std::vector<StridesType> strides,
                               ScalarType type = ScalarType::Float,
                               TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    std::vector<uint8_t> bytes(detail::count(sizes) * aten::elementSize(type));
    return detail::owning(std::move(sizes), std::move(bytes), {}, std::move(strides), type,
                          dynamism);
}

inline TensorPtr empty(std::vector<SizesType> sizes, ScalarType type = ScalarType::Float,
                       TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return empty_strided(std::move(sizes), {}, type, dynamism);
}

inline TensorPtr empty_like(const TensorPtr &other)
{
    return empty_strided(other->sizes().vec(), other->strides().vec(), other->scalar_type(),
                         other->shape_dynamism());
}

inline TensorPtr full_strided(std::vector<SizesType> sizes, std::vector<StridesType> strides,
                              Scalar value, ScalarType type = ScalarType::Float,
                              TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    size_t count = detail::count(sizes);
    auto fill = [&](auto sample) {
        using T = decltype(sample);
        return detail::cast(std::vector<T>(count, value.to<T>()), type);
    };
    std::vector<uint8_t> bytes;
    if (value.isFloatingPoint() && !aten::isIntegralType(type, true))
        bytes = fill(double{});
    else if (type == ScalarType::Bool)
        bytes = std::vector<uint8_t>(count, value.to<double>() != 0);
    else
        bytes = fill(int64_t{});
    return detail::owning(std::move(sizes), std::move(bytes), {}, std::move(strides), type,
                          dynamism);
}

inline TensorPtr full(std::vector<SizesType> sizes, Scalar value,
                      ScalarType type = ScalarType::Float,
                      TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return full_strided(std::move(sizes), {}, value, type, dynamism);
}

inline TensorPtr full_like(const TensorPtr &other, Scalar value)
{
    return full_strided(other->sizes().vec(), other->strides().vec(), value, other->scalar_type(),
                        other->shape_dynamism());
}

inline TensorPtr zeros(std::vector<SizesType> sizes, ScalarType type = ScalarType::Float,
                       TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return empty(std::move(sizes), type, dynamism);
}

inline TensorPtr zeros_like(const TensorPtr &other)
{
    return empty_like(other);
}

inline TensorPtr ones(std::vector<SizesType> sizes, ScalarType type = ScalarType::Float,
                      TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return full(std::move(sizes), 1, type, dynamism);
}

inline TensorPtr ones_like(const TensorPtr &other)
{
    return full_like(other, 1);
}

inline TensorPtr scalar_tensor(Scalar value, ScalarType type = ScalarType::Float)
{
    return full({}, value, type, TensorShapeDynamism::STATIC);
}

namespace detail
{

template <typename Distribution, typename T = double>
TensorPtr drawn(std::vector<SizesType> sizes, Distribution distribution, ScalarType type,
                TensorShapeDynamism dynamism)
{
    std::mt19937 generator(std::random_device{}());
    std::vector<T> items(count(sizes));
    for (T &item : items)
        item = static_cast<T>(distribution(generator));
    return owning(std::move(sizes), cast(items, type), {}, {}, type, dynamism);
}

} // namespace detail

// Uniformly distributed values in [0, 1).
inline TensorPtr rand(std::vector<SizesType> sizes, ScalarType type = ScalarType::Float,
                      TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return detail::drawn(std::move(sizes), std::uniform_real_distribution<float>(0, 1), type,
                         dynamism);
}

// Values of the standard normal distribution.
inline TensorPtr randn(std::vector<SizesType> sizes, ScalarType type = ScalarType::Float,
                       TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    return detail::drawn(std::move(sizes), std::normal_distribution<float>(0, 1), type, dynamism);
}

// Uniformly distributed integers in [low, high).
inline TensorPtr randint(int64_t low, int64_t high, std::vector<SizesType> sizes,
                         ScalarType type = ScalarType::Int,
                         TensorShapeDynamism dynamism = TensorShapeDynamism::DYNAMIC_BOUND)
{
    using Distribution = std::uniform_int_distribution<int64_t>;
    return detail::drawn<Distribution, int64_t>(std::move(sizes), Distribution(low, high - 1), type,
                                                dynamism);
}

} // namespace extension

using extension::TensorPtr;

} // namespace torchlet

#endif
