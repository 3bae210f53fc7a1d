#pragma once
#include <cstddef>

namespace neurenix::cpu {

// Sets how many threads the parallel regions of the calling thread get, and returns how many it was.
std::size_t set_team_size(std::size_t threads) noexcept;

// Calls `team_part(context, part, parts)` once on each thread of the calling thread's team.
void each_member(std::size_t threads, std::size_t context) noexcept;

// Holds the calling thread's team at a size for as long as it lives.
class TeamSize {
  public:
    explicit TeamSize(std::size_t threads) noexcept : before_(set_team_size(threads)) {}
    ~TeamSize() { set_team_size(before_); }
    TeamSize(const TeamSize&) = delete;
    TeamSize& operator=(const TeamSize&) = delete;

  private:
    std::size_t before_;
};

}  // namespace neurenix::cpu
