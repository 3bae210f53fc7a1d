#include "batch.h"

#include <chrono>
#include <cstring>

namespace neurenix::triton {

namespace {

int32_t device_of(TRITONSERVER_MemoryType type, int64_t id) {
    return type == TRITONSERVER_MEMORY_GPU ? static_cast<int32_t>(id) : NRX_HOST;
}

std::string text(const std::vector<int64_t>& dims) {
    std::string made;
    for (const int64_t dim : dims) made += (made.empty() ? "" : ", ") + std::to_string(dim);
    return "[" + made + "]";
}

}  // namespace

uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

char* Staging::reserve(size_t bytes) {
    constexpr size_t kAlignment = 64;
    if (bytes > bytes_) {
        memory_.reset();
        bytes_ = 0;
        const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        memory_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, rounded)));
        if (memory_ == nullptr) {
            throw Failure(TRITONSERVER_ERROR_UNAVAILABLE,
                          "there are no " + std::to_string(bytes) + " bytes for a batch");
        }
        bytes_ = rounded;
    }
    return memory_.get();
}

bool Given::in_place(size_t alignment) const {
    return pieces.size() == 1 && reinterpret_cast<uintptr_t>(pieces[0].data) % alignment == 0;
}

bool Given::on_host() const {
    for (const Piece& piece : pieces) {
        if (piece.device != NRX_HOST) return false;
    }
    return true;
}

void Given::copy_to(char* to) const {
    for (const Piece& piece : pieces) {
        std::memcpy(to, piece.data, piece.bytes);
        to += piece.bytes;
    }
}

Job::Job(TRITONBACKEND_Request* request, const Engine& engine, bool batched) : request_(request) {
    failure_ = failure_of([&] {
        check(TRITONBACKEND_ResponseNew(&response_, request_));
        if (is_cancelled()) throw Failure(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled before it ran");
        read(engine, batched);
    });
}

bool Job::is_cancelled() const {
    bool cancelled = false;
    TRITONSERVER_Error* error = TRITONBACKEND_RequestIsCancelled(request_, &cancelled);
    if (error != nullptr) TRITONSERVER_ErrorDelete(error);
    return cancelled;
}

void Job::read(const Engine& engine, bool batched) {
    for (const Port& port : engine.inputs()) {
        inputs_.push_back(read_input(port));
        if (!batched) continue;
        const std::vector<int64_t>& shape = inputs_.back().shape;
        if (shape.empty() || (inputs_.size() > 1 && shape[0] != rows_)) {
            throw invalid("input '" + port.name + "' has shape " + text(shape) +
                          "; expected as many rows as the others");
        }
        rows_ = shape[0];
    }
    uint32_t count = 0;
    check(TRITONBACKEND_RequestOutputCount(request_, &count));
    for (uint32_t index = 0; index < count; ++index) {
        const char* name = nullptr;
        check(TRITONBACKEND_RequestOutputName(request_, index, &name));
        outputs_.insert(name);
    }
}

Given Job::read_input(const Port& port) const {
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInput(request_, port.name.c_str(), &input));
    TRITONSERVER_DataType dtype;
    const int64_t* shape;
    uint32_t rank, buffers;
    Given given;
    check(TRITONBACKEND_InputProperties(input, nullptr, &dtype, &shape, &rank, &given.bytes, &buffers));
    if (dtype != port.dtype.theirs) {
        throw invalid("input '" + port.name + "' is of " + TRITONSERVER_DataTypeString(dtype) + "; expected " +
                      TRITONSERVER_DataTypeString(port.dtype.theirs));
    }
    // A scalar has one dimension of 1 on Triton's side.
    if (!port.dims.empty() || rank != 1 || shape[0] != 1) given.shape.assign(shape, shape + rank);
    uint64_t bytes = 0;
    for (uint32_t index = 0; index < buffers; ++index) {
        const void* data = nullptr;
        TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
        int64_t id = 0;
        Piece piece;
        check(TRITONBACKEND_InputBuffer(input, index, &data, &piece.bytes, &type, &id));
        piece.data = const_cast<void*>(data);
        piece.device = device_of(type, id);
        bytes += piece.bytes;
        given.pieces.push_back(piece);
    }
    if (bytes != given.bytes) {
        throw invalid("input '" + port.name + "' has " + std::to_string(bytes) + " bytes; expected " +
                      std::to_string(given.bytes));
    }
    return given;
}

bool Job::fits(const Job& other) const {
    for (size_t at = 0; at < inputs_.size(); ++at) {
        const Given &mine = inputs_[at], &theirs = other.inputs_[at];
        const bool same = mine.shape.size() == theirs.shape.size() &&
                          std::equal(mine.shape.begin() + 1, mine.shape.end(), theirs.shape.begin() + 1);
        // What lies on a GPU is read where it is, so it goes alone.
        if (!same || !mine.on_host() || !theirs.on_host()) return false;
    }
    return true;
}

Piece Job::output(const Port& port, const std::vector<int64_t>& shape, uint64_t bytes) {
    TRITONBACKEND_Output* output = nullptr;
    const std::vector<int64_t> theirs = shape.empty() ? std::vector<int64_t>{1} : shape;
    check(TRITONBACKEND_ResponseOutput(response_, &output, port.name.c_str(), port.dtype.theirs, theirs.data(),
                                       static_cast<uint32_t>(theirs.size())));
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    Piece piece;
    piece.bytes = bytes;
    check(TRITONBACKEND_OutputBuffer(output, &piece.data, bytes, &type, &id));
    piece.device = device_of(type, id);
    return piece;
}

void Job::finish(TRITONBACKEND_ModelInstance* instance, uint64_t begun, uint64_t started, uint64_t done) {
    if (response_ != nullptr) {
        TRITONSERVER_Error* error = failure_ ? failure_->error() : nullptr;
        log_failure(TRITONBACKEND_ResponseSend(response_, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
        if (error != nullptr) TRITONSERVER_ErrorDelete(error);
    } else {
        log(TRITONSERVER_LOG_ERROR, std::string("a request has no response: ") + failure_->what());
    }
    log_failure(
        TRITONBACKEND_ModelInstanceReportStatistics(instance, request_, !failed(), begun, started, done, now()));
    log_failure(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace neurenix::triton
