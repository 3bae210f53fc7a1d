#include "model.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "error.h"

namespace neurenix::triton {

namespace {

constexpr const char* kFiles[] = {"model.engine", "model.plan"};
constexpr const char* kParameters[] = {"threads", "providers", "warm_up"};
// Those that a process in C++ has.
constexpr const char* kProviders[] = {"tensorrt", "cuda", "cpu"};

template <size_t kCount>
bool is_one_of(const std::string& name, const char* const (&names)[kCount]) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

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
    const std::string* given = config.parameter("threads");
    if (given == nullptr) return 0;
    try {
        size_t end = 0;
        const unsigned long threads = std::stoul(*given, &end);
        if (end == given->size() && threads >= 1 && threads <= 4096) return static_cast<uint32_t>(threads);
    } catch (const std::exception&) {
    }
    throw invalid("the parameter threads is '" + *given + "'; expected a number from 1 to 4096");
}

// Whether instances run before their first request, as a parameter says.
bool warm_up_of(const Config& config) {
    const std::string* given = config.parameter("warm_up");
    if (given == nullptr || *given == "on") return true;
    if (*given == "off") return false;
    throw invalid("the parameter warm_up is '" + *given + "'; expected on or off");
}

// Words with commas between, as the engine takes them apart.
std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    std::istringstream left(text);
    for (std::string word; std::getline(left, word, ',');) {
        word.erase(0, word.find_first_not_of(" \t"));
        word.erase(word.find_last_not_of(" \t") + 1);
        if (!word.empty()) words.push_back(word);
    }
    return words;
}

// An engine passes over what it has not while it has another, and on the processor it is asked for none of them: a name
// that is misspelt would go unseen.
void check_providers(const Config& config) {
    const std::string* given = config.parameter("providers");
    if (given == nullptr) return;
    const std::vector<std::string> words = words_of(*given);
    const auto is_known = [](const std::string& word) { return is_one_of(word, kProviders); };
    if (!words.empty() && std::all_of(words.begin(), words.end(), is_known)) return;
    throw invalid("the parameter providers is '" + *given +
                  "'; expected some of tensorrt, cuda, cpu, with commas between");
}

// The provider of instances on the processor.
const char* on_processor(const std::string* providers) {
    if (providers != nullptr && *providers != "cpu") {
        log(TRITONSERVER_LOG_WARN, "the parameter providers is '" + *providers +
                                       "': it changes nothing for instances of KIND_CPU, which run on the processor "
                                       "alone");
    }
    return "cpu";
}

void check_parameters(const Config& config) {
    for (const auto& [name, value] : config.parameters) {
        if (is_one_of(name, kParameters)) continue;
        log(TRITONSERVER_LOG_WARN,
            "the parameter '" + name + "' is none of threads, providers, warm_up: it changes nothing");
    }
    check_providers(config);
}

}  // namespace

Model::Model(TRITONBACKEND_Model* model) : model_(model), config_(read_config()) {
    check_parameters(config_);
    warms_up_ = warm_up_of(config_);
    path_ = find_file(folder_of(model));
    opened_ = engine(config_.device);
    if (config_.lacks_ports(*opened_)) complete_config();
    config_.check_against(*opened_);
}

void Model::complete_config() {
    bool may = false;
    check(TRITONBACKEND_ModelAutoCompleteConfig(model_, &may));
    if (!may) {
        throw invalid("the configuration lacks inputs or outputs, and this server puts none in: add `" +
                      config_.missing(*opened_) + "`, or start it without --disable-auto-complete-config");
    }
    const std::string json = config_.completed(*opened_);
    Message message;
    check(TRITONSERVER_MessageNewFromSerializedJson(&message.message, json.data(), json.size()));
    check(TRITONBACKEND_ModelSetConfig(model_, 1, message.message));
    config_ = read_config();
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
    const std::string* providers = config_.parameter("providers");
    if (device < 0) {
        options.providers = on_processor(providers);
    } else if (providers != nullptr) {
        options.providers = providers->c_str();
    }
    opened = std::make_shared<Engine>(path_, options);
    engines_[device] = opened;
    return opened;
}

}  // namespace neurenix::triton
