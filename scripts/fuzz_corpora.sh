#!/usr/bin/env bash
# fuzz_corpora.sh DIR: collects the seeds of every fuzzer of tests/fuzz, from tests/golden and tests/fuzz/corpus, as the
# files of DIR/NAME, and the words in quotation marks of those that are text as the dictionary DIR/NAME.dict.
set -euo pipefail
if [ $# -ne 1 ]; then sed -n '2,3s/^# //p' "$0"; exit 2; fi
tests=$(cd "$(dirname "$0")/../tests" && pwd)
mkdir -p "$1"

collect() { # NAME FOLDER PATTERN...   files of at most 64 KiB, named by their contents
  local name=$1 folder=$tests/golden/$2 pattern
  shift 2
  mkdir -p "$target/$name"
  {
    for pattern in "$@"; do find "$folder" -type f -size -65k -name "$pattern"; done
    if [ -d "$tests/fuzz/corpus/$name" ]; then find "$tests/fuzz/corpus/$name" -type f; fi
  } | while read -r file; do cp "$file" "$target/$name/$(sha1sum <"$file" | cut -c1-16)"; done
}

words() { # NAME PATTERN
  grep -ohaE "$2" "$target/$1"/* | tr -d "\"'" | sort -u | sed 's/.*/"&"/' >"$target/$1.dict"
}

target=$(cd "$1" && pwd)
collect safetensors checkpoint/safetensors '*.safetensors'
collect pickle checkpoint/torch_save '*.pickle'
collect torch_file checkpoint/torch_save '*.pt'
collect metadata checkpoint .metadata
collect config_json hf config.json
collect tokenizer_json tokenizers/hf '*.json'
collect chat_template tokenizers/chat '*.jinja'
collect json_lines tokenizers '*.jsonl' '*.gz' '*.zst'
collect token_index data '*.idx'
collect npy data '*.npy'
words config_json '"[A-Za-z_0-9]{3,32}"'
words tokenizer_json '"[A-Za-z_]{3,24}"'
words chat_template "[\"']?[A-Za-z_]{3,20}[\"']?"
