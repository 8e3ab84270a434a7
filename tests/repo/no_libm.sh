#!/usr/bin/env bash
# The object code of these libraries calls no function of libm whose bits depend on the machine (decision D9). Sees what a
# scan of the sources can't: calls that the compiler or an inlined header brings in.
#
#   no_libm.sh LIBRARY...          prints each offending object and symbol
set -euo pipefail
names='exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
pow powi cbrt hypot erf erfc tgamma lgamma sincos'
# Plain, float, long double, and glibc's internal and vector forms.
pattern="^(_ZGV[a-zA-Z0-9]+_)?(__)?($(tr -s ' \n' '|' <<< "$names" | sed 's/|$//'))(f|l)?(_finite)?(@.*)?$"
(($#)) || { echo "no library given"; exit 1; }
found=0
for library in "$@"; do
  [[ -e $library ]] || { echo "no $library"; exit 1; }
  while read -r object symbol; do
    echo "$library: $object calls $symbol"
    found=1
  done < <(nm -A --undefined-only "$library" | awk '{ print $1, $NF }' | awk -v pattern="$pattern" '$2 ~ pattern')
done
exit "$found"
