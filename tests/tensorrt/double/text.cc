// Names, JSON, and how a plan of the double is written.
#include <cstring>
#include <map>
#include <stdexcept>

#include "double.h"

namespace tensorrt_double {
namespace {

using nvinfer1::DataType;

struct Kind {
    const char* name;
    DataType dtype;
    std::size_t bytes;
};
constexpr Kind kKinds[]{
    {"FLOAT", DataType::kFLOAT, 4}, {"HALF", DataType::kHALF, 2}, {"INT8", DataType::kINT8, 1},
    {"INT32", DataType::kINT32, 4}, {"BOOL", DataType::kBOOL, 1}, {"UINT8", DataType::kUINT8, 1},
    {"FP8", DataType::kFP8, 1},     {"BF16", DataType::kBF16, 2}, {"INT64", DataType::kINT64, 8},
};

// Stands at the end of a plan.
constexpr char kMark[]{"TensorRT double"};

struct Writer {
    std::string bytes;

    void number(std::int64_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
    void text(const std::string& value) {
        number(static_cast<std::int64_t>(value.size()));
        bytes += value;
    }
    void numbers(const std::vector<std::int64_t>& values) {
        number(static_cast<std::int64_t>(values.size()));
        for (const auto value : values) number(value);
    }
};

struct Reader {
    const char* at;
    const char* end;

    std::int64_t number() {
        std::int64_t value = 0;
        if (end - at < static_cast<std::ptrdiff_t>(sizeof value)) throw std::out_of_range("a plan that ends early");
        std::memcpy(&value, at, sizeof value);
        at += sizeof value;
        return value;
    }
    std::string text() {
        const std::int64_t size = number();
        if (size < 0 || end - at < size) throw std::out_of_range("a plan that ends early");
        at += size;
        return {at - size, at};
    }
    std::vector<std::int64_t> numbers() {
        std::vector<std::int64_t> values;
        for (std::int64_t left = number(); left > 0; --left) values.push_back(number());
        return values;
    }
};

Plan parse(Reader& from) {
    Plan plan;
    for (std::int64_t ports = from.number(); ports > 0; --ports) {
        Port port{from.text(), from.text(), from.numbers(), from.number() != 0, {}};
        for (std::int64_t left = from.number(); left > 0; --left) port.profiles.push_back(from.numbers());
        plan.ports.push_back(port);
    }
    plan.refittable = from.number() != 0;
    plan.network = from.text();
    plan.weights = from.text();
    plan.layers = from.text();
    return plan;
}

}  // namespace

std::string write(const Plan& plan) {
    Writer to;
    to.number(static_cast<std::int64_t>(plan.ports.size()));
    for (const Port& port : plan.ports) {
        to.text(port.name);
        to.text(port.dtype);
        to.numbers(port.shape);
        to.number(port.input);
        to.number(static_cast<std::int64_t>(port.profiles.size()));
        for (const auto& shape : port.profiles) to.numbers(shape);
    }
    to.number(plan.refittable);
    to.text(plan.network);
    to.text(plan.weights);
    to.text(plan.layers);
    to.number(static_cast<std::int64_t>(to.bytes.size()));
    return to.bytes + kMark;
}

std::shared_ptr<const Plan> read(const void* bytes, std::size_t size) {
    const std::size_t mark = sizeof kMark - 1, tail = mark + sizeof(std::int64_t);
    const auto* all = static_cast<const char*>(bytes);
    if (size < tail || std::memcmp(all + size - mark, kMark, mark) != 0) return nullptr;
    Reader last{all + size - tail, all + size};
    const std::int64_t length = last.number();
    if (length < 0 || static_cast<std::size_t>(length) > size - tail) return nullptr;
    try {
        Reader from{all + size - tail - length, all + size - tail};
        return std::make_shared<const Plan>(parse(from));
    } catch (const std::out_of_range&) {
        return nullptr;
    }
}

std::size_t bytes_of(const std::string& dtype) {
    for (const Kind& kind : kKinds) {
        if (dtype == kind.name) return kind.bytes;
    }
    throw std::invalid_argument("the double has no " + dtype);
}

std::string name_of(DataType dtype) {
    for (const Kind& kind : kKinds) {
        if (dtype == kind.dtype) return kind.name;
    }
    throw std::invalid_argument("the double has no such dtype");
}

DataType dtype_of(const std::string& name) {
    for (const Kind& kind : kKinds) {
        if (name == kind.name) return kind.dtype;
    }
    throw std::invalid_argument("the double has no " + name);
}

nvinfer1::Dims dims_of(const std::vector<std::int64_t>& extents) {
    nvinfer1::Dims dims{};
    dims.nbDims = static_cast<std::int32_t>(extents.size());
    for (std::size_t axis = 0; axis < extents.size(); ++axis) dims.d[axis] = extents[axis];
    return dims;
}

std::vector<std::int64_t> extents_of(const nvinfer1::Dims& dims) {
    return {dims.d, dims.d + (dims.nbDims < 0 ? 0 : dims.nbDims)};
}

std::string quoted(const std::string& text) {
    std::string found = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') found += '\\';
        found += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
    }
    return found + '"';
}

}  // namespace tensorrt_double
