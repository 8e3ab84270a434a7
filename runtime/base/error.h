// What can go wrong, as a value. Our code never throws: a function that can fail returns Result<T>,
// a bug ends the process through TROUPE_CHECK. An Error's message names the thing, the numbers and
// the remedy; its Kind says what the caller should do.
//
// ER-1: a Result is handled, returned or, in a test, .value()d; the compiler refuses to drop one.
// ER-2: add a Kind only if some caller would react differently to it.
#pragma once

#include <tl/expected.hpp>

#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

enum class Kind {
  kInvalid,       // the caller's input is wrong; retrying is useless
  kUnsupported,   // not built, or not on this hardware or model
  kOverloaded,    // a limit was reached; may work later
  kCancelled,     // nobody wants the answer any more
  kDisconnected,  // a peer, a device or a communicator is gone
  kInternal,      // a library failed in a way we do not understand
};

[[nodiscard]] std::string_view name(Kind kind);

struct Error {
  Kind kind = Kind::kInternal;
  std::string message;
  std::source_location where;
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

// error(Kind::kInvalid, "...") converts to any Result<T>.
[[nodiscard]] tl::unexpected<Error> error(
    Kind kind, std::string message, std::source_location where = std::source_location::current());

// Prints file, line, the condition and what the caller adds, then aborts. Never returns.
[[noreturn]] void check_failed(const char* condition,
                               std::string_view detail,
                               std::source_location where);

}  // namespace troupe

// A bug in Troupe, not bad input: the process ends. Arguments after the condition: a text that says
// what was expected.
#define TROUPE_CHECK(condition, ...)                                                   \
  do {                                                                                 \
    if (!(condition)) [[unlikely]] {                                                   \
      ::troupe::check_failed(                                                          \
          #condition, std::string_view{__VA_ARGS__}, std::source_location::current()); \
    }                                                                                  \
  } while (false)

// Returns the error of a Status to the caller.
#define TROUPE_TRY(expression)                                 \
  do {                                                         \
    if (auto troupe_status = (expression); !troupe_status) {   \
      return tl::unexpected(std::move(troupe_status).error()); \
    }                                                          \
  } while (false)

#define TROUPE_CONCAT_(a, b) a##b
#define TROUPE_CONCAT(a, b) TROUPE_CONCAT_(a, b)

// TROUPE_ASSIGN(const auto config, read_config(path)): declares `config`, or returns the error.
#define TROUPE_ASSIGN(declaration, expression)                                         \
  auto TROUPE_CONCAT(troupe_result_, __LINE__) = (expression);                         \
  if (!TROUPE_CONCAT(troupe_result_, __LINE__)) {                                      \
    return tl::unexpected(std::move(TROUPE_CONCAT(troupe_result_, __LINE__)).error()); \
  }                                                                                    \
  declaration = std::move(*TROUPE_CONCAT(troupe_result_, __LINE__))
