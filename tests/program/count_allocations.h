// How often operator new was called in this process. Only a binary that links count_allocations.cc
// counts.
#pragma once

#include <cstdint>

namespace troupe::test {

[[nodiscard]] std::uint64_t allocation_count();

}  // namespace troupe::test
