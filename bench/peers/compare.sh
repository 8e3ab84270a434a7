#!/usr/bin/env bash
# Troupe beside llama.cpp and Transformers on one random-weight checkpoint of one billion parameters, in turns.
#
#   compare.sh [--dir DIR] [--troupe PROGRAM] [--prepare] [--serving] [--publish] [OPTIONS of compare.py or serving.py]
#
# --serving: both servers under streaming clients, instead of the benchmark programs.
# --publish: afterwards the table goes into README.md here and the picture to docs/bench.svg.
# DIR (default build/peers) keeps what takes long, made once: a Python environment (about 6 GB), llama.cpp from the
# source distribution on PyPI, the checkpoint (2 GB), its FP8 twin, its GGUF files (4 GB) and what fp32 answers.
# --prepare stops there. Needs python3 with venv and pip, a C++ compiler, cmake and ninja. JOBS=N limits compilation.
set -euo pipefail
caller=$PWD
cd "$(dirname "$(readlink -f "$0")")/../.."
root=$PWD here=$PWD/bench/peers dir=$PWD/build/peers troupe=$PWD/build/release/deploy/troupe version=0.3.36
prepare='' serving='' publish=''
options=()
while (($#)); do
  case $1 in
    --dir) dir=$(cd "$caller" && readlink -m "$2"); shift 2 ;;
    --troupe) troupe=$(cd "$caller" && readlink -m "$2"); shift 2 ;;
    --prepare) prepare=yes; shift ;;
    --serving) serving=yes; shift ;;
    --publish) publish=yes; shift ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$here/compare.sh"; exit ;;
    *) options+=("$1"); shift ;;
  esac
done
say() { echo "compare: $*" >&2; }

python3 -c 'import ensurepip, venv' 2> /dev/null ||
  { say "python3 with venv is missing: apt-get install python3-venv"; exit 2; }
mkdir -p "$dir"
[[ $dir/roofline -nt bench/peers/roofline.cc ]] ||
  ${CXX:-g++} -std=c++20 -O3 -march=native -pthread bench/peers/roofline.cc -o "$dir/roofline"
cd "$dir"
python=$dir/venv/bin/python model=bench-1b bin=llama.cpp/build/bin
programs=(llama-bench llama-batched-bench llama-quantize llama-server)

if [[ ! -e venv/ready ]]; then
  say "making a Python environment (downloads about 3 GB)"
  python3 -m venv venv
  venv/bin/pip install -q numpy torch transformers sentencepiece gguf >&2
  touch venv/ready
fi
absent=''
for program in "${programs[@]}"; do
  [[ -x $bin/$program ]] || absent=yes
done
if [[ -n $absent ]]; then
  say "building llama.cpp"
  sdist=llama_cpp_python-$version
  [[ -e $sdist.tar.gz ]] || venv/bin/pip download -q --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version" >&2
  mkdir -p llama.cpp
  tar xzf "$sdist.tar.gz" -C llama.cpp --strip-components=3 "$sdist/vendor/llama.cpp"
  rm -f llama.cpp/.git  # names a repository that the distribution does not hold
  commit=$(tar xzOf "$sdist.tar.gz" "$sdist/CHANGELOG.md" | grep -om1 'llama.cpp@[0-9a-f]*' | cut -d@ -f2)
  # Without AMX, which it uses for quantised weights only: it crashes there (ggml-org/llama.cpp issue 20824).
  amx=''  # options that only compilers for x86-64 know
  [[ $(uname -m) != x86_64 ]] || amx='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16'
  cmake -S llama.cpp -B llama.cpp/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_C_FLAGS="$amx" -DCMAKE_CXX_FLAGS="$amx" -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_COMMIT="$commit" > llama.log
  nice cmake --build llama.cpp/build -j "${JOBS:-$(nproc)}" --target "${programs[@]}" >> llama.log
fi
if [[ ! -e $model/config.json ]]; then
  say "writing the checkpoint $model"
  "$python" -B "$here/make_checkpoint.py" $model --preset $model >&2
elif ! grep -q unused_ $model/tokenizer.json; then
  # Of a folder from before the tokenizer had a token for each id.
  "$python" -B "$here/make_checkpoint.py" $model --preset $model --only-tokenizer >&2
  rm -rf $model-fp8
fi
if [[ ! -e $model-fp8/config.json ]]; then
  say "writing its FP8 twin"
  "$python" -B "$here/make_fp8.py" $model $model-fp8 --head >&2
fi
if [[ ! -e $model-bf16.gguf ]]; then
  say "converting it"
  "$python" -B "$here/to_gguf.py" llama.cpp $model $model-part.gguf > convert.log 2>&1 ||
    { tail convert.log >&2; exit 1; }
  mv $model-part.gguf $model-bf16.gguf
fi
for kind in q8_0 q4_k_m; do
  if [[ ! -e $model-$kind.gguf ]]; then
    say "quantising it to $kind"
    $bin/llama-quantize $model-bf16.gguf $model-part.gguf "${kind^^}" > quantise.log 2>&1 ||
      { tail quantise.log >&2; exit 1; }
    mv $model-part.gguf $model-$kind.gguf
  fi
done
if [[ ! -e reference.json ]]; then
  say "asking Transformers what fp32 answers"
  "$python" -B "$here/reference.py" $model reference.json > reference.log 2>&1 || { tail reference.log >&2; exit 1; }
fi
if [[ -n $prepare ]]; then
  exit 0
fi
[[ -x $troupe ]] || { say "no $troupe: build it (./dev bench peers does) or name it with --troupe"; exit 2; }
if [[ -n $serving ]]; then
  exec "$python" -B "$here/serving.py" --troupe "$troupe" --llama-server $bin/llama-server \
    --checkpoint $model --gguf $model-bf16.gguf --report serving.json "${options[@]}"
fi
"$python" -B "$here/compare.py" --troupe "$troupe" --llama $bin --roofline ./roofline --model $model \
  --reference reference.json --report compare.json "${options[@]}"
if [[ -n $publish ]]; then
  "$python" -B "$here/publish.py" compare.json --picture "$root/docs/bench.svg" --readme "$here/README.md"
fi
