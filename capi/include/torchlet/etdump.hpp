// Recordings of a module's execution (ETDump), for ExecuTorch's Inspector.

#ifndef TORCHLET_ETDUMP_HPP
#define TORCHLET_ETDUMP_HPP

#include "result.hpp"

#include <cstdlib>
#include <memory>

namespace torchlet
{
namespace runtime
{

// Receives the events of a module. For tracers of methods, see `torchlet_tracer`.
class EventTracer
{
public:
    EventTracer(const EventTracer &) = delete;
    EventTracer &operator=(const EventTracer &) = delete;
    virtual ~EventTracer() = default;

    // The recorder to open a module with.
    torchlet_recorder *recorder() const
    {
        return recorder_.get();
    }

protected:
    explicit EventTracer(size_t value_bytes)
    {
        torchlet_recorder *made = nullptr;
        if (torchlet_recorder_create(value_bytes, &made, detail::text()) == TORCHLET_OK)
            recorder_.reset(made);
    }

private:
    struct Free {
        void operator()(torchlet_recorder *recorder) const
        {
            torchlet_recorder_free(recorder);
        }
    };
    std::unique_ptr<torchlet_recorder, Free> recorder_;
};

} // namespace runtime

namespace etdump
{

// A buffer to release with `free`; null if it is empty.
struct ETDumpResult {
    void *buf;
    size_t size;
};

// Records events, and up to `value_bytes` bytes of intermediate values.
class ETDumpGen final : public runtime::EventTracer
{
public:
    explicit ETDumpGen(size_t value_bytes = 0) : EventTracer(value_bytes)
    {
    }

    ETDumpResult get_etdump_data() const
    {
        return copy(torchlet_recorder_etdump);
    }
    // The intermediate values: the debug buffer of the ETDump.
    ETDumpResult get_debug_data() const
    {
        return copy(torchlet_recorder_values);
    }
    void reset()
    {
        torchlet_recorder_clear(recorder());
    }

private:
    template <typename Function> ETDumpResult copy(Function function) const
    {
        ETDumpResult result{nullptr, 0};
        if (function(recorder(), nullptr, 0, &result.size, runtime::detail::text()) ||
            result.size == 0)
            return {nullptr, 0};
        result.buf = std::malloc(result.size);
        // Fails if the recording grew since, because the module runs on another thread.
        auto text = runtime::detail::text();
        if (result.buf &&
            function(recorder(), result.buf, result.size, &result.size, text) == TORCHLET_OK)
            return result;
        std::free(result.buf);
        return {nullptr, 0};
    }
};

} // namespace etdump
} // namespace torchlet

#endif
