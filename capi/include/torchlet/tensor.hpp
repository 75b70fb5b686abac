// Tensors and values.

#ifndef TORCHLET_TENSOR_HPP
#define TORCHLET_TENSOR_HPP

#include "result.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>

namespace torchlet
{
namespace aten
{

using runtime::ArrayRef;
using SizesType = int32_t;
using DimOrderType = uint8_t;
using StridesType = int32_t;

// The element type of a tensor, with PyTorch's values.
enum class ScalarType : int8_t {
    Byte = TORCHLET_BYTE,
    Char = TORCHLET_CHAR,
    Short = TORCHLET_SHORT,
    Int = TORCHLET_INT,
    Long = TORCHLET_LONG,
    Half = TORCHLET_HALF,
    Float = TORCHLET_FLOAT,
    Double = TORCHLET_DOUBLE,
    Bool = TORCHLET_BOOL,
    BFloat16 = TORCHLET_BFLOAT16,
    UInt16 = TORCHLET_UINT16,
    UInt32 = TORCHLET_UINT32,
    UInt64 = TORCHLET_UINT64,
};

// Size of an element in bytes.
inline size_t elementSize(ScalarType type)
{
    return torchlet_scalar_type_size(static_cast<torchlet_scalar_type>(type));
}

inline bool isIntegralType(ScalarType type, bool include_bool)
{
    switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
    case ScalarType::UInt16:
    case ScalarType::UInt32:
    case ScalarType::UInt64:
        return true;
    case ScalarType::Bool:
        return include_bool;
    default:
        return false;
    }
}

// Whether a tensor can be resized.
enum class TensorShapeDynamism : uint8_t {
    STATIC = 0,
    DYNAMIC_BOUND = 1,
    DYNAMIC_UNBOUND = 2,
    DYNAMIC = DYNAMIC_BOUND,
};

namespace detail
{

template <typename T> struct ScalarTypeOf;
#define TORCHLET_SCALAR_TYPE(type, name)                                                           \
    template <> struct ScalarTypeOf<type> {                                                        \
        static constexpr ScalarType value = ScalarType::name;                                      \
    };
TORCHLET_SCALAR_TYPE(uint8_t, Byte)
TORCHLET_SCALAR_TYPE(int8_t, Char)
TORCHLET_SCALAR_TYPE(int16_t, Short)
TORCHLET_SCALAR_TYPE(int32_t, Int)
TORCHLET_SCALAR_TYPE(int64_t, Long)
TORCHLET_SCALAR_TYPE(uint16_t, UInt16)
TORCHLET_SCALAR_TYPE(uint32_t, UInt32)
TORCHLET_SCALAR_TYPE(uint64_t, UInt64)
TORCHLET_SCALAR_TYPE(float, Float)
TORCHLET_SCALAR_TYPE(double, Double)
TORCHLET_SCALAR_TYPE(bool, Bool)
#undef TORCHLET_SCALAR_TYPE

} // namespace detail

// An integer, float or boolean.
class Scalar final
{
public:
    Scalar() : Scalar(int64_t{0})
    {
    }
    template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0> Scalar(T value)
    {
        if constexpr (std::is_same_v<T, bool>) {
            kind_ = TORCHLET_KIND_BOOLEAN;
            integer_ = value;
        } else if constexpr (std::is_integral_v<T>) {
            kind_ = TORCHLET_KIND_INTEGER;
            integer_ = static_cast<int64_t>(value);
        } else {
            kind_ = TORCHLET_KIND_FLOAT;
            number_ = static_cast<double>(value);
        }
    }

    bool isBoolean() const
    {
        return kind_ == TORCHLET_KIND_BOOLEAN;
    }
    bool isIntegral(bool include_bool) const
    {
        return kind_ == TORCHLET_KIND_INTEGER || (include_bool && isBoolean());
    }
    bool isFloatingPoint() const
    {
        return kind_ == TORCHLET_KIND_FLOAT;
    }
    template <typename T> T to() const
    {
        return isFloatingPoint() ? static_cast<T>(number_) : static_cast<T>(integer_);
    }

private:
    torchlet_kind kind_ = TORCHLET_KIND_INTEGER;
    int64_t integer_ = 0;
    double number_ = 0;
};

// Element type, shape and data of a tensor. Copies sizes, dim order and strides. The caller owns
// the data, unless an owner is set.
class TensorImpl final
{
public:
    using SizesType = aten::SizesType;
    using DimOrderType = aten::DimOrderType;
    using StridesType = aten::StridesType;

