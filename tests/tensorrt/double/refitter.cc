// What replaces weights: it keeps the books of names and counts, and changes no number.
#include <algorithm>
#include <set>

#include "double.h"
#include "partial.h"

namespace tensorrt_double {
namespace {

class Refitter : public IRefitter, public PartialRefitter {
  public:
    explicit Refitter(ILogger& logger) : logger_(logger), names_(weight_names()) { mImpl = this; }

    bool setNamedWeights(const char* name, Weights weights) noexcept override {
        const bool known = std::find(names_.begin(), names_.end(), name) != names_.end();
        if (!known || weights.values == nullptr || weights.count == 0) {
            return refuse(logger_, std::string("the double has no weights ") + name);
        }
        given_.insert(name);
        return true;
    }

    // All weights belong together where the test says so.
    std::int32_t getMissingWeights(std::int32_t room, const char** found) noexcept override {
        std::int32_t count = 0;
        for (const std::string& name : names_) {
            if (setting("together") == 0 || given_.empty() || given_.count(name) != 0) continue;
            if (count < room) found[count] = name.c_str();
            ++count;
        }
        return count;
    }

    std::int32_t getAllWeights(std::int32_t room, const char** found) noexcept override {
        for (std::size_t at = 0; at < names_.size() && static_cast<std::int32_t>(at) < room; ++at) {
            found[at] = names_[at].c_str();
        }
        return static_cast<std::int32_t>(names_.size());
    }

    bool refitCudaEngine() noexcept override {
        if (take("refit")) return refuse(logger_, "the double does not replace weights");
        count("refit");
        return true;
    }

  private:
    ILogger& logger_;
    std::vector<std::string> names_;
    std::set<std::string> given_;
};

}  // namespace

IRefitter* make_refitter(ILogger& logger) { return new Refitter(logger); }

}  // namespace tensorrt_double
