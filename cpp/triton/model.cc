#include "model.h"

#include <sys/stat.h>

#include "error.h"

namespace neurenix::triton {

namespace {

constexpr const char* kFiles[] = {"model.engine", "model.plan"};

bool is_file(const std::string& path) {
    struct stat found;
    return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

struct Message {
    TRITONSERVER_Message* message = nullptr;
    ~Message() {
        if (message != nullptr) log_failure(TRITONSERVER_MessageDelete(message));
    }
};

std::string folder_of(TRITONBACKEND_Model* model) {
    TRITONBACKEND_ArtifactType type;
    const char* location;
    uint64_t version;
    check(TRITONBACKEND_ModelRepository(model, &type, &location));
    check(TRITONBACKEND_ModelVersion(model, &version));
    if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM) throw unsupported("models come from folders alone");
    return std::string(location) + "/" + std::to_string(version);
}

// The number of threads that a parameter asks for.
uint32_t threads_of(const Config& config) {
    const auto found = config.parameters.find("threads");
    if (found == config.parameters.end()) return 0;
    try {
        size_t end = 0;
        const unsigned long threads = std::stoul(found->second, &end);
        if (end == found->second.size() && threads >= 1 && threads <= 4096) return static_cast<uint32_t>(threads);
    } catch (const std::exception&) {
    }
    throw invalid("the parameter threads is '" + found->second + "'; expected a number from 1 to 4096");
}

}  // namespace

Model::Model(TRITONBACKEND_Model* model) : model_(model), config_(read_config()) {
    for (const auto& [name, value] : config_.parameters) {
        if (name != "threads" && name != "providers" && name != "warm_up") {
            log(TRITONSERVER_LOG_WARN,
                "the parameter '" + name + "' is none of threads, providers, warm_up: it changes nothing");
        }
    }
    path_ = find_file(folder_of(model));
    bool complete = false;
    check(TRITONBACKEND_ModelAutoCompleteConfig(model, &complete));
    opened_ = engine(config_.device);
    if (complete && config_.is_empty()) {
        const std::string json = Config::complete(*opened_);
        Message message;
        check(TRITONSERVER_MessageNewFromSerializedJson(&message.message, json.data(), json.size()));
        check(TRITONBACKEND_ModelSetConfig(model, 1, message.message));
        config_ = read_config();
    }
    config_.check_against(*opened_);
}

Config Model::read_config() const {
    Message message;
    check(TRITONBACKEND_ModelConfig(model_, 1, &message.message));
    const char* text;
    size_t size;
    check(TRITONSERVER_MessageSerializeToJson(message.message, &text, &size));
    return Config::read(std::string(text, size));
}

std::string Model::find_file(const std::string& folder) const {
    if (!config_.file.empty()) {
        if (config_.file.find('/') != std::string::npos) {
            throw invalid("default_model_filename is '" + config_.file + "'; expected the name of a file in " + folder);
        }
        return folder + "/" + config_.file;
    }
    for (const char* name : kFiles) {
        if (is_file(folder + "/" + name)) return folder + "/" + name;
    }
    if (is_file(folder + "/model.onnx")) {
        throw unsupported(folder +
                          "/model.onnx: this backend opens engine files; make one with `neurenix export model.onnx "
                          "--output model.engine`");
    }
    throw Failure(TRITONSERVER_ERROR_NOT_FOUND, "there is neither model.engine nor model.plan in " + folder +
                                                    "; default_model_filename names another file");
}

std::shared_ptr<Engine> Model::engine(int32_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Engine> opened = engines_[device].lock();
    if (opened != nullptr) return opened;
    nrx_options options = NRX_OPTIONS_INIT;
    options.threads = threads_of(config_);
    options.device = device < 0 ? 0 : static_cast<uint32_t>(device);
    const auto providers = config_.parameters.find("providers");
    if (device < 0) {
        options.providers = "cpu";
    } else if (providers != config_.parameters.end()) {
        options.providers = providers->second.c_str();
    }
    opened = std::make_shared<Engine>(path_, options);
    engines_[device] = opened;
    return opened;
}

}  // namespace neurenix::triton