    TensorImpl(ScalarType type, size_t dim, const SizesType *sizes, void *data = nullptr,
               const DimOrderType *dim_order = nullptr, const StridesType *strides = nullptr,
               TensorShapeDynamism dynamism = TensorShapeDynamism::STATIC)
        : dynamism_(dynamism), data_(data)
    {
        if (dim > TORCHLET_MAX_RANK)
            runtime::detail::stop("a tensor has more than 16 dimensions");
        info_ = {};
        info_.scalar_type = static_cast<torchlet_scalar_type>(type);
        info_.rank = dim;
        for (size_t i = 0; i < dim; i++) {
            info_.sizes[i] = sizes[i];
            info_.dim_order[i] = dim_order ? dim_order[i] : static_cast<uint8_t>(i);
        }
        // Derives the dim order from the strides.
        if (strides && !dim_order)
            std::stable_sort(info_.dim_order, info_.dim_order + dim,
                             [&](uint8_t a, uint8_t b) { return strides[a] > strides[b]; });
        set_strides();
        for (size_t i = 0; strides && i < dim; i++)
            if (info_.sizes[i] > 1 && strides_[i] != strides[i])
                runtime::detail::stop("the strides of the tensor are not dense");
        capacity_ = numel();
    }

    static TensorImpl of(const torchlet_tensor_info &info, const void *data,
                         std::shared_ptr<const void> owner)
    {
        TensorImpl tensor(static_cast<ScalarType>(info.scalar_type), info.rank, info.sizes,
                          const_cast<void *>(data), info.dim_order);
        tensor.owner_ = std::move(owner);
        return tensor;
    }

    ScalarType scalar_type() const
    {
        return static_cast<ScalarType>(info_.scalar_type);
    }
    ScalarType dtype() const
    {
        return scalar_type();
    }
    size_t dim() const
    {
        return info_.rank;
    }
    size_t numel() const
    {
        size_t count = 1;
        for (size_t i = 0; i < info_.rank; i++)
            count *= info_.sizes[i] > 0 ? static_cast<size_t>(info_.sizes[i]) : 0;
        return count;
    }
    size_t element_size() const
    {
        return elementSize(scalar_type());
    }
    size_t nbytes() const
    {
        return numel() * element_size();
    }
    ArrayRef<SizesType> sizes() const
    {
        return {info_.sizes, info_.rank};
    }
    ArrayRef<DimOrderType> dim_order() const
    {
        return {info_.dim_order, info_.rank};
    }
    ArrayRef<StridesType> strides() const
    {
        return {strides_, info_.rank};
    }
    TensorShapeDynamism shape_dynamism() const
    {
        return dynamism_;
    }
    const void *data() const
    {
        return data_;
    }
    void *mutable_data() const
    {
        return data_;
    }
    void set_data(void *data)
    {
        data_ = data;
        owner_ = nullptr;
    }
    void set_owner(std::shared_ptr<const void> owner)
    {
        owner_ = std::move(owner);
    }

    runtime::Error resize(ArrayRef<SizesType> sizes)
    {
        if (sizes.size() != info_.rank)
            return runtime::detail::fail(runtime::Error::NotSupported,
                                         "resizing cannot change the number of dimensions");
        if (sizes == this->sizes())
            return runtime::Error::Ok;
        if (dynamism_ == TensorShapeDynamism::STATIC)
            return runtime::detail::fail(runtime::Error::NotSupported,
                                         "a tensor with a static shape cannot be resized");
        size_t count = 1;
        for (SizesType size : sizes)
            count *= size > 0 ? static_cast<size_t>(size) : 0;
        if (count > capacity_)
            return runtime::detail::fail(
                runtime::Error::NotSupported,
                "a tensor was resized to more elements than it was made with");
        std::copy(sizes.begin(), sizes.end(), info_.sizes);
        set_strides();
        return runtime::Error::Ok;
    }

