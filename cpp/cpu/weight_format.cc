#include "cpu/weight_format.h"

#include "cpu/reorder.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> WeightFormat::packer(std::size_t threads) const {
    return reorder_between(source_, packed_, threads);
}

}  // namespace neurenix::cpu
