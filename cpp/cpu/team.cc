#include "cpu/team.h"

#include <omp.h>

#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

std::size_t set_team_size(std::size_t threads) noexcept {
    const int before = omp_get_max_threads();
    omp_set_num_threads(static_cast<int>(threads));
    return static_cast<std::size_t>(before);
}

void each_member(std::size_t threads, std::size_t context) noexcept {
#pragma omp parallel num_threads(static_cast<int>(threads))
    team_part(context, static_cast<std::size_t>(omp_get_thread_num()), static_cast<std::size_t>(omp_get_num_threads()));
}

}  // namespace neurenix::cpu