    torchlet_tensor view() const
    {
        return {info_, data_, nbytes()};
    }

private:
    void set_strides()
    {
        StridesType step = 1;
        for (size_t i = info_.rank; i-- > 0;) {
            size_t dim = info_.dim_order[i];
            strides_[dim] = step;
            step *= std::max<StridesType>(info_.sizes[dim], 1);
        }
    }

    torchlet_tensor_info info_;
    StridesType strides_[TORCHLET_MAX_RANK] = {};
    TensorShapeDynamism dynamism_;
    void *data_;
    size_t capacity_ = 0;
    std::shared_ptr<const void> owner_;
};

// A tensor; copies share the same data. Outputs of methods keep their data alive. A tensor over a
// `TensorImpl *` does not: the caller must.
class Tensor final
{
public:
    using SizesType = aten::SizesType;
    using DimOrderType = aten::DimOrderType;
    using StridesType = aten::StridesType;

    Tensor() = delete;
    explicit Tensor(TensorImpl *impl) : impl_(std::shared_ptr<void>(), impl)
    {
    }
    explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl))
    {
    }

    TensorImpl *unsafeGetTensorImpl() const
    {
        return impl_.get();
    }
    ScalarType scalar_type() const
    {
        return impl_->scalar_type();
    }
    ScalarType dtype() const
    {
        return impl_->scalar_type();
    }
    ssize_t dim() const
    {
        return static_cast<ssize_t>(impl_->dim());
    }
    ssize_t numel() const
    {
        return static_cast<ssize_t>(impl_->numel());
    }
    ssize_t size(ssize_t dim) const
    {
        return impl_->sizes()[static_cast<size_t>(dim < 0 ? dim + this->dim() : dim)];
    }
    size_t nbytes() const
    {
        return impl_->nbytes();
    }
    ssize_t element_size() const
    {
        return static_cast<ssize_t>(impl_->element_size());
    }
    ssize_t itemsize() const
    {
        return element_size();
    }
    ArrayRef<SizesType> sizes() const
    {
        return impl_->sizes();
    }
    ArrayRef<DimOrderType> dim_order() const
    {
        return impl_->dim_order();
    }
    ArrayRef<StridesType> strides() const
    {
        return impl_->strides();
    }
    TensorShapeDynamism shape_dynamism() const
    {
        return impl_->shape_dynamism();
    }
    const void *const_data_ptr() const
    {
        return impl_->data();
    }
    template <typename T> const T *const_data_ptr() const
    {
        return static_cast<const T *>(impl_->data());
    }
    void *mutable_data_ptr() const
    {
        return impl_->mutable_data();
    }
    template <typename T> T *mutable_data_ptr() const
    {
        return static_cast<T *>(impl_->mutable_data());
    }
    template <typename T> T *data_ptr() const
    {
        return static_cast<T *>(impl_->mutable_data());
    }

private:
    std::shared_ptr<TensorImpl> impl_;
};

} // namespace aten

namespace runtime
{

// The kind of a value.
enum class Tag : uint32_t {
    None = 0,
    Tensor = 1,
    String = 2,
    Double = 3,
    Int = 4,
    Bool = 5,
    ListInt = 8,
};

// An input or output of a method: a tensor, integer, float, boolean, string, or None.
struct EValue final {
    EValue() = default;
    EValue(aten::Tensor tensor) : tag(Tag::Tensor), tensor_(std::move(tensor))
    {
    }
    EValue(const std::shared_ptr<aten::Tensor> &tensor) : EValue(*tensor)
    {
    }
    EValue(int64_t value) : tag(Tag::Int), integer_(value)
    {
    }
    EValue(int value) : EValue(static_cast<int64_t>(value))
    {
    }
    EValue(double value) : tag(Tag::Double), number_(value)
    {
    }
    EValue(bool value) : tag(Tag::Bool), integer_(value)
    {
    }
    EValue(aten::Scalar value)
    {
        if (value.isBoolean())
            *this = EValue(value.to<bool>());
        else if (value.isFloatingPoint())
            *this = EValue(value.to<double>());
        else
            *this = EValue(value.to<int64_t>());
    }
    EValue(std::string value) : tag(Tag::String), text_(std::move(value))
    {
    }
    EValue(const char *value) : EValue(std::string(value))
    {
    }

