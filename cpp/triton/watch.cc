#include "watch.h"

#include <chrono>

namespace neurenix::triton {

Watch::~Watch() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void Watch::begin(std::function<bool()> is_over, std::function<void()> end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = std::move(is_over);
    end_ = std::move(end);
    // Under load the thread wakes by itself, and short runs wake nobody.
    if (sleeps_) changed_.notify_one();
}

void Watch::stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = nullptr;
}

void Watch::look() {
    constexpr std::chrono::milliseconds kEvery(10);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!closing_) {
        sleeps_ = !is_over_;
        if (sleeps_) {
            changed_.wait(lock, [&] { return closing_ || is_over_; });
            sleeps_ = false;
        }
        changed_.wait_for(lock, kEvery, [&] { return closing_; });
        // With the lock held, the run can't end and another one begin meanwhile.
        if (is_over_ && is_over_()) end_();
    }
}

}  // namespace neurenix::triton
