// Who includes whom. Each table row is a rule or an exception with its reason.
#include "tests/repo/layering.h"

#include "tests/repo/text.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace troupe::repo {
namespace {

bool is_header(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cuh");
}

// --- folders
// ---------------------------------------------------------------------------------------------------------

struct Layer {
  std::string_view folder;
  Prefixes may_include;  // its own folder always
};

// The first row that matches a source counts.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> kLayers = {
      {"tests/", {""}},
      {"bench/", {"actors/", "deploy/", "kernels/", "net/", "runtime/", "tests/support/"}},
      {"deploy/", {"actors/", "kernels/", "net/", "runtime/"}},
      {"actors/", {"net/", "runtime/"}},
      {"net/", {"runtime/base/", "runtime/serve/request.h", "runtime/serve/step.h", "schema/"}},
      {"kernels/cpu/", {"kernels/", "runtime/base/"}},
      {"kernels/cuda/", {"kernels/", "runtime/base/"}},
      {"kernels/emu/", {"kernels/", "runtime/base/"}},
      {"kernels/", {"runtime/base/"}},
      {"runtime/base/", {}},
      {"runtime/model/", {"runtime/base/"}},
      {"runtime/text/", {"runtime/base/"}},
      {"runtime/state/", {"runtime/base/"}},
      {"runtime/circuit/", {"kernels/", "runtime/base/", "runtime/model/"}},
      {"runtime/device/", {"kernels/", "runtime/base/"}},
      {"runtime/program/",
       {"kernels/",
        "runtime/base/",
        "runtime/circuit/",
        "runtime/device/",
        "runtime/model/",
        "runtime/state/"}},
      {"runtime/serve/",
       {"kernels/",
        "runtime/base/",
        "runtime/circuit/",
        "runtime/device/",
        "runtime/model/",
        "runtime/program/",
        "runtime/state/"}},
      {"schema/", {}},
  };
  return kLayers;
}

// A backend is chosen by the composition root or a device, never known to another backend or to
// what is above.
bool crosses_backends(std::string_view from, std::string_view to) {
  const bool private_to_cpu = under(to, "kernels/cpu/");
  const bool private_to_cuda = under(to, "kernels/cuda/");
  if (under(from, "kernels/cpu/")) {
    return private_to_cuda || under(to, "kernels/emu/");
  }
  if (under(from, "kernels/cuda/")) {
    return private_to_cpu || under(to, "kernels/emu/");
  }
  return under(from, "runtime/circuit/") && (private_to_cpu || private_to_cuda);
}

// --- third-party libraries
// -------------------------------------------------------------------------------------------

struct Library {
  std::string_view header;  // prefix of what an include names
  Prefixes allowed;
};

const std::vector<Library>& libraries() {
  static const Prefixes kCuda = {
      "kernels/cuda/", "kernels/emu/", "runtime/device/cuda_", "tests/kernels/cuda"};
  static const std::vector<Library> kLibraries = {
      {"tl/", {"runtime/base/error.h"}},
      {"caf/", {"actors/", "tests/actors/", "tests/world/"}},
      {"boost/", {"net/", "tests/net/"}},
      {"asio", {"net/", "tests/net/"}},
      {"openssl/", {"net/", "tests/net/"}},
      {"capnp/", {"net/", "schema/", "tests/net/"}},
      {"kj/", {"net/", "schema/", "tests/net/"}},
      {"nlohmann/", {"runtime/model/", "runtime/text/", "deploy/", "net/", "tests/"}},
      {"pcre2", {"runtime/text/"}},
      {"utf8proc", {"runtime/text/"}},
      {"minja/", {"runtime/text/"}},
      {"chat-template", {"runtime/text/"}},
      {"xxhash", {"runtime/program/panel_file.cc"}},
      {"CLI/", {"deploy/"}},
      {"prometheus/", {"deploy/"}},
      {"spdlog/", {"deploy/", "actors/"}},
      {"fmt/", {"deploy/", "actors/"}},
      {"gtest/", {"tests/"}},
      {"gmock/", {"tests/"}},
      {"benchmark/", {"bench/"}},
      {"cuda", kCuda},
      {"cublas", kCuda},
      {"cooperative_groups", kCuda},
      {"mma.h", kCuda},
      {"nccl", kCuda},
      {"nvrtc", kCuda},
  };
  return kLibraries;
}

