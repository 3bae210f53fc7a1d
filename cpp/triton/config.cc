#include "config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "error.h"

namespace neurenix::triton {

namespace {

using Json = nlohmann::json;

// Numbers of 64 bits are written as texts by some versions of protobuf.
int64_t number(const Json& value) {
    return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<int64_t>();
}

std::vector<int64_t> numbers(const Json& values) {
    std::vector<int64_t> found;
    for (const Json& value : values) found.push_back(number(value));
    return found;
}

std::vector<Config::Tensor> tensors(const Json& config, const char* key) {
    std::vector<Config::Tensor> found;
    for (const Json& one : config.value(key, Json::array())) {
        // Triton reshapes what clients send before the backend sees it.
        const bool reshaped = one.contains("reshape") && one["reshape"].is_object();
        const Json dims = reshaped ? one["reshape"].value("shape", Json::array()) : one.value("dims", Json::array());
        found.push_back({one.value("name", ""), one.value("data_type", ""), numbers(dims)});
    }
    return found;
}

std::string text(const std::vector<int64_t>& dims) {
    std::string made;
    for (const int64_t dim : dims) made += (made.empty() ? "" : ", ") + std::to_string(dim);
    return "[" + made + "]";
}

// Extents without the rows of a batch.
std::vector<int64_t> row(const Port& port, bool batched) {
    return {port.dims.begin() + (batched ? 1 : 0), port.dims.end()};
}

Json described(const std::vector<Port>& ports, bool batched) {
    Json found = Json::array();
    for (const Port& port : ports) {
        Json one = {{"name", port.name}, {"data_type", port.dtype.name}};
        const std::vector<int64_t> dims = row(port, batched);
        // Triton wants a dimension, so its side has one of 1; only in a batch it can take that away itself.
        one["dims"] = dims.empty() ? std::vector<int64_t>{1} : dims;
        if (dims.empty() && batched) one["reshape"] = {{"shape", Json::array()}};
        found.push_back(one);
    }
    return found;
}

void check_side(const char* side, const std::vector<Config::Tensor>& said, const std::vector<Port>& ports, bool batched,
                bool all) {
    std::string names;
    for (const Port& port : ports) names += (names.empty() ? "" : ", ") + port.name;
    std::set<std::string> seen;
    for (const Config::Tensor& tensor : said) {
        const auto port =
            std::find_if(ports.begin(), ports.end(), [&](const Port& other) { return other.name == tensor.name; });
        if (port == ports.end()) {
            throw invalid(std::string("the configuration has an ") + side + " '" + tensor.name +
                          "' that the engine has not; it has: " + names);
        }
        seen.insert(tensor.name);
        const std::string where = std::string(side) + " '" + tensor.name + "'";
        if (tensor.type != port->dtype.name) {
            throw invalid(where + ": the configuration says " + tensor.type + ", the engine has " + port->dtype.name);
        }
        std::vector<int64_t> dims = row(*port, batched);
        if (dims.empty() && !batched) dims = {1};
        const auto fits = [](int64_t ours, int64_t theirs) { return ours == theirs || ours == -1 || theirs == -1; };
        if (dims.size() != tensor.dims.size() || !std::equal(dims.begin(), dims.end(), tensor.dims.begin(), fits)) {
            throw invalid(where + ": the configuration says dims " + text(tensor.dims) + ", the engine has " +
                          text(dims) + (batched ? " behind the rows of a batch" : ""));
        }
    }
    for (const Port& port : ports) {
        if (all && seen.count(port.name) == 0) {
            throw invalid(std::string("the configuration lacks the ") + side + " '" + port.name +
                          "' of the engine: add it, or leave out every " + side + ", so that all of them are put in");
        }
    }
}

int64_t most_rows(const Engine& engine) {
    int64_t most = 0;
    for (const Rows& rows : engine.rows()) most = std::max(most, rows.max);
    return most;
}

// Settings that an engine can't follow, and what to do instead. Triton would take them, and the model would not do
// what they say.
void check_settings(const Json& config) {
    if (config.contains("sequence_batching")) {
        throw unsupported(
            "sequence_batching is not supported: an engine keeps no state between requests; use dynamic_batching, and "
            "pass the state as an input and an output");
    }
    if (config.value("model_transaction_policy", Json::object()).value("decoupled", false)) {
        throw unsupported(
            "model_transaction_policy { decoupled: true } is not supported: an engine gives one answer to a request; "
            "leave it out");
    }
    for (const char* key : {"batch_input", "batch_output"}) {
        if (config.value(key, Json::array()).empty()) continue;
        throw unsupported(std::string(key) +
                          " is not supported: a batch has the rows of its requests and nothing else; leave it out, and "
                          "pass what the model needs of it as an input");
    }
    const std::pair<const char*, const char*> of_inputs[] = {
        {"optional",
         "an engine needs every input with each request; leave it out, and export the model without the input"},
        {"allow_ragged_batch",
         "requests of one batch differ in their rows alone, and others wait for one of their own; leave it out"},
    };
    for (const Json& input : config.value("input", Json::array())) {
        for (const auto& [key, reason] : of_inputs) {
            if (!input.value(key, false)) continue;
            throw unsupported("input '" + input.value("name", "") + "': " + key + ": true is not supported: " + reason);
        }
    }
}

// Ports as config.pbtxt has them, each behind a space.
std::string written(const char* side, const Json& ports) {
    std::string made;
    for (const Json& port : ports) {
        made += " " + std::string(side) + " { name: \"" + port["name"].get<std::string>() +
                "\" data_type: " + port["data_type"].get<std::string>() + " dims: " + text(numbers(port["dims"])) +
                (port.contains("reshape") ? " reshape { shape: [] }" : "") + " }";
    }
    return made;
}

// More rows than this are what no profile says: a model without a range for its batch.
constexpr int64_t kMostRows = 1 << 16;
// What such a model is batched by.
constexpr int64_t kDefaultRows = 16;

}  // namespace

Config Config::read(const std::string& json) {
    const Json found = Json::parse(json, nullptr, false);
    if (!found.is_object()) throw invalid("the model's configuration is not JSON");
    check_settings(found);
    try {
        Config config;
        config.source = json;
        config.max_batch = number(found.value("max_batch_size", Json(0)));
        config.inputs = tensors(found, "input");
        config.outputs = tensors(found, "output");
        config.file = found.value("default_model_filename", "");
        const Json groups = found.value("instance_group", Json::array());
        if (!groups.empty() && groups[0].value("kind", "") == "KIND_GPU") {
            const std::vector<int64_t> devices = numbers(groups[0].value("gpus", Json::array()));
            config.device = devices.empty() ? 0 : static_cast<int32_t>(devices[0]);
        }
        const Json parameters = found.value("parameters", Json::object());
        for (const auto& [name, value] : parameters.items()) {
            config.parameters[name] = value.value("string_value", "");
        }
        return config;
    } catch (const std::exception& error) {
        throw invalid(std::string("the model's configuration can't be read: ") + error.what());
    }
}

const std::string* Config::parameter(const std::string& name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? nullptr : &found->second;
}

bool Config::lacks_ports(const Engine& engine) const {
    return (inputs.empty() && !engine.inputs().empty()) || (outputs.empty() && !engine.outputs().empty());
}

int64_t Config::rows_for(const Engine& engine) const {
    // Whoever wrote dims and no batch wrote them with their rows.
    if (max_batch > 0 || !inputs.empty() || !outputs.empty()) return max_batch;
    const int64_t most = most_rows(engine);
    if (most <= 1) return 0;
    return most > kMostRows ? kDefaultRows : most;
}

std::string Config::completed(const Engine& engine) const {
    check_batch(engine);
    const int64_t rows = rows_for(engine);
    const Json given = Json::parse(source);
    Json config = {{"max_batch_size", rows},
                   {"input", inputs.empty() ? described(engine.inputs(), rows > 0) : given["input"]},
                   {"output", outputs.empty() ? described(engine.outputs(), rows > 0) : given["output"]}};
    if (rows > 1) {
        // Triton takes it where the configuration says nothing of it.
        std::set<int64_t> preferred;
        for (const Rows& profile : engine.rows()) preferred.insert(std::min(profile.max, rows));
        config["dynamic_batching"] = {{"preferred_batch_size", preferred}};
    }
    return config.dump();
}

std::string Config::missing(const Engine& engine) const {
    check_batch(engine);
    const int64_t rows = rows_for(engine);
    std::string made = max_batch == rows ? "" : " max_batch_size: " + std::to_string(rows);
    if (inputs.empty()) made += written("input", described(engine.inputs(), rows > 0));
    if (outputs.empty()) made += written("output", described(engine.outputs(), rows > 0));
    return made.substr(1);
}

void Config::check_batch(const Engine& engine) const {
    if (max_batch == 0) return;
    if (engine.rows().empty()) {
        throw invalid(
            "max_batch_size is " + std::to_string(max_batch) +
            ", but the first dimension of the engine's inputs and outputs is not one dynamic dimension: set it to "
            "0, or export the model with a dynamic batch");
    }
    if (max_batch > most_rows(engine)) {
        throw invalid("max_batch_size is " + std::to_string(max_batch) + ", and the profiles of the engine end at " +
                      std::to_string(most_rows(engine)) + ": lower it, or export the model with --max-batch " +
                      std::to_string(max_batch));
    }
}

void Config::check_against(const Engine& engine) const {
    check_batch(engine);
    check_side("input", inputs, engine.inputs(), max_batch > 0, true);
    check_side("output", outputs, engine.outputs(), max_batch > 0, false);
}

}  // namespace neurenix::triton
