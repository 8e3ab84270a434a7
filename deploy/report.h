// What the commands print, as text: JSON objects on one line, and figures for people. Pure; any
// thread.
#pragma once

#include "deploy/session.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/program/stage.h"
#include "runtime/serve/request.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::deploy {

// What an answer was made on.
struct Setting {
  DeviceInfo device;
  StageInfo stage;
  double load_s = 0;
};

// `index`: the line of a requests file. With `logprobs` the answer's tokens have them.
[[nodiscard]] std::string answer_json(const std::vector<std::uint32_t>& prompt,
                                      const Answer& answer,
                                      bool logprobs,
                                      const Setting& setting,
                                      std::optional<std::size_t> index = std::nullopt);

// {"index":3,"error":{"kind":"invalid","message":"..."}}
[[nodiscard]] std::string failure_json(const Error& error, std::size_t index);

// Figures of one answer, and of the process, for people.
[[nodiscard]] std::string stats_text(const Answer& answer);
[[nodiscard]] std::string setting_text(const Setting& setting, std::uint64_t resident_bytes);

// One decimal, "-" for a rate over no time.
[[nodiscard]] std::string rate_text(double amount, double seconds);

// Tokens after the first over the time after the first; 0 when there is none.
[[nodiscard]] double decode_rate(const RequestStats& stats);

// Memory of this process that is in RAM; 0 when the system does not say.
[[nodiscard]] std::uint64_t resident_bytes();

}  // namespace troupe::deploy
