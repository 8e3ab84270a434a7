// MetricText: figures in Prometheus' text format, one family after another. One scrape, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {

class MetricText final {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  struct Bucket {
    double upper_bound = 0;
    std::uint64_t count = 0;  // of this bucket alone
  };

  MetricText();
  ~MetricText();
  MetricText(const MetricText&) = delete;
  MetricText& operator=(const MetricText&) = delete;

  // A family begins with its first sample; samples of one family follow each other.
  void counter(const std::string& name, const std::string& help, double value, const Labels& = {});
  void gauge(const std::string& name, const std::string& help, double value, const Labels& = {});
  // `buckets` ascending; what lies above the last one counts only in `count`.
  void histogram(const std::string& name,
                 const std::string& help,
                 const std::vector<Bucket>& buckets,
                 std::uint64_t count,
                 double sum,
                 const Labels& = {});
  [[nodiscard]] std::string text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace troupe::deploy
