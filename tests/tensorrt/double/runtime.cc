// What opens plans, or refuses them.
#include "double.h"
#include "partial.h"

namespace tensorrt_double {
namespace {

class Runtime : public IRuntime, public PartialRuntime {
  public:
    explicit Runtime(ILogger& logger) : logger_(logger) {
        mImpl = this;
        count("live runtime");
    }
    ~Runtime() noexcept override { count("dead runtime"); }

    std::int64_t getEngineHeaderSize() const noexcept override { return 64; }

    EngineValidity getEngineValidity(const void* plan, std::int64_t size,
                                     std::uint64_t* diagnostics) const noexcept override {
        count("validity");
        *diagnostics = 0;
        // The diagnostics to give: 1 is another version, 2 another GPU.
        if (setting("validity") != 0) *diagnostics = static_cast<std::uint64_t>(setting("validity"));
        const bool ours = read(plan, static_cast<std::size_t>(size)) != nullptr;
        if (!ours) *diagnostics |= static_cast<std::uint64_t>(EngineInvalidityDiagnostics::kMALFORMED_ENGINE);
        return *diagnostics == 0 ? EngineValidity::kVALID : EngineValidity::kINVALID;
    }

    ICudaEngine* deserializeCudaEngine(const void* plan, std::size_t size) noexcept override {
        count("deserialize");
        auto found = take("deserialize") ? nullptr : read(plan, size);
        if (found) return make_engine(std::move(found), logger_);
        refuse(logger_, "the double does not take this plan");
        return nullptr;
    }

    ILogger* getLogger() const noexcept override { return &logger_; }
    bool getEngineHostCodeAllowed() const noexcept override { return false; }

  private:
    ILogger& logger_;
};

}  // namespace

IRuntime* make_runtime(ILogger& logger) { return new Runtime(logger); }

}  // namespace tensorrt_double
