// A violation for no_libm.sh to see.
#include <cmath>

namespace troupe::repo {

float planted(float x) {
  return std::exp(x);
}

}  // namespace troupe::repo
