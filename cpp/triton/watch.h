// Ends a run when everybody who waits for it has gone.
#ifndef NEURENIX_TRITON_WATCH_H_
#define NEURENIX_TRITON_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace neurenix::triton {

// A thread that looks every 10 ms while something runs, and sleeps while nothing does.
class Watch {
  public:
    Watch() : thread_([this] { look(); }) {}
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // While `work` runs, `is_over` is asked now and then; once it says so, `end` is called.
    template <typename Work>
    void during(const Work& work, std::function<bool()> is_over, std::function<void()> end) {
        begin(std::move(is_over), std::move(end));
        const Stop stop{this};
        work();
    }

  private:
    struct Stop {
        Watch* watch;
        ~Stop() { watch->stop(); }
    };

    void begin(std::function<bool()> is_over, std::function<void()> end);
    void stop();
    void look();

    std::mutex mutex_;
    std::condition_variable changed_;
    // Empty while nothing runs.
    std::function<bool()> is_over_;
    std::function<void()> end_;
    bool sleeps_ = false, closing_ = false;
    std::thread thread_;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_WATCH_H_