const Library* library_of(std::string_view header) {
  for (const auto& library : libraries()) {
    if (under(header, library.header)) {
      return &library;
    }
  }
  return nullptr;
}

// Headers of ours that may show a third-party type.
const Prefixes& headers_with_libraries() {
  static const Prefixes kHeaders = {
      "runtime/base/error.h",  // Result<T> is tl::expected
      "runtime/model/json.h",  // private to runtime/model: type-checked reads of a JSON value
      "actors/",               // CAF's types are what this folder is made of
      "kernels/cuda/",         // device code
      "net/",  // private headers; its interface is link.h and http.h, checked by their users'
               // fences
      "tests/",
      "bench/",
  };
  return kHeaders;
}

bool is_system(std::string_view header) {
  return header.find('/') == std::string_view::npos ||
         under_any(header, {"sys/", "linux/", "netinet/", "arpa/", "net/"});
}

// a/../b is b.
std::string normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().generic_string();
}

}  // namespace

std::vector<Finding> check_layers(const Source& source) {
  std::vector<Finding> findings;
  const auto& table = layers();
  const auto layer = std::find_if(
      table.begin(), table.end(), [&](const Layer& row) { return under(source.path, row.folder); });
  if (layer == table.end()) {
    return {{source.path, 0, "no rule says what this folder may include"}};
  }
  for (const auto& include : includes_of(source)) {
    if (include.angle || library_of(include.path) != nullptr) {
      continue;
    }
    const bool ours =
        under(include.path, layer->folder) || under_any(include.path, layer->may_include);
    if (!ours || crosses_backends(source.path, include.path)) {
      findings.push_back({source.path,
                          include.line,
                          std::string(layer->folder) + " may not include " + include.path +
                              " (ARCHITECTURE.md, section 3)"});
    }
  }
  return findings;
}

std::vector<Finding> check_libraries(const Source& source) {
  std::vector<Finding> findings;
  for (const auto& include : includes_of(source)) {
    const Library* library = library_of(include.path);
    if (library == nullptr) {
      if (include.angle && !is_system(include.path)) {
        findings.push_back(
            {source.path, include.line, "<" + include.path + "> is of no library that we use"});
      }
      continue;
    }
    if (!under_any(source.path, library->allowed)) {
      findings.push_back({source.path,
                          include.line,
                          "<" + include.path + "> stays behind its fence: " +
                              std::string(library->allowed.front())});
    } else if (is_header(source.path) && !under_any(source.path, headers_with_libraries())) {
      findings.push_back(
          {source.path, include.line, "<" + include.path + "> in a header: include it in the .cc"});
    }
  }
  return findings;
}

std::vector<Finding> check_dead_files(const std::vector<Source>& sources,
                                      const std::vector<Source>& builds) {
  std::set<std::string> alive;
  for (const auto& source : sources) {
    for (const auto& include : includes_of(source)) {
      if (include.path != source.path) {
        alive.insert(include.path);
      }
    }
  }
  for (const auto& build : builds) {
    const std::string folder = build.path.substr(0, build.path.rfind('/') + 1);
    std::string word;
    for (const char c : build.text + "\n") {
      if (is_word(c) || c == '.' || c == '/' || c == '-' || c == '+') {
        word.push_back(c);
        continue;
      }
      alive.insert(normal(folder + word));
      alive.insert(
          normal(word.substr(word.starts_with('/') ? 1 : 0)));  // ${PROJECT_SOURCE_DIR}/...
      word.clear();
    }
  }
  std::vector<Finding> findings;
  for (const auto& source : sources) {
    if (alive.count(source.path) == 0) {
      findings.push_back({source.path, 0, "no CMakeLists.txt lists it and nothing includes it"});
    }
  }
  return findings;
}

}  // namespace troupe::repo
