// SHA-256 (FIPS 180-4): the digests of plans, arithmetic and model files. Here and not from a
// library because the part of Troupe that a GPU machine builds needs nothing but tl::expected and a
// JSON parser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

class Sha256 final {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::string hex();  // ends the computation; call once

 private:
  void block(const std::uint8_t* data);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667U,
                                         0xbb67ae85U,
                                         0x3c6ef372U,
                                         0xa54ff53aU,
                                         0x510e527fU,
                                         0x9b05688cU,
                                         0x1f83d9abU,
                                         0x5be0cd19U};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t length_ = 0;
};

[[nodiscard]] std::string sha256_hex(std::string_view text);

}  // namespace troupe
