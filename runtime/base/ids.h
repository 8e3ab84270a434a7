// Strong integer types: a page index can't be passed where a block index is wanted. Compared,
// hashed and printed by value.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace troupe {

template <class Tag, class Int>
struct Id {
  Int value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Int v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
};

using RequestId =
    Id<struct RequestTag, std::uint64_t>;  // one request of one client, unique in a gateway's life
using SequenceId = Id<struct SequenceTag, std::uint64_t>;  // one sequence (a choice of a request)
using TicketId =
    Id<struct TicketTag, std::uint64_t>;  // one un-waited commit on one device, ascending
using StepId =
    Id<struct StepTag, std::uint64_t>;  // one pass of the batch, ascending within an epoch
using Epoch = Id<struct EpochTag, std::uint64_t>;  // one agreed membership

}  // namespace troupe

template <class Tag, class Int>
struct std::hash<troupe::Id<Tag, Int>> {
  std::size_t operator()(const troupe::Id<Tag, Int>& id) const noexcept {
    return std::hash<Int>{}(id.value);
  }
};
