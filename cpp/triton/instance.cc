#include "instance.h"

#include <algorithm>
#include <cstring>

namespace neurenix::triton {

namespace {

// What a shape of extents takes, which Triton has checked.
uint64_t bytes_of(const std::vector<int64_t>& shape, nrx_dtype dtype) {
    uint64_t bytes = nrx_dtype_size(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
    return bytes;
}

int32_t device_of(TRITONBACKEND_ModelInstance* instance) {
    TRITONSERVER_InstanceGroupKind kind;
    int32_t device = 0;
    check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
    check(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
    return kind == TRITONSERVER_INSTANCEGROUPKIND_CPU ? -1 : device;
}

}  // namespace

Instance::Instance(TRITONBACKEND_ModelInstance* instance, Model& model)
    : instance_(instance), engine_(model.engine(device_of(instance))), most_rows_(model.config().max_batch) {
    staged_inputs_.resize(engine_->inputs().size());
    staged_outputs_.resize(engine_->outputs().size());
    rooms_.resize(engine_->outputs().size());
    direct_.resize(engine_->outputs().size());
    model.has_instances();
    check(nrx_context_create(engine_->handle(), &context_));
    if (model.warms_up()) warm_up();
}

void Instance::warm_up() {
    if (engine_->shapes_by_data()) return;
    for (uint32_t profile = 0; profile < engine_->profiles(); ++profile) {
        for (const nrx_bound bound : {NRX_MIN, NRX_MAX, NRX_OPT}) {
            try {
                for (uint32_t at = 0; at < engine_->inputs().size(); ++at) {
                    std::vector<int64_t> shape = engine_->profile_shape(profile, at, bound);
                    if (most_rows_ > 0) shape[0] = std::min(shape[0], most_rows_);
                    const nrx_dtype dtype = engine_->inputs()[at].dtype.ours;
                    const uint64_t bytes = bytes_of(shape, dtype);
                    char* data = staged_inputs_[at].reserve(bytes);
                    std::memset(data, 0, bytes);
                    check(
                        nrx_context_set_input(context_, at, dtype, shape.data(), shape.size(), data, bytes, NRX_HOST));
                }
                check(nrx_context_run(context_));
            } catch (const Failure& failure) {
                // Zeros may be no input for it: the first request finds out.
                log(TRITONSERVER_LOG_WARN,
                    std::string("a run on zeros before the first request failed: ") + failure.what());
            }
        }
    }
}

void Instance::execute(TRITONBACKEND_Request** requests, uint32_t count) {
    const uint64_t begun = now();
    std::vector<Job> jobs;
    jobs.reserve(count);
    for (uint32_t index = 0; index < count; ++index) jobs.emplace_back(requests[index], *engine_, most_rows_ > 0);
    for (const Group& group : groups(jobs)) run(group, begun);
    for (Job& job : jobs) {
        // The others were answered when they had run.
        if (job.failed()) job.finish(instance_, begun, begun, begun);
    }
}

std::vector<Instance::Group> Instance::groups(std::vector<Job>& jobs) const {
    std::vector<Group> found;
    int64_t rows = 0;
    for (Job& job : jobs) {
        if (job.failed()) continue;
        const bool joins = !found.empty() && most_rows_ > 0 && rows + job.rows() <= most_rows_ &&
                           found.back().front()->fits(job) && !engine_->shapes_by_data();
        if (!joins) {
            found.emplace_back();
            rows = 0;
        }
        found.back().push_back(&job);
        rows += job.rows();
    }
    return found;
}

void Instance::run(const Group& group, uint64_t begun) {
    uint64_t started = begun, done = begun;
    const std::optional<Failure> failure = failure_of([&] { compute(group, started, done); });
    if (failure) {
        settle(group, *failure, begun);
        return;
    }
    uint64_t rows = 0;
    for (Job* job : group) {
        rows += static_cast<uint64_t>(job->rows());
        if (!job->failed()) job->finish(instance_, begun, started, done);
    }
    log_failure(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, rows, begun, started, done, now()));
}

void Instance::settle(const Group& group, const Failure& failure, uint64_t begun) {
    // A run is cancelled when all of its clients have gone: there is nobody to run again for.
    if (group.size() == 1 || failure.code() == TRITONSERVER_ERROR_CANCELLED) {
        // `execute` answers them.
        for (Job* job : group) job->fail(failure);
        return;
    }
    // One of them may have brought what the engine refuses; the others are to get what they would have got without it.
    for (Job* job : group) run({job}, begun);
}

void Instance::compute(const Group& group, uint64_t& started, uint64_t& done) {
    int64_t rows = 0;
    for (const Job* job : group) rows += job->rows();
    const int64_t filled = most_rows_ > 0 ? padded(rows) : rows;
    bind_inputs(group, filled);
    if (!engine_->shapes_by_data()) check(nrx_context_prepare(context_));
    bind_outputs(group, filled);
    started = now();
    const auto everybody_left = [&] {
        return std::all_of(group.begin(), group.end(), [](const Job* job) { return job->is_cancelled(); });
    };
    watch_.during([&] { check(nrx_context_run(context_)); }, everybody_left, [&] { nrx_context_cancel(context_); });
    done = now();
    answer(group, filled);
}

int64_t Instance::padded(int64_t rows) const {
    int64_t least = 0;
    for (const Rows& profile : engine_->rows()) {
        if (profile.min <= rows && rows <= profile.max) return rows;
        if (rows < profile.min && (least == 0 || profile.min < least)) least = profile.min;
    }
    return least == 0 ? rows : least;
}

void Instance::bind_inputs(const Group& group, int64_t rows) {
    for (uint32_t at = 0; at < engine_->inputs().size(); ++at) {
        const nrx_dtype dtype = engine_->inputs()[at].dtype.ours;
        const Given& first = group.front()->inputs()[at];
        std::vector<int64_t> shape = first.shape;
        const bool whole = group.size() == 1 && (most_rows_ == 0 || shape[0] == rows);
        if (whole && first.in_place(nrx_dtype_size(dtype))) {
            const Piece& piece = first.pieces[0];
            check(nrx_context_set_input(context_, at, dtype, shape.data(), shape.size(), piece.data, piece.bytes,
                                        piece.device));
            continue;
        }
        if (!first.on_host()) {
            throw unsupported("input '" + engine_->inputs()[at].name +
                              "' lies on a GPU in several pieces, or is not as many rows as a profile takes");
        }
        if (most_rows_ > 0) shape[0] = rows;
        const uint64_t bytes = bytes_of(shape, dtype);
        char* const data = staged_inputs_[at].reserve(bytes);
        char* next = data;
        for (const Job* job : group) {
            const Given& given = job->inputs()[at];
            if (given.bytes > static_cast<uint64_t>(data + bytes - next)) {
                throw invalid("input '" + engine_->inputs()[at].name + "' has more bytes than its shape");
            }
            given.copy_to(next);
            next += given.bytes;
        }
        std::memset(next, 0, static_cast<size_t>(data + bytes - next));
        check(nrx_context_set_input(context_, at, dtype, shape.data(), shape.size(), data, bytes, NRX_HOST));
    }
}

nrx_array_info Instance::output(uint32_t index) const {
    nrx_array_info info = NRX_ARRAY_INFO_INIT;
    check(nrx_context_get_output(context_, index, &info));
    return info;
}

void Instance::bind_outputs(const Group& group, int64_t rows) {
    for (uint32_t at = 0; at < engine_->outputs().size(); ++at) {
        const Port& port = engine_->outputs()[at];
        rooms_[at].reset();
        direct_[at] = false;
        if (engine_->shapes_by_data()) {
            check(nrx_context_set_output(context_, at, nullptr, 0, NRX_HOST));
            continue;
        }
        const nrx_array_info info = output(at);
        Job& first = *group.front();
        const bool whole = group.size() == 1 && (most_rows_ == 0 || first.rows() == rows);
        if (whole && first.wants(port.name)) {
            const Piece room = first.output(port, {info.dims, info.dims + info.rank}, info.bytes);
            rooms_[at] = room;
            direct_[at] = reinterpret_cast<uintptr_t>(room.data) % nrx_dtype_size(info.dtype) == 0;
            if (direct_[at]) {
                check(nrx_context_set_output(context_, at, room.data, room.bytes, room.device));
                continue;
            }
        }
        char* const data = staged_outputs_[at].reserve(std::max<size_t>(info.bytes, 1));
        check(nrx_context_set_output(context_, at, data, info.bytes, NRX_HOST));
    }
}

void Instance::answer(const Group& group, int64_t rows) {
    for (uint32_t at = 0; at < engine_->outputs().size(); ++at) {
        if (direct_[at]) continue;
        const Port& port = engine_->outputs()[at];
        const nrx_array_info info = output(at);
        std::vector<int64_t> shape(info.dims, info.dims + info.rank);
        const char* next = static_cast<const char*>(info.data);
        for (Job* job : group) {
            uint64_t bytes = info.bytes;
            if (most_rows_ > 0) {
                bytes =
                    info.bytes / static_cast<uint64_t>(std::max<int64_t>(rows, 1)) * static_cast<uint64_t>(job->rows());
                shape[0] = job->rows();
            }
            if (!job->failed() && job->wants(port.name)) {
                const std::optional<Failure> failure = failure_of([&] { give(*job, at, shape, next, bytes); });
                if (failure) job->fail(*failure);
            }
            next += bytes;
        }
    }
}

void Instance::give(Job& job, uint32_t index, const std::vector<int64_t>& shape, const char* data, uint64_t bytes) {
    const Port& port = engine_->outputs()[index];
    const Piece piece = rooms_[index] ? *rooms_[index] : job.output(port, shape, bytes);
    if (piece.device != NRX_HOST) {
        throw unsupported("output '" + port.name + "' of a batch of several requests can't go to a GPU");
    }
    std::memcpy(piece.data, data, bytes);
}

}  // namespace neurenix::triton