    bool isNone() const
    {
        return tag == Tag::None;
    }
    bool isTensor() const
    {
        return tag == Tag::Tensor;
    }
    bool isInt() const
    {
        return tag == Tag::Int;
    }
    bool isDouble() const
    {
        return tag == Tag::Double;
    }
    bool isBool() const
    {
        return tag == Tag::Bool;
    }
    bool isString() const
    {
        return tag == Tag::String;
    }
    bool isScalar() const
    {
        return isInt() || isDouble() || isBool();
    }
    const aten::Tensor &toTensor() const
    {
        expect(Tag::Tensor);
        return *tensor_;
    }
    int64_t toInt() const
    {
        expect(Tag::Int);
        return integer_;
    }
    double toDouble() const
    {
        expect(Tag::Double);
        return number_;
    }
    bool toBool() const
    {
        expect(Tag::Bool);
        return integer_ != 0;
    }
    std::string_view toString() const
    {
        expect(Tag::String);
        return text_;
    }
    aten::Scalar toScalar() const
    {
        if (isDouble())
            return aten::Scalar(number_);
        if (isBool())
            return aten::Scalar(integer_ != 0);
        return aten::Scalar(toInt());
    }

    // The value for functions of torchlet.h. It points into this object.
    torchlet_value view() const
    {
        torchlet_value value = {};
        switch (tag) {
        case Tag::Tensor:
            value.kind = TORCHLET_KIND_TENSOR;
            value.data.tensor = tensor_->unsafeGetTensorImpl()->view();
            break;
        case Tag::Int:
            value.kind = TORCHLET_KIND_INTEGER;
            value.data.integer = integer_;
            break;
        case Tag::Double:
            value.kind = TORCHLET_KIND_FLOAT;
            value.data.number = number_;
            break;
        case Tag::Bool:
            value.kind = TORCHLET_KIND_BOOLEAN;
            value.data.boolean = integer_ != 0;
            break;
        case Tag::String:
            value.kind = TORCHLET_KIND_STRING;
            value.data.string = {text_.data(), text_.size()};
            break;
        default:
            value.kind = TORCHLET_KIND_NONE;
        }
        return value;
    }

    // Converts a value of torchlet.h. `owner`, if not null, keeps its tensor alive.
    static EValue of(const torchlet_value &value, std::shared_ptr<const void> owner)
    {
        switch (value.kind) {
        case TORCHLET_KIND_TENSOR: {
            const torchlet_tensor &tensor = value.data.tensor;
            return EValue(aten::Tensor(std::make_shared<aten::TensorImpl>(
                aten::TensorImpl::of(tensor.info, tensor.data, std::move(owner)))));
        }
        case TORCHLET_KIND_INTEGER:
            return EValue(value.data.integer);
        case TORCHLET_KIND_FLOAT:
            return EValue(value.data.number);
        case TORCHLET_KIND_BOOLEAN:
            return EValue(value.data.boolean != 0);
        case TORCHLET_KIND_STRING:
            return EValue(std::string(value.data.string.data, value.data.string.size));
        default:
            return EValue();
        }
    }

    Tag tag = Tag::None;

private:
    void expect(Tag expected) const
    {
        if (tag != expected)
            detail::stop("the value was accessed as a different kind");
    }

    int64_t integer_ = 0;
    double number_ = 0;
    std::string text_;
    std::optional<aten::Tensor> tensor_;
};

} // namespace runtime

using aten::Scalar;
using aten::ScalarType;
using aten::Tensor;
using aten::TensorImpl;
using aten::TensorShapeDynamism;
using runtime::EValue;
using runtime::Tag;

} // namespace torchlet

#endif
