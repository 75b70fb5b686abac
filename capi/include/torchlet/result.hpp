// Errors, results and spans.

#ifndef TORCHLET_RESULT_HPP
#define TORCHLET_RESULT_HPP

#include "../torchlet.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torchlet
{
namespace runtime
{

// Error codes, with the values of ExecuTorch.
enum class Error : uint32_t {
    Ok = TORCHLET_OK,
    Internal = TORCHLET_INTERNAL,
    InvalidState = TORCHLET_INVALID_STATE,
    EndOfMethod = TORCHLET_END_OF_METHOD,
    NotSupported = TORCHLET_NOT_SUPPORTED,
    NotImplemented = TORCHLET_NOT_IMPLEMENTED,
    InvalidArgument = TORCHLET_INVALID_ARGUMENT,
    InvalidType = TORCHLET_INVALID_TYPE,
    OperatorMissing = TORCHLET_OPERATOR_MISSING,
    RegistrationExceedingMaxKernels = TORCHLET_TOO_MANY_KERNELS,
    RegistrationAlreadyRegistered = TORCHLET_ALREADY_REGISTERED,
    NotFound = TORCHLET_NOT_FOUND,
    MemoryAllocationFailed = TORCHLET_MEMORY_ALLOCATION_FAILED,
    AccessFailed = TORCHLET_ACCESS_FAILED,
    InvalidProgram = TORCHLET_INVALID_PROGRAM,
    InvalidExternalData = TORCHLET_INVALID_EXTERNAL_DATA,
    OutOfResources = TORCHLET_OUT_OF_RESOURCES,
    DelegateInvalidCompatibility = TORCHLET_DELEGATE_INCOMPATIBLE,
    DelegateMemoryAllocationFailed = TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED,
    DelegateInvalidHandle = TORCHLET_DELEGATE_INVALID_HANDLE,
};

// The name of an error.
inline const char *to_string(Error error)
{
    return torchlet_status_name(static_cast<torchlet_status>(error));
}

namespace detail
{

// The message of the last error on this thread.
struct Text {
    char data[256] = {};
    torchlet_error_message into{data, sizeof data};
};

inline Text &last_text()
{
#if defined(TORCHLET_NO_THREADS)
    static Text text;
#else
    static thread_local Text text;
#endif
    return text;
}

// The buffer that functions of torchlet.h write error messages to.
inline const torchlet_error_message *text()
{
    Text &last = last_text();
    last.into = {last.data, sizeof last.data};
    return &last.into;
}

inline Error error(torchlet_status status)
{
    return static_cast<Error>(status);
}

inline Error fail(Error error, const char *what)
{
    std::snprintf(last_text().data, sizeof last_text().data, "%s", what);
    return error;
}

// Aborts the process, like ExecuTorch's runtime, where an error cannot be returned.
[[noreturn]] inline void stop(const char *what)
{
    std::fprintf(stderr, "torchlet: %s\n", what);
    std::abort();
}

} // namespace detail

// The message of the last failed call on this thread. ExecuTorch has no such function; it logs.
inline const char *last_error_message()
{
    return detail::last_text().data;
}

// A value or an error.
template <typename T> class [[nodiscard]] Result final
{
public:
    using value_type = T;

    Result(Error error) : error_(error == Error::Ok ? Error::Internal : error)
    {
    }
    Result(const T &value) : value_(value)
    {
    }
    Result(T &&value) : value_(std::move(value))
    {
    }
    Result(Result &&) = default;
    Result &operator=(Result &&) = default;

    bool ok() const
    {
        return value_.has_value();
    }
    Error error() const
    {
        return error_;
    }
    T &get()
    {
        check();
        return *value_;
    }
    const T &get() const
    {
        check();
        return *value_;
    }
    T &operator*() &
    {
        return get();
    }
    const T &operator*() const &
    {
        return get();
    }
    T &&operator*() &&
    {
        return std::move(get());
    }
    T *operator->()
    {
        return &get();
    }
    const T *operator->() const
    {
        return &get();
    }

private:
    void check() const
    {
        if (!value_)
            detail::stop("the value of a Result was accessed, but it is an error");
    }

    std::optional<T> value_;
    Error error_ = Error::Ok;
};

// A non-owning view of mutable elements.
template <typename T> class Span final
{
public:
    constexpr Span() = default;
    constexpr Span(T *data, size_t size) : data_(data), size_(size)
    {
    }
    constexpr Span(T *begin, T *end) : data_(begin), size_(static_cast<size_t>(end - begin))
    {
    }
    template <size_t N> constexpr Span(T (&array)[N]) : data_(array), size_(N)
    {
    }

    constexpr T *data() const
    {
        return data_;
    }
    constexpr size_t size() const
    {
        return size_;
    }
    constexpr bool empty() const
    {
        return size_ == 0;
    }
    constexpr T *begin() const
    {
        return data_;
    }
    constexpr T *end() const
    {
        return data_ + size_;
    }
    constexpr T &operator[](size_t index) const
    {
        return data_[index];
    }

private:
    T *data_ = nullptr;
    size_t size_ = 0;
};

// A non-owning view of constant elements.
template <typename T> class ArrayRef final
{
public:
    using value_type = T;

    constexpr ArrayRef() = default;
    constexpr ArrayRef(const T *data, size_t size) : data_(data), size_(size)
    {
    }
    ArrayRef(const std::vector<T> &items) : data_(items.data()), size_(items.size())
    {
    }
    template <size_t N> constexpr ArrayRef(const T (&array)[N]) : data_(array), size_(N)
    {
    }

    constexpr const T *data() const
    {
        return data_;
    }
    constexpr size_t size() const
    {
        return size_;
    }
    constexpr bool empty() const
    {
        return size_ == 0;
    }
    constexpr const T *begin() const
    {
        return data_;
    }
    constexpr const T *end() const
    {
        return data_ + size_;
    }
    constexpr const T &operator[](size_t index) const
    {
        return data_[index];
    }
    bool equals(ArrayRef other) const
    {
        if (size_ != other.size_)
            return false;
        for (size_t i = 0; i < size_; i++)
            if (!(data_[i] == other.data_[i]))
                return false;
        return true;
    }
    std::vector<T> vec() const
    {
        return std::vector<T>(begin(), end());
    }

private:
    const T *data_ = nullptr;
    size_t size_ = 0;
};

template <typename T> bool operator==(ArrayRef<T> a, ArrayRef<T> b)
{
    return a.equals(b);
}
template <typename T> bool operator!=(ArrayRef<T> a, ArrayRef<T> b)
{
    return !a.equals(b);
}

} // namespace runtime

using runtime::Error;
using runtime::last_error_message;
using runtime::Result;
using runtime::Span;

} // namespace torchlet

#endif
